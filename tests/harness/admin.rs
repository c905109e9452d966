//! The gateway's admin port.

use std::net::SocketAddr;

use serde_json::Value;

use crate::http::{Answer, request};

/// Asks an admin port.
#[derive(Clone, Copy, Debug)]
pub struct Admin {
    /// Where it listens.
    pub address: SocketAddr,
}

impl Admin {
    /// Of a process whose admin port is there.
    pub fn new(address: SocketAddr) -> Self {
        Self { address }
    }

    /// Asks for a path.
    pub fn get(&self, path: &str) -> Answer {
        request(self.address, "GET", path, &[], "")
    }

    /// Asks for JSON.
    pub fn json(&self, path: &str) -> Value {
        self.get(path).json()
    }

    /// The sum of all series of a metric whose labels hold all of `labels`, each as `name="value"`; `None` without any.
    pub fn metric(&self, name: &str, labels: &[&str]) -> Option<f64> {
        let page = self.get("/metrics").text();
        let mine = page.lines().filter(|line| {
            let rest = line.strip_prefix(name);
            rest.is_some_and(|rest| rest.starts_with([' ', '{'])) && labels.iter().all(|label| line.contains(label))
        });
        let values = mine.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
        values.fold(None, |sum, value| Some(sum.unwrap_or(0.0) + value))
    }

    /// A pool as the admin API shows it.
    ///
    /// # Panics
    /// When there is none of that name.
    pub fn pool(&self, name: &str) -> Value {
        let pools = self.json("/api/v1/pools");
        let list = pools["pools"].as_array().expect("a list of pools");
        list.iter().find(|pool| pool["name"] == name).unwrap_or_else(|| panic!("no pool {name} in {pools}")).clone()
    }

    /// An endpoint of a pool as the admin API shows it.
    ///
    /// # Panics
    /// When there is none of that name.
    pub fn endpoint(&self, pool: &str, name: &str) -> Value {
        let shown = self.pool(pool);
        let list = shown["endpoints"].as_array().expect("a list of endpoints");
        list.iter().find(|endpoint| endpoint["name"] == name).unwrap_or_else(|| panic!("no {name} in {shown}")).clone()
    }

    /// Requests in flight in a pool, by the gateway's accounts.
    pub fn in_flight(&self, pool: &str) -> u64 {
        let shown = self.pool(pool);
        let list = shown["endpoints"].as_array().expect("a list of endpoints");
        list.iter().filter_map(|endpoint| endpoint["in_flight"]["requests"].as_u64()).sum()
    }
}
