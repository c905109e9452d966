//! What must be seen: a measure of some requests within a stretch of time, and the range it must lie in.

use std::time::Duration;

use anyhow::{Result, ensure};
use serde::Deserialize;

use crate::{measure::Measure, scenario::Scenario};

/// One line of a scenario's `expect`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Expectation {
    /// The phase; the whole run without one.
    #[serde(default, rename = "in")]
    pub(crate) phase: Option<String>,
    /// The stretch begins so long after the phase does …
    #[serde(default)]
    pub(crate) from_s: f64,
    /// … and ends so long after that: with the phase unless given. It may reach beyond it.
    #[serde(default)]
    pub(crate) to_s: Option<f64>,
    /// Classes; all without any.
    #[serde(default)]
    pub(crate) of: Vec<String>,
    pub(crate) measure: Measure,
    /// As a multiple of the same measure there.
    #[serde(default)]
    pub(crate) over: Option<Over>,
    #[serde(default)]
    pub(crate) min: Option<f64>,
    #[serde(default)]
    pub(crate) max: Option<f64>,
}

/// What a measure can be compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Over {
    /// The same classes on the same fleet, each alone at a twentieth of the fleet's capacity.
    Unloaded,
    /// The whole scenario under `other` settings.
    Other,
}

/// A stretch of time, after the beginning.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    pub(crate) from: Duration,
    pub(crate) to: Duration,
}

impl Expectation {
    pub(crate) fn window(&self, scenario: &Scenario) -> Result<Window> {
        let (begins, ends) = match &self.phase {
            Some(phase) => scenario.window(phase)?,
            None => (Duration::ZERO, Duration::MAX),
        };
        let to = self.to_s.map_or(ends, |seconds| begins + Duration::from_secs_f64(seconds));
        Ok(Window { from: begins + Duration::from_secs_f64(self.from_s), to })
    }

    pub(crate) fn check(&self, scenario: &Scenario) -> Result<()> {
        ensure!(self.min.is_some() || self.max.is_some(), "an expectation without a bound cannot fail: {self:?}");
        ensure!(self.over != Some(Over::Other) || scenario.other.is_some(), "there is no `other` run");
        for class in &self.of {
            ensure!(scenario.classes.contains_key(class), "no class is called `{class}`");
        }
        self.window(scenario).map(drop)
    }

    /// NaN, where nothing was there to be measured, is outside every range.
    pub(crate) fn holds(&self, value: f64) -> bool {
        self.min.is_none_or(|min| value >= min) && self.max.is_none_or(|max| value <= max)
    }

    /// The range, in words.
    pub(crate) fn range(&self) -> String {
        match (self.min, self.max) {
            (Some(min), Some(max)) if min == max => format!("{min}"),
            (Some(min), Some(max)) => format!("{min} – {max}"),
            (Some(min), None) => format!("≥ {min}"),
            (None, Some(max)) => format!("≤ {max}"),
            (None, None) => "–".to_owned(),
        }
    }

    /// What it is about, in words.
    pub(crate) fn subject(&self) -> String {
        let classes = if self.of.is_empty() { "all".to_owned() } else { self.of.join("+") };
        let measure = self.measure.name();
        match self.over {
            Some(Over::Unloaded) => format!("{classes}: {measure} ÷ unloaded"),
            Some(Over::Other) => format!("{classes}: {measure} ÷ other settings"),
            None => format!("{classes}: {measure}"),
        }
    }

    /// When, in words.
    pub(crate) fn when(&self) -> String {
        let phase = self.phase.as_deref().unwrap_or("whole run");
        match (self.from_s > 0.0, self.to_s) {
            (false, None) => phase.to_owned(),
            (true, None) => format!("{phase}, from {} s", self.from_s),
            (_, Some(to_s)) => format!("{phase}, {}–{to_s} s", self.from_s),
        }
    }
}
