//! Comments in an event stream that is silent, so that nobody between the endpoint and the client takes it for dead.
//!
//! Load balancers and corporate proxies cut connections on which nothing comes for a minute; a long prompt takes longer to
//! compute. A comment line is no event: clients skip it. It is sent only where one event has ended and none has begun,
//! since a comment is a line of its own.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use tokio::time::{Instant, Sleep, sleep};

/// What is sent.
pub(super) const COMMENT: Bytes = Bytes::from_static(b": keep-alive\n\n");

/// Knows how long a stream has been silent. One timer, moved only when it runs out: a stream of many events costs no more
/// than one of few.
pub(super) struct KeepAlive {
    every: Duration,
    silent_since: Instant,
    timer: Pin<Box<Sleep>>,
}

impl KeepAlive {
    pub(super) fn new(every: Duration) -> Self {
        Self { every, silent_since: Instant::now(), timer: Box::pin(sleep(every)) }
    }

    /// Something was sent.
    pub(super) fn sent(&mut self) {
        self.silent_since = Instant::now();
    }

    /// Ready when nothing was sent for long enough.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            ready!(self.timer.as_mut().poll(cx));
            let due = self.silent_since + self.every;
            if due <= Instant::now() {
                return Poll::Ready(());
            }
            self.timer.as_mut().reset(due);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_comment_is_due_after_so_much_silence_and_then_again() {
        let every = Duration::from_secs(10);
        let started = Instant::now();
        let mut keep_alive = KeepAlive::new(every);
        for event_s in [3, 9, 18] {
            tokio::time::sleep_until(started + Duration::from_secs(event_s)).await;
            keep_alive.sent();
        }
        for due_s in [28, 38, 48] {
            poll_fn(|cx| keep_alive.poll(cx)).await;
            assert_eq!(started.elapsed(), Duration::from_secs(due_s));
            keep_alive.sent();
        }
    }
}
