//! The figures of the cost table, and what they have to be.

use serde::{Deserialize, Serialize};

/// What a pass measures of a subject; also the key in `cost.json`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Key {
    CpuUsPerRequest1kB,
    CpuUsPerRequest4kB,
    CpuUsPerRequest400kB,
    CpuUsPerRequest4MB,
    CpuUsPerRequest256Connections,
    CpuUsPerRequest1000Connections,
    CpuUsPerRequestHttp2,
    CpuUsPerRequestTls,
    RequestsPerSecond4kB,
    RequestsPerSecond256Connections,
    RequestsPerSecond1000Connections,
    RequestsPerSecondHttp2,
    RequestsPerSecondTls,
    CpuUsPerShortStream,
    CpuUsPerChunk,
    CpuUsPerFastChunk,
    ChunksPerSecond,
    LatencyMsP50,
    LatencyMsP99,
    AddedMsP50,
    AddedMsP99,
    CoresIdle,
    CoresIdle100Endpoints,
    MemoryMbIdle,
    MemoryMb1000Streams,
    MemoryPerByteInFlight,
    MemoryMbPeak,
    BinaryMb,
    FirstAnswerMs,
    PickUsP99,
    PickGrowth,
    PrefixLookupUs,
}

/// What the gateway's median is held to. Subjects are named as in `--subjects`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Target {
    /// At most this times another subject's.
    Times(f64, &'static str),
    /// At least this times another subject's.
    AtLeastTimes(f64, &'static str),
    /// At most this more than another subject's.
    Above(f64, &'static str),
    /// At most this, in the figure's unit.
    AtMost(f64),
}

/// One row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Figure {
    pub key: Key,
    pub title: &'static str,
    pub decimals: usize,
    pub targets: &'static [Target],
}

use Target::{Above, AtLeastTimes, AtMost, Times};

/// In the order of the table. What is known of Envoy with the upstream picker behind it (1,169 µs at 4 kB, 17.0 ms at
/// 400 kB, measured once on such a machine) stands as a plain bound, rounded down.
pub const FIGURES: &[Figure] = &[
    row(Key::CpuUsPerRequest1kB, "CPU per request, 1 kB body (µs)", 1, &[]),
    row(
        Key::CpuUsPerRequest4kB,
        "CPU per request, 4 kB body (µs)",
        1,
        &[Times(0.55, "envoy"), Times(0.35, "smg"), AtMost(81.0)],
    ),
    row(Key::CpuUsPerRequest400kB, "CPU per request, 400 kB body (µs)", 0, &[AtMost(595.0), Times(1.5, "envoy")]),
    row(Key::CpuUsPerRequest4MB, "CPU per request, 4 MB body (µs)", 0, &[]),
    row(Key::CpuUsPerRequest256Connections, "CPU per request, 4 kB, 256 connections (µs)", 1, &[]),
    row(Key::CpuUsPerRequest1000Connections, "CPU per request, 4 kB, 1,000 connections (µs)", 1, &[]),
    row(Key::CpuUsPerRequestHttp2, "CPU per request, 4 kB, HTTP/2 (µs)", 1, &[]),
    row(Key::CpuUsPerRequestTls, "CPU per request, 4 kB, TLS (µs)", 1, &[]),
    row(
        Key::RequestsPerSecond4kB,
        "requests per second, 4 kB",
        0,
        &[AtLeastTimes(1.3, "envoy"), AtLeastTimes(2.0, "smg")],
    ),
    row(Key::RequestsPerSecond256Connections, "requests per second, 4 kB, 256 connections", 0, &[]),
    row(Key::RequestsPerSecond1000Connections, "requests per second, 4 kB, 1,000 connections", 0, &[]),
    row(Key::RequestsPerSecondHttp2, "requests per second, 4 kB, HTTP/2", 0, &[]),
    row(Key::RequestsPerSecondTls, "requests per second, 4 kB, TLS", 0, &[]),
    row(Key::CpuUsPerShortStream, "CPU per streamed answer of 10 chunks (µs)", 1, &[]),
    row(Key::CpuUsPerChunk, "CPU per chunk, 100 streams at 100 per second (µs)", 2, &[Times(0.55, "envoy")]),
    // 0.7 cores at 100,000 chunks per second.
    row(Key::CpuUsPerFastChunk, "CPU per chunk, 100 streams at 1,000 per second (µs)", 2, &[Above(7.0, "bare")]),
    row(Key::ChunksPerSecond, "chunks per second then", 0, &[]),
    row(Key::LatencyMsP50, "latency at half load, median (ms)", 3, &[]),
    row(Key::LatencyMsP99, "latency at half load, p99 (ms)", 3, &[]),
    row(Key::AddedMsP50, "added to direct at half load, median (ms)", 3, &[AtMost(0.15)]),
    row(Key::AddedMsP99, "added to direct at half load, p99 (ms)", 3, &[AtMost(1.0)]),
    row(Key::CoresIdle, "CPU, idle, every endpoint scraped (cores)", 3, &[]),
    row(Key::CoresIdle100Endpoints, "CPU, idle, 100 endpoints scraped (cores)", 3, &[AtMost(0.10)]),
    row(Key::MemoryMbIdle, "memory, idle (MB)", 1, &[AtMost(40.0)]),
    row(Key::MemoryMb1000Streams, "memory, 1,000 open streams (MB)", 1, &[AtMost(120.0)]),
    row(Key::MemoryPerByteInFlight, "memory, 100 bodies of 4 MB in flight (× their bytes)", 2, &[AtMost(1.2)]),
    row(Key::MemoryMbPeak, "memory, most in all loads but those (MB)", 1, &[]),
    row(Key::BinaryMb, "executable (MB)", 1, &[AtMost(30.0)]),
    row(Key::FirstAnswerMs, "start to first answer (ms)", 0, &[AtMost(200.0)]),
    row(Key::PickUsP99, "in process: pick among 1,000 endpoints, p99 (µs)", 1, &[AtMost(200.0)]),
    row(Key::PickGrowth, "in process: that median ÷ the one among 100", 1, &[AtMost(10.0)]),
    row(Key::PrefixLookupUs, "in process: prefix look-up of 100,000 tokens, p99 (µs)", 1, &[AtMost(100.0)]),
];

const fn row(key: Key, title: &'static str, decimals: usize, targets: &'static [Target]) -> Figure {
    Figure { key, title, decimals, targets }
}

/// How the gateway's median stands to a target.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Verdict {
    /// What is compared with the target's number: a ratio, a difference, or the median itself.
    pub value: f64,
    pub met: bool,
}

