//! The waker a connection is driven with, which knows whether its driver is at work.
//!
//! hyper's two ends of a connection wake each other at every step. Here both are polled by one task, one after the other, so
//! such a wake-up would only have that whole task, with the client's connection in it, polled once more for nothing. While
//! the driver is at work a wake-up means "look again", and only otherwise "run the task".

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

#[derive(Default)]
struct State {
    driving: AtomicBool,
    again: AtomicBool,
    task: Mutex<Option<Waker>>,
}

impl LinkWaker {
    pub(super) fn new() -> Self {
        let state = Arc::new(State::default());
        Self { waker: Waker::from(Arc::clone(&state)), state }
    }

    /// Works until nothing more has woken it. What `work` registers for keeps waking the task of `outer` afterwards.
    pub(super) fn drive(&self, outer: &Context<'_>, mut work: impl FnMut(&mut Context<'_>) -> Work) {
        self.state.remember(outer.waker());
        let mut inner = Context::from_waker(&self.waker);
        self.state.driving.store(true, Ordering::SeqCst);
        let mut done = false;
        for _ in 0..ROUNDS_MAX {
            self.state.again.store(false, Ordering::SeqCst);
            done = work(&mut inner) == Work::Done;
            if done || !self.state.again.load(Ordering::SeqCst) {
                break;
            }
        }
        self.state.driving.store(false, Ordering::SeqCst);
        // Whoever got what it waited for will ask again when it wants more.
        if self.state.again.swap(false, Ordering::SeqCst) && !done {
            outer.waker().wake_by_ref();
        }
    }

    /// Does something that wakes the driver, just before it is driven anyway.
    pub(super) fn quietly<T>(&self, work: impl FnOnce() -> T) -> T {
        self.state.driving.store(true, Ordering::SeqCst);
        let done = work();
        self.state.driving.store(false, Ordering::SeqCst);
        done
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Work {
    /// There may be more when something wakes us.
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
        self.again.store(true, Ordering::SeqCst);
        if !self.driving.load(Ordering::SeqCst)
            && let Some(task) = self.task.lock().as_ref()
        {
            task.wake_by_ref();
        }
    }
}
