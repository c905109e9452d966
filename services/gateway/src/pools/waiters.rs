//! Requests that wait in a pool's queue, and running ones that may have to give way to them.
//!
//! The queue itself is the dispatcher's. Here is who is to be told: each waiting request holds one end of a channel and
//! keeps its own time, on its own core; whoever changes the pool hands out what room that made. What is handed out is sent
//! after the lock is given back, since who was to get it may have left, and then the place comes straight back.

use std::{
    collections::HashMap,
    pin::{Pin, pin},
    sync::Arc,
    task::{Poll, ready},
};

use dispatch::{Band, Decision, FlightId, Freed, More, Permit, Refusal, Ticket};
use parking_lot::MutexGuard;
use pool::Moment;
use tokio::{sync::oneshot, time::sleep};

use super::{Asked, Guarded, Lease, PoolHandle};

/// Whom to tell, under the pool's lock.
#[derive(Default)]
pub(super) struct Waiters {
    waiting: HashMap<Ticket, Waiter>,
    evictable: HashMap<FlightId, oneshot::Sender<()>>,
    phase: Phase,
}

struct Waiter {
    band: Band,
    fate: oneshot::Sender<Fate>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    #[default]
    Open,
    /// The process shuts down: nobody may wait any more.
    Closed,
}

/// What became of a request that waited.
pub enum Fate {
    /// It has a place since this moment, chosen like this.
    Placed(Lease, Moment, Box<Decision>),
    /// It is refused.
    Refused(Refused),
}

/// Why a request has no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The pool says so, and after how many seconds to come back.
    ByPool(Refusal, u32),
    /// Nobody may wait any more: the process shuts down.
    Draining,
}

/// A request's wait. Dropping it takes the request out of the queue.
pub struct Wait {
    pool: Arc<PoolHandle>,
    /// Nothing once it is over.
    ticket: Option<Ticket>,
    band: Band,
    /// When it began.
    pub since: Moment,
    /// When it is over at the latest.
    pub expires_at: Moment,
    fate: oneshot::Receiver<Fate>,
}

/// Whether a request in flight may be ended for one of a higher band, and the word that it is.
#[derive(Debug)]
pub struct Eviction(Option<oneshot::Receiver<()>>);

/// The request was ended for one of a higher band.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Evicted;

/// What is to be told once the lock is given back.
pub(super) struct Told {
    fates: Vec<(oneshot::Sender<Fate>, Fate)>,
    evicted: Vec<oneshot::Sender<()>>,
}

impl Wait {
    /// Waits for what becomes of it.
    pub async fn over(mut self) -> Fate {
        let left = self.expires_at.since(self.pool.clock.now());
        let told = tokio::select! {
            // Who has a place as its time ends has a place.
            biased;
            fate = &mut self.fate => Some(fate.expect(FATE)),
            () = sleep(left) => None,
        };
        let ticket = self.ticket.take().expect("a wait is over once");
        match told {
            Some(fate) => fate,
            None => match self.pool.expire(ticket, self.band) {
                Some(refused) => Fate::Refused(refused),
                // Somebody else was quicker.
                None => (&mut self.fate).await.expect(FATE),
            },
        }
    }
}

const FATE: &str = "whoever takes a request out of the queue tells it what becomes of it";

impl Drop for Wait {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            self.pool.withdraw(ticket);
        }
        self.pool.queue.waited(self.band, self.pool.clock.now().since(self.since));
    }
}

impl Eviction {
    /// Whether the word may come.
    pub fn is_possible(&self) -> bool {
        self.0.is_some()
    }

    /// Does `work`, unless the word comes before its end.
    ///
    /// # Errors
    /// When it came.
    pub async fn unless<T>(&mut self, work: impl Future<Output = T>) -> Result<T, Evicted> {
        let mut work = pin!(work);
        std::future::poll_fn(|cx| {
            // What was answered meanwhile is not taken away.
            if let Poll::Ready(done) = work.as_mut().poll(cx) {
                return Poll::Ready(Ok(done));
            }
            let Some(word) = &mut self.0 else { return Poll::Pending };
            let said = ready!(Pin::new(word).poll(cx));
            self.0 = None;
            if said.is_ok() { Poll::Ready(Err(Evicted)) } else { Poll::Pending }
        })
        .await
    }
}

impl Waiters {
    /// A request in flight is over, or is to be left alone.
    pub(super) fn forget(&mut self, flight: FlightId) {
        self.evictable.remove(&flight);
    }
}

impl Guarded {
    /// Watches over a request in flight that may have to give way.
    pub(super) fn watch(&mut self, permit: &Permit, band: Band) -> Eviction {
        match (band, self.dispatch.eviction()) {
            (Band::Sheddable, dispatch::Eviction::BeforeFirstByte) => {
                let (tell, word) = oneshot::channel();
                self.waiters.evictable.insert(permit.id(), tell);
                Eviction(Some(word))
            }
            (Band::Critical | Band::Standard, _) | (_, dispatch::Eviction::Never) => Eviction(None),
        }
    }

