//! A model server whose metrics page is what a test says, now, and which works as fast and as much at a time as told.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use crate::{
    http::{Answer, post},
    peer::{Exchange, Next, Peer},
};

/// Longest time that a closed gate or a hanging page holds a connection.
const HELD_MAX: Duration = Duration::from_secs(60);

/// What is to be seen at `/metrics`.
#[derive(Clone, Debug)]
pub enum MetricsPage {
    /// This text, as an exposition.
    Text(String),
    /// An answer, byte for byte; the connection is closed after it.
    Raw(Vec<u8>),
    /// Nothing, while the connection stays open.
    Hang,
    /// What vLLM would say with so many places in its batch.
    Live {
        /// Places.
        batch: usize,
    },
}

impl MetricsPage {
    /// A vLLM page with these numbers.
    pub fn vllm(waiting: u32, running: u32, kv_cache: f64) -> Self {
        Self::Text(vllm(waiting as usize, running as usize, kv_cache))
    }

    /// An answer with this status and no page.
    pub fn status(status: &str) -> Self {
        Self::Raw(format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n").into_bytes())
    }
}

fn vllm(waiting: usize, running: usize, kv_cache: f64) -> String {
    format!(
        "# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running{{engine=\"0\",model_name=\"m1\"}} {running}.0\n\
         # TYPE vllm:num_requests_waiting gauge\nvllm:num_requests_waiting{{engine=\"0\",model_name=\"m1\"}} {waiting}.0\n\
         # TYPE vllm:kv_cache_usage_perc gauge\nvllm:kv_cache_usage_perc{{engine=\"0\",model_name=\"m1\"}} {kv_cache}\n"
    )
}

/// A running model server.
pub struct ModelServer {
    /// Its connections and what it saw.
    pub peer: Peer,
    shared: Arc<Shared>,
}

struct Shared {
    page: Mutex<MetricsPage>,
    looks: AtomicUsize,
    work_for: Mutex<Duration>,
    gate: Mutex<Gate>,
    changed: Condvar,
}

/// Who is at work.
#[derive(Default)]
struct Gate {
    closed: bool,
    inside: usize,
    inside_most: usize,
    working: usize,
}

impl ModelServer {
    /// One that shows `page` and answers at once.
    pub fn start(page: MetricsPage) -> Self {
        Self::start_at(IpAddr::V4(Ipv4Addr::LOCALHOST), page)
    }

    /// [`ModelServer::start`] on another address of this machine.
    pub fn start_at(ip: IpAddr, page: MetricsPage) -> Self {
        let shared = Arc::new(Shared {
            page: Mutex::new(page),
            looks: AtomicUsize::new(0),
            work_for: Mutex::default(),
            gate: Mutex::default(),
            changed: Condvar::new(),
        });
        let peer = Peer::start_at(ip, {
            let shared = Arc::clone(&shared);
            move |exchange| shared.serve(exchange)
        });
        Self { peer, shared }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.peer.address
    }

    /// Shows another page from the next look on.
    pub fn show(&self, page: MetricsPage) {
        *self.shared.page.lock().expect("pages are not made under the lock") = page;
    }

    /// How often its page was asked for.
    pub fn looks(&self) -> usize {
        self.shared.looks.load(Ordering::Acquire)
    }

    /// Requests so far.
    pub fn served(&self) -> usize {
        self.peer.seen().len()
    }

    /// How long each request takes from now on.
    pub fn work_for(&self, time: Duration) {
        *self.shared.work_for.lock().expect("nothing panics under the lock") = time;
    }

    /// From now on no request is answered until [`ModelServer::open`].
    pub fn close(&self) {
        self.shared.gate.lock().expect("nothing panics under the lock").closed = true;
    }

    /// Answers those that wait, and all others at once.
    pub fn open(&self) {
        self.shared.gate.lock().expect("nothing panics under the lock").closed = false;
        self.shared.changed.notify_all();
    }

    /// Requests here and not answered.
    pub fn inside(&self) -> usize {
        self.shared.gate.lock().expect("nothing panics under the lock").inside
    }

    /// The most requests that were here at a time.
    pub fn inside_most(&self) -> usize {
        self.shared.gate.lock().expect("nothing panics under the lock").inside_most
    }
}

impl Shared {
    fn serve(&self, exchange: &mut Exchange) -> Next {
        if exchange.request.line.starts_with("GET /metrics") {
            return self.show(exchange);
        }
        if exchange.request.line.starts_with("GET") {
            return exchange.answer_plainly();
        }
        self.work();
        exchange.answer_plainly()
    }

    fn show(&self, exchange: &mut Exchange) -> Next {
        self.looks.fetch_add(1, Ordering::AcqRel);
        let page = self.page.lock().expect("pages are not made under the lock").clone();
        let text = match page {
            MetricsPage::Text(text) => text,
            MetricsPage::Live { batch } => {
                let inside = self.gate.lock().expect("nothing panics under the lock").inside;
                let running = inside.min(batch);
                vllm(inside - running, running, running as f64 / batch as f64 * 0.5)
            }
            MetricsPage::Raw(bytes) => {
                exchange.send(bytes);
                return Next::Close;
            }
            MetricsPage::Hang => {
                exchange.wait_for_close(HELD_MAX);
                return Next::Close;
            }
        };
        exchange.answer("200 OK", &[("content-type", "text/plain; version=0.0.4; charset=utf-8")], text)
    }

    /// Takes a place in the batch, works, and leaves.
    fn work(&self) {
        let batch = match *self.page.lock().expect("pages are not made under the lock") {
            MetricsPage::Live { batch } => batch,
            MetricsPage::Text(_) | MetricsPage::Raw(_) | MetricsPage::Hang => usize::MAX,
        };
        let time = *self.work_for.lock().expect("nothing panics under the lock");
        let mut gate = self.gate.lock().expect("nothing panics under the lock");
        gate.inside += 1;
        gate.inside_most = gate.inside_most.max(gate.inside);
        let wait = |gate: &mut Gate| gate.closed || gate.working >= batch;
        let (mut gate, _) =
            self.changed.wait_timeout_while(gate, HELD_MAX, wait).expect("nothing panics under the lock");
        gate.working += 1;
        drop(gate);
        if !time.is_zero() {
            // The work itself, as long as the test says that it takes.
            thread::sleep(time);
        }
        let mut gate = self.gate.lock().expect("nothing panics under the lock");
        gate.working -= 1;
        gate.inside -= 1;
        drop(gate);
        self.changed.notify_all();
    }
}

/// A chat request of one message.
pub fn chat_body(model: &str, text: &str) -> String {
    serde_json::json!({"model": model, "messages": [{"role": "user", "content": text}]}).to_string()
}

/// Posts these chats, so many at a time, each on a connection of its own; the answers are in order of the bodies.
pub fn chats(to: SocketAddr, bodies: &[String], at_a_time: usize) -> Vec<Answer> {
    let next = AtomicUsize::new(0);
    let answers: Mutex<Vec<Option<Answer>>> = Mutex::new(vec![None; bodies.len()]);
    thread::scope(|scope| {
        for _ in 0..at_a_time.min(bodies.len()) {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::AcqRel);
                    let Some(body) = bodies.get(index) else { return };
                    let answer = post(to, "/v1/chat/completions", body);
                    answers.lock().expect("nothing panics under the lock")[index] = Some(answer);
                }
            });
        }
    });
    let answers = answers.into_inner().expect("nothing panics under the lock");
    answers.into_iter().map(|answer| answer.expect("each body was posted")).collect()
}
