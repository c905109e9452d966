//! Requests that are kept waiting by the backend: what a proxy holds meanwhile is what their bodies cost it.

use std::io;
use std::time::Duration;

use tokio::task::JoinSet;

use super::{Connection, Target, on_this_thread};
use crate::backend::{Answering, Backend};
use crate::bodies::Requests;

/// For all bodies to reach the backend.
const ARRIVE_WITHIN: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(10);

/// Sends `count` requests, waits until the backend has read all their bodies, calls `then`, and lets them be answered.
/// Returns what `then` did, and how many were not answered with 200.
pub fn while_bodies_wait<T>(
    to: &Target,
    count: usize,
    requests: &Requests,
    backend: &Backend,
    then: impl FnOnce() -> T,
) -> io::Result<(T, u64)> {
    backend.answer(Answering::Held);
    let outcome = on_this_thread(async {
        let mut tasks = JoinSet::new();
        for number in 0..count {
            let (to, requests) = (to.clone(), requests.clone());
            tasks.spawn_local(
                async move { Connection::open(&to).await?.exchange(requests.get(number), &mut |_| {}).await },
            );
        }
        let arrived = async {
            while backend.held() < count {
                if let Some(ended) = tasks.try_join_next() {
                    return Err(io::Error::other(format!("a request ended while all were to wait: {ended:?}")));
                }
                tokio::time::sleep(POLL).await;
            }
            Ok(())
        };
        tokio::time::timeout(ARRIVE_WITHIN, arrived).await.map_err(io::Error::from)??;
        let found = then();
        backend.answer(Answering::Whole);
        let mut failed = 0;
        while let Some(ended) = tasks.join_next().await {
            failed += u64::from(!matches!(ended, Ok(Ok(200))));
        }
        Ok((found, failed))
    });
    // Whatever happened: nobody is kept waiting by the next load.
    backend.answer(Answering::Whole);
    outcome?
}