    pub(super) fn refused(&self, refusal: Refusal, band: Band, now: Moment) -> Refused {
        Refused::ByPool(refusal, self.dispatch.retry_after_s(band, fastrand::u64(..), now))
    }
}

impl PoolHandle {
    pub(super) fn let_wait(
        self: &Arc<Self>,
        state: &mut Guarded,
        waiting: dispatch::Waiting,
        band: Band,
        now: Moment,
    ) -> Asked {
        if state.waiters.phase == Phase::Closed {
            state.dispatch.withdraw(waiting.ticket);
            return Asked::Refused(Refused::Draining);
        }
        let (tell, fate) = oneshot::channel();
        state.waiters.waiting.insert(waiting.ticket, Waiter { band, fate: tell });
        let pool = Arc::clone(self);
        let dispatch::Waiting { ticket, expires_at } = waiting;
        Asked::Waits(Wait { pool, ticket: Some(ticket), band, since: now, expires_at, fate })
    }

    /// Gives what room there is to those who wait, and tells them. A few at a time, so that others have the lock between.
    pub(super) fn hand_out<'a>(self: &'a Arc<Self>, mut state: MutexGuard<'a, Guarded>, mut now: Moment) {
        let mut freed = Vec::new();
        loop {
            let more = state.dispatch.release(now, &mut freed);
            let told = self.sort_out(&mut state, &mut freed, now);
            drop(state);
            let came_back = self.tell_waiters(told);
            if more == More::No && !came_back {
                return;
            }
            state = self.state.lock();
            now = self.clock.now();
        }
    }

    /// Finds out whom to tell what.
    pub(super) fn sort_out(self: &Arc<Self>, state: &mut Guarded, freed: &mut Vec<Freed>, now: Moment) -> Told {
        let mut told = Told { fates: Vec::new(), evicted: Vec::new() };
        for freed in freed.drain(..) {
            match freed {
                Freed::Placed { ticket, dispatched, decision } => {
                    let waiter = state.waiter(ticket);
                    let lease = self.lease(state, dispatched, waiter.band);
                    told.fates.push((waiter.fate, Fate::Placed(lease, now, decision)));
                }
                Freed::Refused { ticket, refusal } => {
                    let waiter = state.waiter(ticket);
                    let refused = state.refused(refusal, waiter.band, now);
                    told.fates.push((waiter.fate, Fate::Refused(refused)));
                }
                Freed::Evict { flight } => match state.waiters.evictable.remove(&flight) {
                    Some(tell) => told.evicted.push(tell),
                    // It was sent before evictions were turned on.
                    None => state.dispatch.forgo(flight),
                },
            }
        }
        told
    }

    /// True if a place came back, since the request that it was for has left: then it is there for others.
    pub(super) fn tell_waiters(self: &Arc<Self>, told: Told) -> bool {
        for tell in told.evicted {
            // Who was answered or has ended meanwhile does not listen.
            let _ = tell.send(());
        }
        let mut came_back = Vec::new();
        for (tell, fate) in told.fates {
            if let Err(Fate::Placed(mut lease, ..)) = tell.send(fate) {
                came_back.extend(lease.permit.take());
            }
        }
        let some = !came_back.is_empty();
        if some {
            // Not by dropping the lease: that hands out the place from in here, and so on as deep as requests wait.
            let mut state = self.state.lock();
            let now = self.clock.now();
            for permit in came_back {
                state.waiters.forget(permit.id());
                state.dispatch.complete(permit, now);
            }
        }
        some
    }

    /// Refuses everybody who waits, and whoever would have to wait from now on.
    pub(super) fn close(&self) {
        let mut state = self.state.lock();
        state.waiters.phase = Phase::Closed;
        let waiting = std::mem::take(&mut state.waiters.waiting);
        for ticket in waiting.keys() {
            state.dispatch.withdraw(*ticket);
        }
        drop(state);
        for waiter in waiting.into_values() {
            // Who has left needs no word.
            let _ = waiter.fate.send(Fate::Refused(Refused::Draining));
        }
    }

    fn expire(self: &Arc<Self>, ticket: Ticket, band: Band) -> Option<Refused> {
        self.change(|state, now| {
            let refusal = state.dispatch.expire(ticket, now)?;
            state.waiters.waiting.remove(&ticket);
            Some(state.refused(refusal, band, now))
        })
    }

    fn withdraw(self: &Arc<Self>, ticket: Ticket) {
        self.change(|state, _| {
            // Else a word is on its way, and what comes with it goes back by itself.
            if state.waiters.waiting.remove(&ticket).is_some() {
                state.dispatch.withdraw(ticket);
            }
        });
    }
}

impl Guarded {
    fn waiter(&mut self, ticket: Ticket) -> Waiter {
        self.waiters.waiting.remove(&ticket).expect("whoever is in the queue is known")
    }
}

impl Lease {
    /// A byte of the answer is about to go to the client: from now on the request is not ended for others.
    pub fn keep(&mut self) {
        self.eviction = Eviction(None);
        let permit = self.permit.as_ref().expect("a lease holds its permit until it is dropped");
        self.pool.change(|state, _| {
            state.waiters.forget(permit.id());
            state.dispatch.keep(permit);
        });
    }
}
