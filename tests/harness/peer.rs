//! A model server that does exactly what a test says, down to the byte: no framework, so that it can misbehave.

use std::{
    collections::BTreeMap,
    io::{ErrorKind, Read, Write},
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use crate::wait::eventually;

/// Longest wait for a port that is being given up.
const PATIENCE: Duration = Duration::from_secs(10);

/// What a peer does with one request: it may read, write, wait and close as it likes, and says by its result whether the
/// connection goes on.
pub type Script = Arc<dyn Fn(&mut Exchange) -> Next + Send + Sync>;

/// What becomes of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// The next request is awaited on it.
    KeepAlive,
    /// The next request is awaited for so long, then it is closed: a server's own idle limit.
    KeepAliveFor(Duration),
    /// It is closed.
    Close,
    /// It is reset, so that what was sent may be lost.
    Reset,
}

/// One request as a peer saw it.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Method and path.
    pub line: String,
    /// Header lines in order, names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body, chunks joined.
    pub body: Vec<u8>,
    /// Which connection it came on, from 0.
    pub connection: usize,
    /// When its head was there.
    pub at: Instant,
    /// When the gateway was seen to close this connection, if the script waited for it.
    pub closed: Option<Instant>,
}

impl Seen {
    /// The first header of that name.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}

/// A running peer. Dropping it closes its listener and every connection.
pub struct Peer {
    /// Where it listens.
    pub address: SocketAddr,
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

struct Shared {
    seen: Mutex<Vec<Seen>>,
    open: Mutex<BTreeMap<usize, TcpStream>>,
    script: Mutex<Script>,
    stopping: AtomicBool,
    connections: Mutex<usize>,
}

/// A request being answered.
pub struct Exchange {
    /// The request.
    pub request: Seen,
    stream: TcpStream,
    shared: Arc<Shared>,
    index: usize,
}

impl Peer {
    /// Answers every request by `script`.
    pub fn start(script: impl Fn(&mut Exchange) -> Next + Send + Sync + 'static) -> Self {
        Self::start_at(IpAddr::V4(Ipv4Addr::LOCALHOST), script)
    }

    /// [`Peer::start`] on another address of this machine.
    ///
    /// # Panics
    /// When it cannot listen there.
    pub fn start_at(ip: IpAddr, script: impl Fn(&mut Exchange) -> Next + Send + Sync + 'static) -> Self {
        Self::on(TcpListener::bind((ip, 0)).expect("a free port on loopback"), script)
    }

    /// [`Peer::start`] where another peer listened until now, as a server that was restarted.
    ///
    /// # Panics
    /// When the place is not given up in time.
    pub fn start_again_at(address: SocketAddr, script: impl Fn(&mut Exchange) -> Next + Send + Sync + 'static) -> Self {
        Self::on(eventually("a port is free again", PATIENCE, || TcpListener::bind(address).ok()), script)
    }

    fn on(listener: TcpListener, script: impl Fn(&mut Exchange) -> Next + Send + Sync + 'static) -> Self {
        let address = listener.local_addr().expect("a bound socket has an address");
        let shared = Arc::new(Shared {
            seen: Mutex::default(),
            open: Mutex::default(),
            script: Mutex::new(Arc::new(script)),
            stopping: AtomicBool::new(false),
            connections: Mutex::default(),
        });
        let acceptor = thread::spawn({
            let shared = Arc::clone(&shared);
            move || accept(&listener, &shared)
        });
        Self { address, shared, acceptor: Some(acceptor) }
    }

    /// A well-behaved model server: answers each POST with a small chat completion that carries usage, each GET with 404.
    pub fn plain() -> Self {
        Self::start(|exchange| exchange.answer_plainly())
    }

    /// From now on answers by another script.
    pub fn follow(&self, script: impl Fn(&mut Exchange) -> Next + Send + Sync + 'static) {
        *self.shared.script.lock().expect("no script panics while it is replaced") = Arc::new(script);
    }

