//! How a process stops: first it says so, then it takes no more, then it waits.

use std::{sync::Arc, time::Duration};

use tokio::{sync::watch, time};

/// Where a process is on its way to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// At work.
    Open,
    /// Still at work, but no longer ready for more: whoever balances load should look elsewhere.
    Announced,
    /// Listeners are closed; each connection ends with its last answer.
    Draining,
}

/// The signal, shared by all listeners and services of a process.
#[derive(Clone, Debug)]
pub struct Drain(Arc<watch::Sender<Phase>>);

impl Default for Drain {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(Phase::Open)))
    }
}

impl Drain {
    /// Open.
    pub fn new() -> Self {
        Self::default()
    }

    /// Where it is.
    pub fn phase(&self) -> Phase {
        *self.0.borrow()
    }

    /// From now on not ready; listeners stay open.
    pub fn announce(&self) {
        self.advance(Phase::Announced);
    }

    /// From now on draining.
    pub fn begin(&self) {
        self.advance(Phase::Draining);
    }

    /// Announces, waits for `grace`, and begins.
    pub async fn begin_after(&self, grace: Duration) {
        self.announce();
        if !grace.is_zero() {
            time::sleep(grace).await;
        }
        self.begin();
    }

    /// Waits until the phase is reached.
    pub async fn reached(&self, phase: Phase) {
        let mut phases = self.0.subscribe();
        // The sender is held by `self`, so this cannot fail.
        let _reached = phases.wait_for(|now| *now >= phase).await;
    }

    fn advance(&self, to: Phase) {
        self.0.send_if_modified(|phase| {
            let forward = *phase < to;
            if forward {
                *phase = to;
            }
            forward
        });
    }
}
