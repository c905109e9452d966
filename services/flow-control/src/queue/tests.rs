//! Tests of the whole queue, by theme. Time is simulated.

mod bounds;
mod fairness;
mod model;
mod order;

use std::time::Duration;

use super::*;

pub(super) fn at(ms: u64) -> Moment {
    Moment::from_origin(Duration::from_millis(ms))
}

/// A request of a flow in the Standard band.
pub(super) fn of(flow: u64) -> Ask {
    Ask { flow: Flow(flow), bytes: 1, ..Ask::default() }
}

/// The contract's settings with other ones for the Standard band.
pub(super) fn standard(change: impl FnOnce(&mut crate::BandSettings)) -> Settings {
    let mut settings = Settings::default();
    change(&mut settings.bands[Band::Standard.index()]);
    settings
}

/// Joins, as one for which any endpoint will do, and is told apart by a number.
pub(super) fn join(queue: &mut Queue<u32>, ask: Ask, name: u32, now: Moment) -> Result<Joined<u32>, QueueFull> {
    queue.join(&ask, Choice::Any, || name, now)
}

/// Whose turn it is in a band, when there is room for everybody.
pub(super) fn next(queue: &mut Queue<u32>, band: Band) -> Option<u32> {
    queue.next(band, |_, _| Look::Placed(())).map(|(left, ())| left.waiting)
}

/// The order in which a band is served.
pub(super) fn drain(queue: &mut Queue<u32>, band: Band) -> Vec<u32> {
    std::iter::from_fn(|| next(queue, band)).collect()
}
