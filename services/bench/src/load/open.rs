//! Open loop: requests come at a rate, whether or not the last one was answered.
//!
//! Right for latency: a slow answer delays nobody else's request, and one that has to wait for a connection is timed
//! from when it came. Arrivals are a Poisson process from a seed, kept by a thread of its own, since the runtime's
//! timer is no finer than a millisecond.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;

use super::{Connection, Outcome, Target, on_this_thread};
use crate::bodies::Requests;

/// Requests under way at once, room for a pause of some tenths of a second; beyond it the rate is more than the subject
/// can serve, and they count as failed.
const UNDER_WAY_MAX: usize = 2_048;
/// Arrivals that the generator has not taken yet.
const BACKLOG_MAX: usize = 8_192;

/// How often requests come.
#[derive(Clone, Copy, Debug)]
pub struct Rate {
    pub per_second: f64,
    pub seed: u64,
}

struct State {
    idle: Vec<Connection>,
    under_way: usize,
    outcome: Outcome,
}

/// Requests at `rate` for `time`; waits for the last answers.
pub fn open(to: &Target, requests: &Requests, rate: Rate, time: Duration) -> io::Result<Outcome> {
    let (send, mut arrivals) = mpsc::channel(BACKLOG_MAX);
    let pacer = std::thread::Builder::new().name("pacer".to_owned()).spawn(move || pace(rate, time, &send))?;
    let mut outcome = on_this_thread(async {
        let state = Rc::new(RefCell::new(State { idle: Vec::new(), under_way: 0, outcome: Outcome::default() }));
        let started = Instant::now();
        let mut number = 0;
        let mut tasks = tokio::task::JoinSet::new();
        while let Some(due) = arrivals.recv().await {
            number += 1;
            while tasks.try_join_next().is_some() {}
            if state.borrow().under_way >= UNDER_WAY_MAX {
                state.borrow_mut().outcome.failed += 1;
                continue;
            }
            let (to, requests, state) = (to.clone(), requests.clone(), Rc::clone(&state));
            tasks.spawn_local(async move { one_request(&to, requests.get(number), due, &state).await });
        }
        while tasks.join_next().await.is_some() {}
        let mut outcome = std::mem::take(&mut state.borrow_mut().outcome);
        outcome.elapsed_s = started.elapsed().as_secs_f64();
        outcome
    })?;
    outcome.failed += pacer.join().map_err(|_| io::Error::other("the pacer panicked"))?;
    Ok(outcome)
}

async fn one_request(to: &Target, request: &bytes::Bytes, due: Instant, state: &RefCell<State>) {
    state.borrow_mut().under_way += 1;
    let idle = state.borrow_mut().idle.pop();
    let connection = match idle {
        Some(connection) => Ok(connection),
        None => Connection::open(to).await,
    };
    let (result, kept) = match connection {
        Ok(mut connection) => (connection.exchange(request, &mut |_| {}).await, Some(connection)),
        Err(error) => (Err(error), None),
    };
    let mut state = state.borrow_mut();
    state.under_way -= 1;
    state.outcome.count(&result, due.elapsed());
    state.idle.extend(kept.filter(|connection| result.is_ok() && connection.is_open()));
}

/// Sends the moment of each arrival; returns how many the generator was too slow to take.
fn pace(rate: Rate, time: Duration, arrivals: &mpsc::Sender<Instant>) -> u64 {
    let mut rng = fastrand::Rng::with_seed(rate.seed);
    let started = Instant::now();
    let (mut due, mut missed) = (Duration::ZERO, 0);
    loop {
        due += gap(&mut rng, rate.per_second);
        if due >= time {
            return missed;
        }
        if let Some(wait) = due.checked_sub(started.elapsed()) {
            std::thread::sleep(wait);
        }
        // Timed from the release, not from the plan: how late the kernel wakes this thread is not the subject's doing.
        if arrivals.try_send(Instant::now()).is_err() {
            missed += 1;
        }
    }
}

/// Exponential, as between independent clients.
fn gap(rng: &mut fastrand::Rng, per_second: f64) -> Duration {
    Duration::from_secs_f64(-(1.0 - rng.f64()).ln() / per_second)
}
