//! A time limit that moves at every request and costs a timer only when it could really have passed.
//!
//! Limits here are long and almost never reached, while requests come by the thousand. So the timer is left where it is
//! when the limit moves later, and looks again when it fires: a connection arms it once per limit, not once per request.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio::time::{Instant, Sleep, sleep_until};

/// One timer, made at first use.
#[derive(Default)]
pub(crate) struct Deadline(Option<Pin<Box<Sleep>>>);

impl Deadline {
    /// Ready once `due` has passed; otherwise the task is woken then, or earlier.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>, due: Instant) -> Poll<()> {
        let sleep = self.0.get_or_insert_with(|| Box::pin(sleep_until(due)));
        loop {
            if sleep.deadline() > due {
                sleep.as_mut().reset(due);
            }
            ready!(sleep.as_mut().poll(cx));
            if Instant::now() >= due {
                return Poll::Ready(());
            }
            sleep.as_mut().reset(due);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{future::poll_fn, time::Duration};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn fires_at_the_latest_limit_and_not_before() {
        let mut deadline = Deadline::default();
        let start = Instant::now();
        let early = start + Duration::from_secs(10);
        let late = start + Duration::from_secs(25);
        assert!(poll_fn(|cx| Poll::Ready(deadline.poll(cx, early).is_pending())).await);
        poll_fn(|cx| deadline.poll(cx, late)).await;
        assert_eq!(Instant::now().duration_since(start).as_secs(), 25);
        // An elapsed timer serves the next limit, also one that comes sooner than the last.
        poll_fn(|cx| deadline.poll(cx, late + Duration::from_secs(40))).await;
        let next = Instant::now() + Duration::from_secs(3);
        assert!(poll_fn(|cx| Poll::Ready(deadline.poll(cx, next + Duration::from_secs(9)).is_pending())).await);
        poll_fn(|cx| deadline.poll(cx, next)).await;
        assert_eq!(Instant::now(), next);
    }
}
