//! Ctrl-C and a polite kill, turned into a question that the demo asks between its steps.
//!
//! Without it the children would outlive a stopped demo and hold their ports.

use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use anyhow::Context;

/// Tells when the user wants the demo to end.
pub(crate) struct Interrupt {
    asked: Receiver<()>,
}

impl Interrupt {
    /// From now on SIGINT, SIGTERM and SIGHUP end the demo in order. Once per process.
    pub(crate) fn listen() -> anyhow::Result<Self> {
        let (ask, asked) = channel();
        // After the demo has ended nobody receives any more, and the process ends by itself.
        let handler = move || {
            let _ = ask.send(());
        };
        ctrlc::set_handler(handler).context("cannot listen for Ctrl-C")?;
        Ok(Self { asked })
    }

    /// Waits at most `time`; fails when the demo was asked to stop.
    pub(crate) fn sleep(&self, time: Duration) -> anyhow::Result<()> {
        match self.asked.recv_timeout(time) {
            Err(RecvTimeoutError::Timeout) => Ok(()),
            Ok(()) | Err(RecvTimeoutError::Disconnected) => anyhow::bail!("interrupted"),
        }
    }

    /// Fails when the demo was asked to stop.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        self.sleep(Duration::ZERO)
    }
}
