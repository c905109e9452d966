//! Closed loop: each connection sends its next request when it has its answer.
//!
//! Right for CPU per request, which does not depend on the rate. Its latencies only say how long a full machine takes.

use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use super::{Connection, Outcome, on_this_thread};
use crate::bodies::Requests;

/// A broken connection is opened again; more than this in one load means that nobody answers.
const FAILURES_MAX: u64 = 1_000;

/// `connections` clients, back to back, for `time`.
pub fn closed(to: SocketAddr, connections: usize, requests: &Requests, time: Duration) -> io::Result<Outcome> {
    on_this_thread(async {
        let outcome = Rc::new(RefCell::new(Outcome::default()));
        let started = Instant::now();
        let clients = (0..connections).map(|client| {
            // Clients start at different requests, so that they do not march in step.
            let (first, requests, outcome) = (client * 7, requests.clone(), Rc::clone(&outcome));
            tokio::task::spawn_local(async move { one_client(to, first, &requests, started + time, &outcome).await })
        });
        for client in clients.collect::<Vec<_>>() {
            client.await.map_err(io::Error::other)??;
        }
        let mut outcome = outcome.take();
        outcome.elapsed_s = started.elapsed().as_secs_f64();
        Ok(outcome)
    })?
}

async fn one_client(
    to: SocketAddr,
    first: usize,
    requests: &Requests,
    until: Instant,
    outcome: &RefCell<Outcome>,
) -> io::Result<()> {
    let mut connection = Connection::open(to).await?;
    for number in first.. {
        let sent = Instant::now();
        if sent >= until {
            break;
        }
        let result = connection.exchange(requests.get(number), &mut |_| {}).await;
        let broken = result.is_err();
        outcome.borrow_mut().count(&result, sent.elapsed());
        if outcome.borrow().failed > FAILURES_MAX {
            return Err(io::Error::other(format!("{FAILURES_MAX} requests failed, the last with {result:?}")));
        }
        if broken || !connection.is_open() {
            connection = Connection::open(to).await?;
        }
    }
    Ok(())
}
