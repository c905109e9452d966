//! The waker a connection is driven with, which knows whether its driver is at work.
//!
//! hyper's two ends of a connection wake each other at every step. Here both are polled by one task, one after the other, so
//! such a wake-up would only have that whole task, with the client's connection in it, polled once more for nothing. While
//! the driver is at work a wake-up means "look again", and only otherwise "run the task". And a task that runs for another
//! reason does not ask a connection to which nothing happened.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Wake, Waker},
};

use parking_lot::Mutex;

/// How often the driver looks again before it lets the task be woken instead, so that others get their turn.
const ROUNDS_MAX: usize = 8;

pub(super) struct LinkWaker {
    state: Arc<State>,
    waker: Waker,
}

struct State {
    driving: AtomicBool,
    /// Something happened since the driver last looked.
    woken: AtomicBool,
    task: Mutex<Option<Waker>>,
}

impl LinkWaker {
    pub(super) fn new() -> Self {
        let state =
            Arc::new(State { driving: AtomicBool::new(false), woken: AtomicBool::new(true), task: Mutex::default() });
        Self { waker: Waker::from(Arc::clone(&state)), state }
    }

    /// Works, if anything happened, until nothing more does. What `work` waits for wakes the task of `outer`.
    pub(super) fn drive(&self, outer: &Context<'_>, mut work: impl FnMut(&mut Context<'_>) -> Work) {
        self.state.remember(outer.waker());
        if !self.state.woken.load(Ordering::SeqCst) {
            return;
        }
        let mut inner = Context::from_waker(&self.waker);
        self.state.driving.store(true, Ordering::SeqCst);
        let mut done = false;
        for _ in 0..ROUNDS_MAX {
            self.state.woken.store(false, Ordering::SeqCst);
            done = work(&mut inner) == Work::Done;
            if done || !self.state.woken.load(Ordering::SeqCst) {
                break;
            }
        }
        self.state.driving.store(false, Ordering::SeqCst);
        if done {
            // Whoever got what it waited for may ask for the next thing, which may be there already.
            self.state.woken.store(true, Ordering::SeqCst);
        } else if self.state.woken.load(Ordering::SeqCst) {
            outer.waker().wake_by_ref();
        }
    }

    /// Gives the driver something to do, just before it is driven anyway.
    pub(super) fn quietly<T>(&self, work: impl FnOnce() -> T) -> T {
        self.state.driving.store(true, Ordering::SeqCst);
        let done = work();
        self.state.driving.store(false, Ordering::SeqCst);
        self.state.woken.store(true, Ordering::SeqCst);
        done
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Work {
    /// There is more when something wakes us.
    Waits,
    /// What was waited for is here.
    Done,
}

impl State {
    fn remember(&self, waker: &Waker) {
        let mut task = self.task.lock();
        if !task.as_ref().is_some_and(|known| known.will_wake(waker)) {
            *task = Some(waker.clone());
        }
    }
}

impl Wake for State {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // Set first and looked at second, in the opposite order to `drive`: one of the two sees it.
        self.woken.store(true, Ordering::SeqCst);
        if !self.driving.load(Ordering::SeqCst)
            && let Some(task) = self.task.lock().as_ref()
        {
            task.wake_by_ref();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[derive(Default)]
    struct Counting(AtomicUsize);

    impl Wake for Counting {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn wake_ups_from_within_are_rounds_and_those_from_without_are_runs() {
        let (runs, link) = (Arc::new(Counting::default()), LinkWaker::new());
        let task = Waker::from(Arc::clone(&runs));
        let outer = Context::from_waker(&task);
        let (mut rounds, mut left) = (0, None);
        let mut drive = |wakes_itself: usize| {
            rounds = 0;
            link.drive(&outer, |cx| {
                rounds += 1;
                left = Some(cx.waker().clone());
                if rounds <= wakes_itself {
                    cx.waker().wake_by_ref();
                }
                Work::Waits
            });
            (rounds, runs.0.load(Ordering::SeqCst))
        };
        assert_eq!(drive(2), (3, 0), "woken twice from within: looked again twice, and the task was left alone");
        assert_eq!(drive(0), (0, 0), "nothing happened: not asked");
        link.waker.wake_by_ref();
        assert_eq!(drive(0), (1, 1), "something happened outside: the task ran, and it was asked");
        link.waker.wake_by_ref();
        assert_eq!(drive(99), (ROUNDS_MAX, 3), "no end in sight: others get their turn");
        assert_eq!(drive(0).0, 1, "and then it goes on");
    }
}
