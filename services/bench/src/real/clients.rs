//! Clients in real time: each call is sent when it is due, whatever became of those before, and its answer is watched
//! token by token.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use memchr::memmem;
use pool::Moment;
use tokio::task::JoinSet;

use super::prompt::{self, Ends};
use crate::bodies::{MODEL, PATH};
use crate::load::{Connection, Target, on_this_thread};
use crate::world::Tally;
use crate::world::call::Call;
use crate::world::ledger::{Ledger, Outcome, Record};

/// Longest wait for an answer after the last call came, of the engines' time.
const PATIENCE: Duration = Duration::from_secs(120);
/// Calls under way at once; more means that nobody answers.
const UNDER_WAY_MAX: usize = 8_192;

/// Where requests go, and what they must say to be let in.
#[derive(Clone, Debug)]
pub struct Door {
    /// Taken in turn.
    pub targets: Vec<Target>,
    /// For the `host` header.
    pub host: String,
    /// Before `/v1`.
    pub base_path: String,
    pub model: String,
    /// The whole value of `authorization`.
    pub authorization: Option<String>,
    pub ends: Ends,
}

/// Calls to be sent once more.
#[derive(Clone, Copy, Debug)]
pub struct Replay<'a> {
    pub calls: &'a [Call],
    /// Another one makes texts that no cache knows from an earlier replay.
    pub salt: u64,
    /// Real seconds for each second of the calls.
    pub time_scale: f64,
}

/// What all clients share.
struct Shared {
    targets: Vec<Target>,
    idle: RefCell<Vec<Vec<Connection>>>,
    between_tokens_ms: RefCell<Tally>,
    time_scale: f64,
    started: Instant,
}

/// What a client saw of one answer.
#[derive(Default)]
struct Seen {
    first: Option<Instant>,
    last: Option<Instant>,
    /// Chunks with text.
    chunks: u32,
    /// Of the answer, as its usage says: an engine that is late puts several into one chunk.
    tokens: Option<u32>,
    done: bool,
}

impl Door {
    /// Programs on this machine that serve the bench's model.
    pub fn local(targets: Vec<Target>) -> Self {
        Self {
            targets,
            host: "bench".to_owned(),
            base_path: String::new(),
            model: MODEL.to_owned(),
            authorization: None,
            ends: Ends::Asked,
        }
    }

    fn request(&self, call: &Call, number: usize, salt: u64) -> Bytes {
        let body = prompt::body(call, number, &self.model, salt, self.ends);
        let key = self.authorization.as_ref().map_or_else(String::new, |key| format!("authorization: {key}\r\n"));
        Bytes::from(format!(
            "POST {}{PATH} HTTP/1.1\r\nhost: {}\r\nuser-agent: igw-bench\r\naccept: text/event-stream\r\n{key}content-type: \
             application/json\r\ncontent-length: {}\r\n\r\n{body}",
            self.base_path,
            self.host,
            body.len()
        ))
    }
}

impl Replay<'_> {
    /// Sends every call; returns when all have ended or patience has.
    pub fn through(&self, door: &Door) -> io::Result<Ledger> {
        on_this_thread(self.run(door))?
    }

    async fn run(&self, door: &Door) -> io::Result<Ledger> {
        let shared = Rc::new(Shared {
            targets: door.targets.clone(),
            idle: RefCell::new(door.targets.iter().map(|_| Vec::new()).collect()),
            between_tokens_ms: RefCell::default(),
            time_scale: self.time_scale,
            started: Instant::now(),
        });
        let mut records: Vec<Record> = self.calls.iter().map(Record::of).collect();
        let mut under_way = JoinSet::new();
        for (number, call) in self.calls.iter().enumerate() {
            let request = door.request(call, number, self.salt);
            let due = shared.started + call.at.since_origin().mul_f64(self.time_scale);
            tokio::time::sleep_until(due.into()).await;
            while let Some(Ok((number, record))) = under_way.try_join_next() {
                records[number] = record;
            }
            if under_way.len() >= UNDER_WAY_MAX {
                return Err(io::Error::other(format!("{UNDER_WAY_MAX} requests are under way: nobody answers")));
            }
            let (shared, record) = (Rc::clone(&shared), records[number].clone());
            under_way.spawn_local(async move { (number, shared.ask(number, request, record).await) });
        }
        let rest = async {
            while let Some(ended) = under_way.join_next().await {
                let (number, record) = ended.map_err(io::Error::other)?;
                records[number] = record;
            }
            Ok::<_, io::Error>(())
        };
        // Who is without an end then is counted as such.
        tokio::time::timeout(PATIENCE.mul_f64(self.time_scale), rest).await.unwrap_or(Ok(()))?;
        let between_tokens_ms = shared.between_tokens_ms.take();
        Ok(Ledger { requests: records, between_tokens_ms, ..Ledger::default() })
    }
}

