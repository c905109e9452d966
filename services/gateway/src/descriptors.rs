//! File descriptors, of which every connection takes one, and every request another one towards its endpoint.
//!
//! Many systems start a program with 1,024 and let it take more. Where even the most it may take is little, connections
//! of clients are bounded so that a flood of them leaves enough for looks at endpoints, for operators and for files: a
//! gateway that cannot answer its probes would be restarted, with all its streams.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// As many as are ever needed: both sides of as many connections as a listener takes at most, and the part that is kept.
const WANTED: u64 = 8 * 65_536 / 3 + OWN;

/// What the process itself holds: sockets it listens on, event loops, standard streams.
const OWN: u64 = 16;

/// Fewest connections of clients, whatever the limit.
const CONNECTIONS_MIN: u64 = 8;

/// Raises the process's limit as far as it may and needs to; returns the limit in force.
pub fn raise() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let current = limit.current.unwrap_or(u64::MAX);
    let wanted = limit.maximum.unwrap_or(u64::MAX).min(WANTED);
    if current >= wanted {
        return current;
    }
    let raised = Rlimit { current: Some(wanted), maximum: limit.maximum };
    if setrlimit(Resource::Nofile, raised).is_ok() { wanted } else { current }
}

/// How many connections of clients leave room for all else under this limit of descriptors: a quarter is kept, and each
/// connection may need one towards an endpoint.
pub fn connections_max(descriptors: u64) -> usize {
    let kept = descriptors / 4 + OWN / 2;
    let connections = (descriptors.saturating_sub(kept) / 2).max(CONNECTIONS_MIN);
    usize::try_from(connections).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_limit_leaves_room_and_a_large_one_is_no_bound() {
        for descriptors in [64, 256, 1_024, 65_536] {
            let connections = connections_max(descriptors) as u64;
            assert!(2 * connections + OWN <= descriptors, "{descriptors}: {connections}");
            assert!(connections >= descriptors / 4, "{descriptors}: {connections}");
        }
        assert_eq!(connections_max(0), 8);
        assert!(connections_max(WANTED) >= 65_536, "{}", connections_max(WANTED));
        assert!(connections_max(u64::MAX) > 65_536);
    }

    #[test]
    fn the_limit_in_force_is_told() {
        let raised = raise();
        assert_eq!(getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX), raised);
        assert_eq!(raise(), raised);
    }
}
