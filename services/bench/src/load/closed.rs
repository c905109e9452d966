//! Closed loop: each connection sends its next request when it has its answer.
//!
//! Right for CPU per request, which does not depend on the rate. Its latencies only say how long a full machine takes.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::time::{Duration, Instant};

use super::{Connection, Outcome, Target, on_this_thread};
use crate::bodies::Requests;

/// A broken connection is opened again; more than this in one load means that nobody answers.
const FAILURES_MAX: u64 = 1_000;

/// `connections` clients, back to back, for `time` from when all are connected.
pub fn closed(to: &Target, connections: usize, requests: &Requests, time: Duration) -> io::Result<Outcome> {
    on_this_thread(async {
        let outcome = Rc::new(RefCell::new(Outcome::default()));
        let mut open = Vec::with_capacity(connections);
        for _ in 0..connections {
            open.push(Connection::open(to).await?);
        }
        let started = Instant::now();
        let until = started + time;
        let clients = open.into_iter().enumerate().map(|(client, connection)| {
            // Clients start at different requests, so that they do not march in step.
            let (first, to, requests, outcome) = (client * 7, to.clone(), requests.clone(), Rc::clone(&outcome));
            tokio::task::spawn_local(
                async move { one_client(&to, connection, first, &requests, until, &outcome).await },
            )
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
    to: &Target,
    mut connection: Connection,
    first: usize,
    requests: &Requests,
    until: Instant,
    outcome: &RefCell<Outcome>,
) -> io::Result<()> {
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
