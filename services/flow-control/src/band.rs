//! Bands of priority.

/// Requests of one priority class. The order is that of service: what is smaller goes first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Band {
    /// Objectives of a priority above 0.
    Critical,
    /// Objectives of priority 0, and requests without one.
    #[default]
    Standard,
    /// Objectives of a priority below 0: refused first.
    Sheddable,
}

impl Band {
    /// How many there are.
    pub const COUNT: usize = 3;
    /// All, in the order of service.
    pub const ALL: [Self; Self::COUNT] = [Self::Critical, Self::Standard, Self::Sheddable];

    /// The band of an objective's priority.
    pub const fn of_priority(priority: i32) -> Self {
        match priority {
            1.. => Self::Critical,
            0 => Self::Standard,
            ..0 => Self::Sheddable,
        }
    }

    /// Its place in a table of all bands.
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The word for metrics, logs and the admin API.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Critical => "critical",
            Self::Standard => "standard",
            Self::Sheddable => "sheddable",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bands_follow_priorities_and_keep_their_order() {
        assert_eq!(
            [i32::MAX, 1, 0, -1, i32::MIN].map(Band::of_priority),
            [Band::Critical, Band::Critical, Band::Standard, Band::Sheddable, Band::Sheddable]
        );
        assert!(Band::ALL.is_sorted());
        assert!(Band::ALL.iter().enumerate().all(|(place, band)| band.index() == place));
    }
}