    /// The requests so far, without looks at health and metrics.
    pub fn seen(&self) -> Vec<Seen> {
        let all = self.shared.seen.lock().expect("recording does not panic");
        all.iter().filter(|seen| !is_look(&seen.line)).cloned().collect()
    }

    /// Forgets the requests so far.
    pub fn forget(&self) {
        self.shared.seen.lock().expect("recording does not panic").clear();
    }
}

/// When a peer is dropped, nobody listens there any more and every connection is closed.
impl Drop for Peer {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::Release);
        // Wakes the acceptor, which then closes the listener.
        let woken = TcpStream::connect(self.address).is_ok();
        if let Some(acceptor) = self.acceptor.take().filter(|_| woken) {
            let _ = acceptor.join();
        }
        for stream in self.shared.open.lock().expect("recording does not panic").values() {
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }
    }
}

/// What the gateway asks for by itself.
fn is_look(line: &str) -> bool {
    ["GET /metrics", "GET /health", "GET /v1/models"].iter().any(|look| line.starts_with(look))
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    for stream in listener.incoming().map_while(Result::ok) {
        if shared.stopping.load(Ordering::Acquire) {
            return;
        }
        let _ = stream.set_nodelay(true);
        let connection = {
            let mut count = shared.connections.lock().expect("counting does not panic");
            *count += 1;
            *count - 1
        };
        if let Ok(copy) = stream.try_clone() {
            shared.open.lock().expect("recording does not panic").insert(connection, copy);
        }
        let shared = Arc::clone(shared);
        thread::spawn(move || {
            serve(stream, connection, &shared);
            shared.open.lock().expect("recording does not panic").remove(&connection);
        });
    }
}

fn serve(mut stream: TcpStream, connection: usize, shared: &Arc<Shared>) {
    let mut read = Vec::new();
    while let Some(request) = read_request(&mut stream, &mut read, connection) {
        let index = {
            let mut seen = shared.seen.lock().expect("recording does not panic");
            seen.push(request.clone());
            seen.len() - 1
        };
        let Ok(copy) = stream.try_clone() else { return };
        let mut exchange = Exchange { request, stream: copy, shared: Arc::clone(shared), index };
        let script = Arc::clone(&shared.script.lock().expect("no script panics while it is replaced"));
        match script(&mut exchange) {
            Next::KeepAlive => {
                let _ = stream.set_read_timeout(None);
            }
            Next::KeepAliveFor(limit) => {
                let _ = stream.set_read_timeout(Some(limit));
            }
            Next::Close => break,
            Next::Reset => {
                reset(&stream);
                return;
            }
        }
    }
    let _ = stream.shutdown(std::net::Shutdown::Both);
}

/// Closes with RST instead of FIN once the last handle is gone: this one and the shared one go as its thread ends.
fn reset(stream: &TcpStream) {
    let socket = socket2::SockRef::from(stream);
    let _ = socket.set_linger(Some(Duration::ZERO));
}

fn read_request(stream: &mut TcpStream, read: &mut Vec<u8>, connection: usize) -> Option<Seen> {
    let end = fill_until(stream, read, b"\r\n\r\n")?;
    let head: Vec<u8> = read.drain(..end).collect();
    let at = Instant::now();
    let text = String::from_utf8_lossy(&head).into_owned();
    let mut lines = text.trim_end().split("\r\n");
    let line = lines.next()?.trim_end_matches(" HTTP/1.1").to_owned();
    let split = |line: &str| {
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        (name.to_ascii_lowercase(), value.trim().to_owned())
    };
    let headers: Vec<_> = lines.map(split).collect();
    let header = |name: &str| headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.clone());
    let mut body = Vec::new();
    if header("transfer-encoding").is_some() {
        loop {
            let end = fill_until(stream, read, b"\r\n")?;
            let line: Vec<u8> = read.drain(..end).collect();
            let size = usize::from_str_radix(String::from_utf8_lossy(&line).trim(), 16).ok()?;
            fill(stream, read, size + 2)?;
            body.extend(read.drain(..size));
            read.drain(..2);
            if size == 0 {
                break;
            }
        }
    } else if let Some(length) = header("content-length").and_then(|length| length.parse().ok()) {
        fill(stream, read, length)?;
        body.extend(read.drain(..length));
    }
    Some(Seen { line, headers, body, connection, at, closed: None })
}