impl Shared {
    async fn ask(&self, number: usize, request: Bytes, mut record: Record) -> Record {
        let place = number % self.targets.len();
        let mut seen = Seen::default();
        let status = self.exchange(place, &request, &mut seen).await;
        record.first_token = seen.first.map(|at| self.moment(at));
        record.ended = Some(self.moment(Instant::now()));
        record.outcome = Some(match status {
            Ok(200) if seen.done => Outcome::Served,
            Ok(429) => Outcome::Shed,
            Ok(503) => Outcome::NoEndpoint,
            Ok(_) | Err(_) => Outcome::Broke,
        });
        if record.is(Outcome::Served) {
            // An answer's end is its last token, not the usage that follows.
            record.ended = seen.last.map(|at| self.moment(at)).or(record.ended);
            record.output_tokens = seen.tokens.unwrap_or(seen.chunks).max(1);
        }
        record
    }

    /// On a kept connection if there is one. A server may close it at that moment: then once more, on a new one.
    async fn exchange(&self, place: usize, request: &Bytes, seen: &mut Seen) -> io::Result<u16> {
        let idle = self.idle.borrow_mut()[place].pop();
        if let Some(mut connection) = idle {
            let mut bytes = 0;
            let mut look = |piece: &[u8]| {
                bytes += piece.len();
                self.look(piece, seen);
            };
            match connection.exchange(request, &mut look).await {
                Ok(status) => return Ok(self.keep(place, connection, status)),
                Err(error) if bytes > 0 => return Err(error),
                Err(_) => {}
            }
        }
        let mut connection = Connection::open(&self.targets[place]).await?;
        let status = connection.exchange(request, &mut |piece| self.look(piece, seen)).await?;
        Ok(self.keep(place, connection, status))
    }

    fn keep(&self, place: usize, connection: Connection, status: u16) -> u16 {
        if connection.is_open() {
            self.idle.borrow_mut()[place].push(connection);
        }
        status
    }

    fn look(&self, piece: &[u8], seen: &mut Seen) {
        seen.done |= memmem::find(piece, b"data: [DONE]").is_some();
        seen.tokens = usage(piece).or(seen.tokens);
        let chunks = chunks(piece);
        if chunks == 0 {
            return;
        }
        let now = Instant::now();
        match seen.last {
            None => seen.first = Some(now),
            Some(last) => {
                let gap_ms = now.duration_since(last).as_secs_f64() * 1e3 / self.time_scale / f64::from(chunks);
                (0..chunks).for_each(|_| self.between_tokens_ms.borrow_mut().add(gap_ms));
            }
        }
        seen.last = Some(now);
        seen.chunks += chunks;
    }

    /// On the calls' clock.
    fn moment(&self, at: Instant) -> Moment {
        Moment::ORIGIN + at.duration_since(self.started).div_f64(self.time_scale)
    }
}

/// Output tokens as the last usage in this piece of a stream says, if it holds one.
fn usage(piece: &[u8]) -> Option<u32> {
    const NAME: &[u8] = br#""completion_tokens":"#;
    let from = memmem::rfind(piece, NAME)? + NAME.len();
    let digits = piece[from..].iter().skip_while(|byte| **byte == b' ').take_while(|byte| byte.is_ascii_digit());
    let digits: Vec<u8> = digits.copied().collect();
    std::str::from_utf8(&digits).ok()?.parse().ok()
}

/// Chunks with text in this piece of a stream; engines send one for each token.
fn chunks(piece: &[u8]) -> u32 {
    let count = |what: &[u8]| memmem::find_iter(piece, what).count();
    let all = count(br#""content":""#) + count(br#""content": ""#);
    let empty = count(br#""content":"""#) + count(br#""content": """#);
    (all - empty) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_what_the_usage_says() {
        let piece = br#"data: {"usage":{"prompt_tokens":9,"completion_tokens":41,"total_tokens":50}}"#;
        assert_eq!(usage(piece), Some(41));
        assert_eq!(usage(br#"{"completion_tokens": 7}"#), Some(7));
        assert_eq!(usage(br#"{"usage":null,"completion_tokens":null}"#), None);
    }

    #[test]
    fn only_chunks_with_text_are_counted() {
        let role = br#"data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}"#;
        let word = br#"data: {"choices":[{"index":0,"delta":{"content":" word"}}]}"#;
        assert_eq!((chunks(role), chunks(word)), (0, 1));
        assert_eq!(chunks(&[&word[..], b"\n\n", &word[..]].concat()), 2);
        assert_eq!(chunks(br#"data: {"choices":[{"delta":{"content": "a"}}]}"#), 1);
        assert_eq!(chunks(b"data: [DONE]"), 0);
    }
}
