//! Paced streams: many at once, each chunk on its own, so that a proxy cannot pass several in one go.

use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::{Connection, Target, on_this_thread};
use crate::bodies::Requests;

/// For all streams to begin.
const OPEN_WITHIN: Duration = Duration::from_secs(30);

/// What the streams brought.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Streamed {
    /// Streams that ended as they should.
    pub completed: u64,
    pub failed: u64,
    /// Events seen in all streams.
    pub events: u64,
    pub elapsed_s: f64,
}

/// Opens `count` streams, spread over `spread`, and reads each to its end.
pub fn streams(to: &Target, count: usize, requests: &Requests, spread: Duration) -> io::Result<Streamed> {
    on_this_thread(async {
        let seen = Rc::new(Cell::new(Streamed::default()));
        let started = Instant::now();
        let tasks = (0..count).map(|number| {
            let (to, requests, seen) = (to.clone(), requests.clone(), Rc::clone(&seen));
            let begin = tokio::time::Instant::now() + spread.mul_f64(number as f64 / count as f64);
            tokio::task::spawn_local(async move {
                tokio::time::sleep_until(begin).await;
                let (events, complete) = one_stream(&to, &requests, number).await;
                let mut sum = seen.get();
                sum.events += events;
                sum.completed += u64::from(complete);
                sum.failed += u64::from(!complete);
                seen.set(sum);
            })
        });
        for task in tasks.collect::<Vec<_>>() {
            task.await.map_err(io::Error::other)?;
        }
        Ok(Streamed { elapsed_s: started.elapsed().as_secs_f64(), ..seen.get() })
    })?
}

/// Opens `count` streams, waits until each has brought its first event, and calls `then` while all are open. They are
/// cut afterwards. Fails when one ends or `OPEN_WITHIN` is over before.
pub fn while_streams_are_open<T>(
    to: &Target,
    count: usize,
    requests: &Requests,
    then: impl FnOnce() -> T,
) -> io::Result<T> {
    on_this_thread(async {
        let (begun, mut begins) = mpsc::unbounded_channel();
        let mut tasks = JoinSet::new();
        for number in 0..count {
            let (to, requests, begun) = (to.clone(), requests.clone(), begun.clone());
            tasks.spawn_local(async move {
                let mut first = Some(begun);
                let mut seen = |piece: &[u8]| {
                    if memchr::memmem::find(piece, b"data:").is_some() {
                        // Whoever counts may have given up.
                        let _ = first.take().map(|first| first.send(()));
                    }
                };
                Connection::open(&to).await?.exchange(requests.get(number), &mut seen).await
            });
        }
        let all = async {
            for _ in 0..count {
                tokio::select! {
                    _ = begins.recv() => {}
                    Some(ended) = tasks.join_next() => {
                        return Err(io::Error::other(format!("a stream ended while others began: {ended:?}")));
                    }
                }
            }
            Ok(())
        };
        tokio::time::timeout(OPEN_WITHIN, all).await.map_err(io::Error::from)??;
        Ok(then())
    })?
}

async fn one_stream(to: &Target, requests: &Requests, number: usize) -> (u64, bool) {
    let mut events = Events::default();
    let Ok(mut connection) = Connection::open(to).await else { return (0, false) };
    let result = connection.exchange(requests.get(number), &mut |piece| events.read(piece)).await;
    let complete = matches!(result, Ok(200)) && events.tail.ends_with(b"data: [DONE]\n\n");
    (events.count, complete)
}

/// Counts events across pieces, wherever the transport cut them.
#[derive(Debug, Default)]
struct Events {
    count: u64,
    tail: Vec<u8>,
}

impl Events {
    /// As long as the marker of a stream's end.
    const TAIL_BYTES: usize = 14;

    fn read(&mut self, piece: &[u8]) {
        // Events end with an empty line; never do three line ends follow each other.
        let cut = self.tail.last() == Some(&b'\n') && piece.first() == Some(&b'\n');
        self.count += u64::from(cut) + memchr::memmem::find_iter(piece, b"\n\n").count() as u64;
        self.tail.extend_from_slice(&piece[piece.len().saturating_sub(Self::TAIL_BYTES)..]);
        self.tail.drain(..self.tail.len().saturating_sub(Self::TAIL_BYTES));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_counted_however_they_are_cut() {
        let text = b"data: {}\n\ndata: {\"a\":1}\n\ndata: [DONE]\n\n";
        for size in 1..text.len() {
            let mut events = Events::default();
            text.chunks(size).for_each(|piece| events.read(piece));
            assert_eq!(events.count, 3, "in pieces of {size}");
            assert!(events.tail.ends_with(b"data: [DONE]\n\n"));
        }
    }
}