impl Target {
    /// `None` when the subject it speaks of was not measured. `other` gives medians by subject.
    pub fn judge(self, gateway: f64, other: impl Fn(&str) -> Option<f64>) -> Option<Verdict> {
        let ratio = |subject| other(subject).filter(|median| *median > 0.0).map(|median| gateway / median);
        match self {
            Self::Times(factor, subject) => ratio(subject).map(|value| Verdict { value, met: value <= factor }),
            Self::AtLeastTimes(factor, subject) => ratio(subject).map(|value| Verdict { value, met: value >= factor }),
            Self::Above(most, subject) => {
                other(subject).map(|median| Verdict { value: gateway - median, met: gateway - median <= most })
            }
            Self::AtMost(most) => Some(Verdict { value: gateway, met: gateway <= most }),
        }
    }
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Times(factor, subject) => write!(f, "≤ {factor} × {subject}"),
            Self::AtLeastTimes(factor, subject) => write!(f, "≥ {factor} × {subject}"),
            Self::Above(most, subject) => write!(f, "≤ {subject} + {most}"),
            Self::AtMost(most) => write!(f, "≤ {most}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn envoy(subject: &str) -> Option<f64> {
        (subject == "envoy").then_some(100.0)
    }

    #[test]
    fn targets_judge_medians() {
        let met = |target: Target, gateway| target.judge(gateway, envoy).map(|verdict| verdict.met);
        assert_eq!(met(Times(0.7, "envoy"), 70.0), Some(true));
        assert_eq!(met(Times(0.7, "envoy"), 71.0), Some(false));
        assert_eq!(met(Times(0.7, "smg"), 1.0), None);
        assert_eq!(met(AtLeastTimes(1.3, "envoy"), 129.0), Some(false));
        assert_eq!(met(AtLeastTimes(1.3, "envoy"), 130.0), Some(true));
        assert_eq!(met(Above(7.0, "envoy"), 107.0), Some(true));
        assert_eq!(met(Above(7.0, "envoy"), 107.5), Some(false));
        assert_eq!(met(AtMost(1.0), 0.9), Some(true));
    }

    #[test]
    fn a_verdict_shows_what_is_compared() {
        assert_eq!(Times(0.7, "envoy").judge(50.0, envoy), Some(Verdict { value: 0.5, met: true }));
        assert_eq!(Above(7.0, "envoy").judge(112.0, envoy), Some(Verdict { value: 12.0, met: false }));
    }

    #[test]
    fn every_key_has_one_row() {
        let keys: std::collections::BTreeSet<Key> = FIGURES.iter().map(|figure| figure.key).collect();
        assert_eq!(keys.len(), FIGURES.len());
    }
}
