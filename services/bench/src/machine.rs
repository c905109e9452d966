//! Where and when a measurement was taken: without it no figure means anything.

use std::process::Command;

use serde::Serialize;

/// The machine, in the words of its kernel.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    pub processor: String,
    pub cores: usize,
    pub kernel: String,
    /// Over one minute, before the first pass.
    pub load_average: f64,
    /// Of this checkout; `unknown` outside one.
    pub revision: String,
    /// Seconds since 1970.
    pub taken_at_s: u64,
}

impl Machine {
    pub fn here() -> Self {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        Self {
            processor: processor(&read("/proc/cpuinfo")),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            load_average: load_average(),
            revision: revision(),
            taken_at_s: since.map_or(0, |since| since.as_secs()),
        }
    }
}

/// `2026-11-30` of seconds since 1970, in UTC.
pub fn date(seconds: u64) -> String {
    // Days are counted from 1 March of year 0, so that the leap day ends its year.
    let days = seconds / 86_400 + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

/// Runnable processes over the last minute.
pub fn load_average() -> f64 {
    read("/proc/loadavg").split_whitespace().next().and_then(|text| text.parse().ok()).unwrap_or_default()
}

fn processor(cpuinfo: &str) -> String {
    let value = |key: &str| {
        let line = cpuinfo.lines().find(|line| line.starts_with(key))?;
        line.split_once(':').map(|(_, value)| value.trim().to_owned())
    };
    value("model name").or_else(|| value("CPU part")).unwrap_or_else(|| std::env::consts::ARCH.to_owned())
}

fn revision() -> String {
    let output = Command::new("git").args(["describe", "--always", "--dirty", "--exclude", "*"]).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).unwrap_or_default();
    if text.is_empty() { "unknown".to_owned() } else { text }
}

fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_right_around_leap_days() {
        for (seconds, expected) in [
            (0, "1970-01-01"),
            (951_782_399, "2000-02-28"),
            (951_782_400, "2000-02-29"),
            (951_868_800, "2000-03-01"),
            (1_798_675_200, "2026-12-31"),
            (1_798_761_600, "2027-01-01"),
        ] {
            assert_eq!(date(seconds), expected);
        }
    }

    #[test]
    fn the_processor_is_named() {
        assert_eq!(processor("processor\t: 0\nmodel name\t: Some CPU @ 2 GHz\n"), "Some CPU @ 2 GHz");
        assert_eq!(processor(""), std::env::consts::ARCH);
    }
}
