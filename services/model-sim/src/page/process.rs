//! What every Python process with prometheus_client shows of itself.

use std::fs;

use super::exposition::Page;
use crate::sim::Sim;

/// Bytes of one page of memory on the machines this runs on.
const PAGE_BYTES: f64 = 4096.0;
/// Kernel ticks of one second of CPU time.
const TICKS_PER_SECOND: f64 = 100.0;

/// Garbage collector, interpreter and process families.
pub(super) fn write(page: &mut Page, sim: &Sim) {
    for (name, help) in [
        ("python_gc_objects_collected_total", "Objects collected during gc"),
        ("python_gc_objects_uncollectable_total", "Uncollectable objects found during GC"),
        ("python_gc_collections_total", "Number of times this generation was collected"),
    ] {
        page.family(name, "counter", help);
        for generation in ["0", "1", "2"] {
            page.sample(name, &[("generation", generation)], 0.0);
        }
    }
    page.family("python_info", "gauge", "Python platform information");
    let python =
        [("implementation", "CPython"), ("major", "3"), ("minor", "12"), ("patchlevel", "11"), ("version", "3.12.11")];
    page.sample("python_info", &python, 1.0);
    let [virtual_bytes, resident_bytes] = memory_bytes();
    for (name, kind, help, value) in [
        ("process_virtual_memory_bytes", "gauge", "Virtual memory size in bytes.", virtual_bytes),
        ("process_resident_memory_bytes", "gauge", "Resident memory size in bytes.", resident_bytes),
        (
            "process_start_time_seconds",
            "gauge",
            "Start time of the process since unix epoch in seconds.",
            sim.clock.started_unix_s(),
        ),
        ("process_cpu_seconds_total", "counter", "Total user and system CPU time spent in seconds.", cpu_seconds()),
        ("process_open_fds", "gauge", "Number of open file descriptors.", open_files()),
        ("process_max_fds", "gauge", "Maximum number of open file descriptors.", 65_536.0),
    ] {
        page.family(name, kind, help);
        page.sample(name, &[], value);
    }
}

/// Virtual and resident size; zero where the system does not tell.
fn memory_bytes() -> [f64; 2] {
    let text = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let mut pages = text.split_ascii_whitespace().map(|word| word.parse::<f64>().unwrap_or(0.0));
    [(); 2].map(|()| pages.next().unwrap_or(0.0) * PAGE_BYTES)
}

fn cpu_seconds() -> f64 {
    let text = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // Fields are counted from behind the name, which may hold spaces.
    let fields = text.rsplit_once(") ").map_or("", |(_, rest)| rest).split_ascii_whitespace();
    fields.skip(11).take(2).map(|ticks| ticks.parse::<f64>().unwrap_or(0.0)).sum::<f64>() / TICKS_PER_SECOND
}

fn open_files() -> f64 {
    fs::read_dir("/proc/self/fd").map_or(0.0, |entries| entries.count() as f64)
}
