//! Paced streams: many at once, each chunk on its own, so that a proxy cannot pass several in one go.

use std::cell::Cell;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use super::{Connection, on_this_thread};
use crate::bodies::Requests;

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
pub fn streams(to: SocketAddr, count: usize, requests: &Requests, spread: Duration) -> io::Result<Streamed> {
    on_this_thread(async {
        let seen = Rc::new(Cell::new(Streamed::default()));
        let started = Instant::now();
        let tasks = (0..count).map(|number| {
            let (requests, seen) = (requests.clone(), Rc::clone(&seen));
            let begin = tokio::time::Instant::now() + spread.mul_f64(number as f64 / count as f64);
            tokio::task::spawn_local(async move {
                tokio::time::sleep_until(begin).await;
                let (events, complete) = one_stream(to, &requests, number).await;
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

async fn one_stream(to: SocketAddr, requests: &Requests, number: usize) -> (u64, bool) {
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