fn fill_until(stream: &mut TcpStream, read: &mut Vec<u8>, end: &[u8]) -> Option<usize> {
    loop {
        if let Some(at) = read.windows(end.len()).position(|window| window == end) {
            return Some(at + end.len());
        }
        fill(stream, read, read.len() + 1)?;
    }
}

fn fill(stream: &mut TcpStream, read: &mut Vec<u8>, length: usize) -> Option<()> {
    let mut buffer = [0; 64 * 1024];
    while read.len() < length {
        match stream.read(&mut buffer) {
            Ok(0) | Err(_) => return None,
            Ok(count) => read.extend_from_slice(&buffer[..count]),
        }
    }
    Some(())
}

impl Exchange {
    /// Sends exact bytes. Errors are the gateway's having closed, which scripts learn by [`Exchange::wait_for_close`].
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        let _ = self.stream.write_all(bytes.as_ref());
    }

    /// Sends an answer with a length.
    pub fn answer(&mut self, status: &str, headers: &[(&str, &str)], body: impl AsRef<[u8]>) -> Next {
        let body = body.as_ref();
        let mut head = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n", body.len());
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str("\r\n");
        self.send([head.as_bytes(), body].concat());
        Next::KeepAlive
    }

    /// Whether this is one of the gateway's own looks; scripts usually pass those to [`Exchange::answer_plainly`].
    pub fn is_look(&self) -> bool {
        is_look(&self.request.line)
    }

    /// What a well-behaved server says.
    pub fn answer_plainly(&mut self) -> Next {
        if self.request.line.starts_with("GET /health") {
            return self.answer("200 OK", &[], "");
        }
        if self.request.line.starts_with("GET") {
            return self.answer(
                "404 Not Found",
                &[("content-type", "application/json")],
                r#"{"error":{"message":"Not Found"}}"#,
            );
        }
        let body = r#"{"id":"chatcmpl-1","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"Hi"},"finish_reason":"stop"}],"usage":{"prompt_tokens":9,"completion_tokens":2,"total_tokens":11}}"#;
        self.answer("200 OK", &[("content-type", "application/json")], body)
    }

    /// Begins an event stream in chunks.
    pub fn begin_stream(&mut self) {
        self.send(
            "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n",
        );
    }

    /// Sends one chunk.
    pub fn chunk(&mut self, data: impl AsRef<[u8]>) {
        let data = data.as_ref();
        self.send([format!("{:x}\r\n", data.len()).as_bytes(), data, b"\r\n"].concat());
    }

    /// Sends one event in a chunk of its own.
    pub fn event(&mut self, data: &str) {
        self.chunk(format!("data: {data}\n\n"));
    }

    /// Sends a chat chunk with this text.
    pub fn token(&mut self, text: &str) {
        self.event(&format!(r#"{{"id":"c","object":"chat.completion.chunk","choices":[{{"index":0,"delta":{{"content":"{text}"}},"finish_reason":null}}]}}"#));
    }

    /// Ends a chunked body.
    pub fn end_chunks(&mut self) -> Next {
        self.send("0\r\n\r\n");
        Next::KeepAlive
    }

    /// Waits until the gateway closes this connection, and records when. False when it does not within `limit`.
    pub fn wait_for_close(&mut self, limit: Duration) -> bool {
        let started = Instant::now();
        let _ = self.stream.set_read_timeout(Some(Duration::from_millis(20)));
        let mut buffer = [0; 1024];
        let closed = loop {
            match self.stream.read(&mut buffer) {
                Ok(0) => break true,
                Ok(_) => {}
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    if started.elapsed() > limit {
                        break false;
                    }
                }
                Err(_) => break true,
            }
        };
        let _ = self.stream.set_read_timeout(None);
        if closed {
            self.shared.seen.lock().expect("recording does not panic")[self.index].closed = Some(Instant::now());
        }
        closed
    }
}
