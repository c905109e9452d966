//! Where a run takes place: the engines, the ways between, and what befalls them.

use std::time::Duration;

use anyhow::Result;
use engine::Profile;
use serde::Deserialize;

/// Everything that a run is a function of, besides its calls and its router.
#[derive(Clone, Debug)]
pub struct Stage {
    /// Where the engines' jitter and the looks' spread come from.
    pub seed: u64,
    /// One per endpoint.
    pub fleet: Vec<Profile>,
    pub hops: Hops,
    pub changes: Vec<Change>,
    /// Names of the classes of calls.
    pub classes: Vec<String>,
    /// Calls come for so long.
    pub length: Duration,
    /// What is not over so long after that never will be.
    pub patience: Duration,
}

/// How long a message takes, one way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hops {
    /// From a client to where the routing is done: through a load balancer.
    pub front: Duration,
    /// What one more proxy on the way takes: only through the product.
    pub gateway: Duration,
    /// From where the routing is done to an engine.
    pub engine: Duration,
}

/// Equal engines, one endpoint each.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machines {
    /// A name of `engine::Profile`.
    pub profile: String,
    pub count: usize,
    /// Requests in one batch, at most: as the profile says unless given.
    #[serde(default)]
    pub batch_max: Option<u32>,
}

/// Something happens to an endpoint.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Change {
    /// After the beginning.
    pub at_s: f64,
    /// Its number; all of them without one.
    #[serde(default)]
    pub endpoint: Option<usize>,
    pub does: Deed,
}

/// What an endpoint can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Deed {
    /// Its process is gone: connections are refused and streams cut. The configuration still names it.
    Dies,
    /// A new process at the same address, empty.
    Returns,
    /// It takes no new work and finishes what it has.
    Drains,
    /// The configuration no longer names it.
    Leaves,
    /// The configuration names it again: a new life with a new id and an empty engine.
    Joins,
    /// Its metrics page hangs; it serves on.
    Mutes,
    /// Its metrics page answers again.
    Speaks,
}

impl Stage {
    /// Enough for everything that is bound to end within a queue's longest wait.
    pub const PATIENCE: Duration = Duration::from_secs(180);
}

impl Hops {
    /// Clients and gateway on one machine; 0.3 ms to an engine, which is a hop within one zone.
    pub const NEAR: Self = Self { front: Duration::ZERO, gateway: Duration::ZERO, engine: Duration::from_micros(300) };
}

impl Machines {
    /// # Errors
    /// Nobody knows a profile of that name.
    pub fn profile(&self) -> Result<Profile> {
        let mut profile = Profile::named(&self.profile)?;
        profile.max_seqs = self.batch_max.unwrap_or(profile.max_seqs);
        Ok(profile)
    }

    /// The profiles of all endpoints of a fleet, in order.
    ///
    /// # Errors
    /// Nobody knows a profile of that name.
    pub fn endpoints(fleet: &[Self]) -> Result<Vec<Profile>> {
        let mut endpoints = Vec::new();
        for machines in fleet {
            endpoints.extend(std::iter::repeat_n(machines.profile()?, machines.count));
        }
        Ok(endpoints)
    }
}
