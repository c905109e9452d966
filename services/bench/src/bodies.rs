//! Chat requests of a given size, the same for every subject and every run of one seed.
//!
//! Half of each prompt is one of a few shared instructions, as in real traffic, so that a gateway that looks at prompts
//! has something to find; the rest differs.

use bytes::Bytes;

/// Served by the static backend, named in every request.
pub const MODEL: &str = "llama-3.1-8b";
/// Where requests go.
pub const PATH: &str = "/v1/chat/completions";
/// Different instructions.
const SHARED: usize = 8;
/// Different requests of one size, sent in turn: fewer when they are large.
const VARIETY: usize = 64;
const VARIETY_LEAST: usize = 16;
/// All requests of one size.
const BYTES_MAX: usize = 64 << 20;
const WORDS: [&str; 24] = [
    "answer", "before", "between", "cache", "customer", "every", "friendly", "gateway", "language", "letter", "model",
    "never", "number", "order", "parcel", "please", "question", "refund", "sentence", "short", "table", "token",
    "voucher", "week",
];

/// Whether the answer is to come as events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Whole,
    Streamed,
}

/// Requests ready to be written to a socket, sent in turn.
#[derive(Clone, Debug)]
pub struct Requests {
    ready: Vec<Request>,
}

#[derive(Clone, Debug)]
struct Request {
    whole: Bytes,
    body_at: usize,
}

impl Requests {
    /// Requests whose bodies have about `body_bytes` bytes.
    pub fn new(body_bytes: usize, kind: Kind, seed: u64) -> Self {
        let mut rng = fastrand::Rng::with_seed(seed);
        let shared: Vec<String> = (0..SHARED).map(|_| prose(&mut rng, body_bytes / 2)).collect();
        let variety = (BYTES_MAX / body_bytes.max(1)).clamp(VARIETY_LEAST, VARIETY);
        let ready = (0..variety).map(|index| {
            let start = body(&shared[index % SHARED], "", kind).len();
            let question = prose(&mut rng, body_bytes.saturating_sub(start));
            request(&body(&shared[index % SHARED], &question, kind))
        });
        Self { ready: ready.collect() }
    }

    /// The `number`th request as HTTP/1.1 carries it; they repeat.
    pub fn get(&self, number: usize) -> &Bytes {
        &self.ready[number % self.ready.len()].whole
    }

    /// Its body alone.
    pub fn body(&self, number: usize) -> Bytes {
        let request = &self.ready[number % self.ready.len()];
        request.whole.slice(request.body_at..)
    }
}

fn body(system: &str, question: &str, kind: Kind) -> String {
    let stream = match kind {
        Kind::Whole => String::new(),
        Kind::Streamed => r#""stream":true,"stream_options":{"include_usage":true},"#.to_owned(),
    };
    format!(
        r#"{{"model":"{MODEL}",{stream}"max_tokens":128,"messages":[{{"role":"system","content":"{system}"}},{{"role":"user","content":"{question}"}}]}}"#
    )
}

fn request(body: &str) -> Request {
    let length = body.len();
    let whole = format!(
        "POST {PATH} HTTP/1.1\r\nhost: bench\r\nuser-agent: igw-bench\r\naccept: application/json\r\n\
         authorization: Bearer none\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
    );
    Request { body_at: whole.len() - length, whole: Bytes::from(whole) }
}

/// Words, and now and then what JSON writes with a backslash.
fn prose(rng: &mut fastrand::Rng, bytes: usize) -> String {
    let mut text = String::with_capacity(bytes + 16);
    while text.len() < bytes {
        text += WORDS[rng.usize(..WORDS.len())];
        text += if rng.u8(..) < 12 { "\\n" } else { " " };
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body_of(request: &Bytes) -> serde_json::Value {
        let text = std::str::from_utf8(request).unwrap();
        serde_json::from_str(text.split_once("\r\n\r\n").unwrap().1).unwrap()
    }

    #[test]
    fn bodies_are_json_of_about_the_asked_size() {
        for size in [1_000, 4_000, 400_000] {
            let requests = Requests::new(size, Kind::Whole, 1);
            let length = requests.get(0).len();
            assert!((size..size + 600).contains(&length), "{length} bytes for {size}");
            assert_eq!(body_of(requests.get(0))["model"], MODEL);
        }
    }

    #[test]
    fn some_share_instructions_and_none_are_equal() {
        let requests = Requests::new(4_000, Kind::Whole, 1);
        let system = |number| body_of(requests.get(number))["messages"][0]["content"].clone();
        assert_eq!(system(0), system(SHARED));
        assert_ne!(system(0), system(1));
        assert_ne!(requests.get(0), requests.get(SHARED));
        assert_eq!(requests.get(0), requests.get(VARIETY));
    }

    #[test]
    fn streams_are_asked_for() {
        let streamed = Requests::new(1_000, Kind::Streamed, 1);
        assert_eq!(body_of(streamed.get(0))["stream"], true);
        let body: serde_json::Value = serde_json::from_slice(&streamed.body(3)).unwrap();
        assert_eq!(body, body_of(streamed.get(3)));
    }

    #[test]
    fn large_requests_are_few() {
        let requests = Requests::new(4_000_000, Kind::Whole, 1);
        assert_eq!(requests.get(0), requests.get(VARIETY_LEAST));
        assert_ne!(requests.get(0), requests.get(VARIETY_LEAST - 1));
    }

    #[test]
    fn a_seed_gives_the_same_requests() {
        assert_eq!(Requests::new(1_000, Kind::Whole, 5).get(3), Requests::new(1_000, Kind::Whole, 5).get(3));
        assert_ne!(Requests::new(1_000, Kind::Whole, 5).get(3), Requests::new(1_000, Kind::Whole, 6).get(3));
    }
}
