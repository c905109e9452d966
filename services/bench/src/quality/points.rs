//! The loads at which a scenario is run.
//!
//! Besides the scenario's own there are two at which round-robin, which gives every pod the same share, meets the
//! slowest pod class: where that class is at 80 % of its capacity, and where it is full; and the fleet's whole capacity,
//! where every router saturates.

use serde::Serialize;

use super::{cell::Setting, scenario::Scenario};

/// Of a pod class's capacity: round-robin is busy there.
const BUSY: f64 = 0.8;

/// One load.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Point {
    /// What it is, in words.
    pub name: String,
    pub kind: PointKind,
    /// Of the fleet's capacity.
    pub load: f64,
    pub rate_per_s: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PointKind {
    /// A share of the fleet's capacity.
    Share,
    /// Round-robin brings the slowest class to 80 %.
    RoundRobinBusy,
    /// Round-robin brings the slowest class to its capacity.
    RoundRobinFull,
    /// The whole fleet's capacity.
    Full,
}

/// In ascending order. `only` these shares, where some are named.
pub fn of(scenario: &Scenario, setting: &Setting, only: &[f64]) -> Vec<Point> {
    let capacity = setting.capacity_per_s();
    let point = |name: String, kind, rate_per_s: f64| Point { name, kind, load: rate_per_s / capacity, rate_per_s };
    let share = |load: &f64| point(format!("{:.0} % of capacity", load * 100.0), PointKind::Share, load * capacity);
    if !only.is_empty() {
        return only.iter().map(share).collect();
    }
    let mut points: Vec<Point> = scenario.loads.iter().map(share).collect();
    let (full, class) = setting.round_robin_full();
    let of_class = |at: f64| format!("round-robin at {:.0} % of {class}'s capacity", at * 100.0);
    points.push(point(of_class(BUSY), PointKind::RoundRobinBusy, full * BUSY));
    if full < capacity * 0.99 {
        points.push(point(of_class(1.0), PointKind::RoundRobinFull, full));
    }
    points.push(point("100 % of capacity".to_owned(), PointKind::Full, capacity));
    points.sort_by(|a, b| a.rate_per_s.total_cmp(&b.rate_per_s));
    points
}
