//! The figures of the cost table, and what they have to be.

use serde::{Deserialize, Serialize};

/// What a pass measures of a subject; also the key in `cost.json`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Key {
    CpuUsPerRequest1kB,
    CpuUsPerRequest4kB,
    CpuUsPerRequest400kB,
    CpuUsPerChunk,
    RequestsPerSecond4kB,
    LatencyMsP50,
    LatencyMsP99,
    AddedMsP50,
    AddedMsP99,
    CoresIdle,
    MemoryMbIdle,
    MemoryMbPeak,
    BinaryMb,
}

/// What the gateway's median is held to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Target {
    /// At most this times Envoy's.
    TimesEnvoy(f64),
    /// At least this times Envoy's.
    AtLeastTimesEnvoy(f64),
    /// At most this, in the figure's unit.
    AtMost(f64),
    /// For the reader only.
    None,
}

/// One row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Figure {
    pub key: Key,
    pub title: &'static str,
    pub decimals: usize,
    pub target: Target,
}

/// In the order of the table.
pub const FIGURES: [Figure; 13] = [
    row(Key::CpuUsPerRequest1kB, "CPU per request, 1 kB body (µs)", 1, Target::None),
    row(Key::CpuUsPerRequest4kB, "CPU per request, 4 kB body (µs)", 1, Target::TimesEnvoy(0.70)),
    row(Key::CpuUsPerRequest400kB, "CPU per request, 400 kB body (µs)", 1, Target::TimesEnvoy(1.5)),
    row(Key::CpuUsPerChunk, "CPU per streamed chunk (µs)", 2, Target::TimesEnvoy(0.55)),
    row(Key::RequestsPerSecond4kB, "requests per second flat out, 4 kB body", 0, Target::AtLeastTimesEnvoy(1.3)),
    row(Key::LatencyMsP50, "latency at half load, median (ms)", 3, Target::None),
    row(Key::LatencyMsP99, "latency at half load, p99 (ms)", 3, Target::None),
    row(Key::AddedMsP50, "added to direct at half load, median (ms)", 3, Target::AtMost(0.15)),
    row(Key::AddedMsP99, "added to direct at half load, p99 (ms)", 3, Target::AtMost(1.0)),
    row(Key::CoresIdle, "CPU, idle, every endpoint scraped (cores)", 3, Target::None),
    row(Key::MemoryMbIdle, "memory, idle (MB)", 1, Target::AtMost(40.0)),
    row(Key::MemoryMbPeak, "memory, most in all loads (MB)", 1, Target::None),
    row(Key::BinaryMb, "executable (MB)", 1, Target::AtMost(30.0)),
];

const fn row(key: Key, title: &'static str, decimals: usize, target: Target) -> Figure {
    Figure { key, title, decimals, target }
}

impl Target {
    /// Whether the medians meet it; `None` when it does not apply.
    pub fn met(self, gateway: f64, envoy: Option<f64>) -> Option<bool> {
        match self {
            Self::TimesEnvoy(factor) => Some(gateway <= factor * envoy?),
            Self::AtLeastTimesEnvoy(factor) => Some(gateway >= factor * envoy?),
            Self::AtMost(most) => Some(gateway <= most),
            Self::None => None,
        }
    }
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::TimesEnvoy(factor) => write!(f, "≤ {factor} × Envoy"),
            Self::AtLeastTimesEnvoy(factor) => write!(f, "≥ {factor} × Envoy"),
            Self::AtMost(most) => write!(f, "≤ {most}"),
            Self::None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_judge_medians() {
        assert_eq!(Target::TimesEnvoy(0.7).met(70.0, Some(100.0)), Some(true));
        assert_eq!(Target::TimesEnvoy(0.7).met(71.0, Some(100.0)), Some(false));
        assert_eq!(Target::TimesEnvoy(0.7).met(1.0, None), None);
        assert_eq!(Target::AtLeastTimesEnvoy(1.3).met(129.0, Some(100.0)), Some(false));
        assert_eq!(Target::AtMost(1.0).met(0.9, None), Some(true));
        assert_eq!(Target::None.met(0.9, Some(1.0)), None);
    }

    #[test]
    fn every_key_has_one_row() {
        let keys: std::collections::BTreeSet<Key> = FIGURES.iter().map(|figure| figure.key).collect();
        assert_eq!(keys.len(), FIGURES.len());
    }
}
