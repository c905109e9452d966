//! What the operating system says of this process, under the names that every Prometheus dashboard knows.
//!
//! Read from `/proc` when a page is asked for. Where there is none (not Linux) the series are absent rather than 0.

use std::fs;

use telemetry::{
    Metrics,
    catalog::{PROCESS_CPU, PROCESS_MEMORY, PROCESS_START},
};

/// Fields of `/proc/self/stat` behind the command's closing bracket, counted from 0: utime and stime.
const USER_TICKS: usize = 11;
const SYSTEM_TICKS: usize = 12;

/// Field of `/proc/self/statm`, counted from 0: resident pages.
const RESIDENT_PAGES: usize = 1;

/// Brings the process's series up to date.
pub(super) fn refresh(metrics: &Metrics, started_unix_s: f64) {
    metrics.gauge(&PROCESS_START, &[]).set(started_unix_s);
    if let Some(seconds) = fs::read_to_string("/proc/self/stat").ok().as_deref().and_then(cpu_seconds) {
        metrics.gauge(&PROCESS_CPU, &[]).set(seconds);
    }
    if let Some(bytes) = fs::read_to_string("/proc/self/statm").ok().as_deref().and_then(resident_bytes) {
        metrics.gauge(&PROCESS_MEMORY, &[]).set(bytes as f64);
    }
}

/// User and system time, in seconds.
fn cpu_seconds(stat: &str) -> Option<f64> {
    // The command may hold spaces and brackets; the last bracket is its end.
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    let user: u64 = fields.nth(USER_TICKS)?.parse().ok()?;
    let system: u64 = fields.nth(SYSTEM_TICKS - USER_TICKS - 1)?.parse().ok()?;
    Some(user.checked_add(system)? as f64 / rustix::param::clock_ticks_per_second() as f64)
}

fn resident_bytes(statm: &str) -> Option<u64> {
    let pages: u64 = statm.split_ascii_whitespace().nth(RESIDENT_PAGES)?.parse().ok()?;
    pages.checked_mul(u64::try_from(rustix::param::page_size()).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_with_brackets_and_spaces_moves_no_field() {
        let ticks = rustix::param::clock_ticks_per_second();
        let rest = format!("S 1 2 3 4 5 6 7 8 9 10 {} {} 7 7", 5 * ticks, 2 * ticks + 1);
        assert_eq!(cpu_seconds(&format!("42 (a) b (c)) {rest}")), Some((7 * ticks + 1) as f64 / ticks as f64));
        assert_eq!(cpu_seconds("42 (cut) S 1 2"), None);
        assert_eq!(cpu_seconds(""), None);
    }

    #[test]
    fn resident_memory_is_in_bytes() {
        assert_eq!(resident_bytes("900 3 1 1 0 1 0"), Some(3 * rustix::param::page_size() as u64));
        assert_eq!(resident_bytes(""), None);
    }
}
