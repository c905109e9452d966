//! A raw server that sends exactly the bytes it is told to, and a sink that keeps what it hears.

use std::{
    collections::VecDeque,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use pool::{Endpoint, EndpointId, Host, Moment, Observation};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpListener,
    sync::{mpsc, watch},
    task::JoinHandle,
    time::{Instant, timeout},
};
use tokio_rustls::TlsAcceptor;

use crate::{
    Engine,
    resolve::{Found, MetricsAt, Want},
    scrape::{Cause, Families, Scraper, Settings, Sink},
};

/// Longest wait for what must happen: only a failing test takes so long.
const PATIENCE: Duration = Duration::from_secs(20);

pub(super) const QUICK: Settings = Settings {
    interval: Duration::from_millis(10),
    timeout: Duration::from_millis(500),
    concurrency_max: 64,
    page_bytes_max: 1 << 20,
};

/// What a server sends for one request.
#[derive(Clone)]
pub(super) struct Reply {
    bytes: Vec<u8>,
    piece_bytes: usize,
    then: Then,
}

#[derive(Clone, Copy, PartialEq)]
enum Then {
    Listen,
    Close,
}

impl std::fmt::Debug for Reply {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.bytes[..self.bytes.len().min(120)]))
    }
}

impl Reply {
    pub(super) fn raw(bytes: impl Into<Vec<u8>>) -> Self {
        let bytes = bytes.into();
        Self { piece_bytes: bytes.len().max(1), bytes, then: Then::Listen }
    }

    pub(super) fn status(status: &str) -> Self {
        Self::raw(format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n"))
    }

    /// Nothing, and the connection stays open.
    pub(super) fn hang() -> Self {
        Self::raw("")
    }

    pub(super) fn then_close(self) -> Self {
        Self { then: Then::Close, ..self }
    }

    pub(super) fn byte_by_byte(self) -> Self {
        Self { piece_bytes: 1, ..self }
    }
}

pub(super) fn page(text: &str) -> Reply {
    Reply::raw(format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/plain; version=0.0.4\r\ncontent-length: {}\r\n\r\n{text}",
        text.len()
    ))
}

/// A server on a port of its own; stops when dropped.
pub(super) struct Server {
    pub(super) address: SocketAddr,
    heads: mpsc::UnboundedReceiver<String>,
    closed: mpsc::UnboundedReceiver<()>,
    connections: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

type Answer = Arc<dyn Fn(&str, usize) -> Reply + Send + Sync>;

#[derive(Clone)]
struct Told {
    heads: mpsc::UnboundedSender<String>,
    closed: mpsc::UnboundedSender<()>,
    requests: Arc<AtomicUsize>,
}

impl Server {
    /// Answers the n-th request, from 0, as told.
    pub(super) async fn start(answer: impl Fn(usize) -> Reply + Send + Sync + 'static) -> Self {
        Self::bind("127.0.0.1:0", answer).await
    }

    pub(super) async fn by_head(answer: impl Fn(&str) -> Reply + Send + Sync + 'static) -> Self {
        Self::run("127.0.0.1:0", None, Arc::new(move |head, _| answer(head))).await
    }

    pub(super) async fn bind(address: &str, answer: impl Fn(usize) -> Reply + Send + Sync + 'static) -> Self {
        Self::run(address, None, Arc::new(move |_, n| answer(n))).await
    }

    /// Over TLS, with the certificate of the fixtures.
    pub(super) async fn tls(answer: impl Fn(usize) -> Reply + Send + Sync + 'static) -> Self {
        let certificate = CertificateDer::from_pem_slice(include_bytes!("../../../fixtures/tls/server.pem")).unwrap();
        let key = PrivateKeyDer::from_pem_slice(include_bytes!("../../../fixtures/tls/server.key")).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder =
            rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let config = builder.with_no_client_auth().with_single_cert(vec![certificate], key).unwrap();
        Self::run("127.0.0.1:0", Some(TlsAcceptor::from(Arc::new(config))), Arc::new(move |_, n| answer(n))).await
    }

    async fn run(address: &str, tls: Option<TlsAcceptor>, answer: Answer) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (heads_sender, heads) = mpsc::unbounded_channel();
        let (closed_sender, closed) = mpsc::unbounded_channel();
        let told = Told { heads: heads_sender, closed: closed_sender, requests: Arc::default() };
        let connections: Arc<AtomicUsize> = Arc::default();
        let counted = connections.clone();
        let task = tokio::spawn(async move {
            let mut open = tokio::task::JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                counted.fetch_add(1, Ordering::Relaxed);
                let (tls, answer, told) = (tls.clone(), answer.clone(), told.clone());
                open.spawn(async move {
                    match tls {
                        None => converse(stream, answer, told).await,
                        Some(tls) => {
                            if let Ok(session) = tls.accept(stream).await {
                                converse(session, answer, told).await;
                            }
                        }
                    }
                });
            }
        });
        Self { address, heads, closed, connections, task }
    }

    pub(super) fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    /// The head of the next request not yet taken.
    pub(super) async fn next_head(&mut self) -> String {
        timeout(PATIENCE, self.heads.recv()).await.expect("a request").unwrap()
    }

    /// Until the other side closed a connection.
    pub(super) async fn closed_by_peer(&mut self) {
        timeout(PATIENCE, self.closed.recv()).await.expect("a close").unwrap();
    }
}

async fn converse(mut stream: impl AsyncRead + AsyncWrite + Unpin, answer: Answer, told: Told) {
    let mut head = Vec::new();
    loop {
        let mut byte = [0];
        if !matches!(stream.read(&mut byte).await, Ok(1)) {
            let _ = told.closed.send(());
            return;
        }
        head.push(byte[0]);
        if !head.ends_with(b"\r\n\r\n") {
            continue;
        }
        let text = String::from_utf8(std::mem::take(&mut head)).unwrap();
        let reply = answer(&text, told.requests.fetch_add(1, Ordering::Relaxed));
        let _ = told.heads.send(text);
        for piece in reply.bytes.chunks(reply.piece_bytes) {
            if stream.write_all(piece).await.is_err() || stream.flush().await.is_err() {
                return;
            }
        }
        if reply.then == Then::Close {
            let _ = stream.shutdown().await;
            return;
        }
    }
}

/// A port on which nobody listens.
pub(super) async fn closed_port() -> u16 {
    // Bound and never listening: nobody else gets it either.
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let port = socket.local_addr().unwrap().port();
    std::mem::forget(socket);
    port
}

pub(super) fn want(address: SocketAddr) -> Want {
    Want {
        name: "p".into(),
        host: Host::Ip(address.ip()),
        port: address.port(),
        metrics: MetricsAt { port: address.port(), path: "/metrics".into() },
        tls: None,
        authorization: None,
        engine: Engine::Vllm,
        identity: 1,
    }
}

pub(super) fn found(id: u64, address: SocketAddr, want: Want) -> Found {
    Found { endpoint: Endpoint { id: EndpointId::new(id), name: "p".into(), address }, want: Arc::new(want) }
}

/// An endpoint with its page on its serving port.
pub(super) fn serving(id: u64, address: SocketAddr) -> Found {
    found(id, address, want(address))
}

/// What a sink heard.
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "a record of a test")]
pub(super) enum Event {
    Observed(u64, Observation),
    Failed(u64, Cause),
    Families(Families),
    Skipped(u32),
}

/// The first observation of this endpoint panics, as a bug would.
pub(super) const PANICS_ONCE: u64 = 13;

struct Ear {
    events: mpsc::UnboundedSender<Event>,
    panicked: AtomicBool,
}

impl Sink for Ear {
    fn observed(&self, id: EndpointId, observation: Observation) {
        assert!(id.get() != PANICS_ONCE || self.panicked.swap(true, Ordering::Relaxed), "a bug");
        let _ = self.events.send(Event::Observed(id.get(), observation));
    }

    fn failed(&self, id: EndpointId, cause: Cause) {
        let _ = self.events.send(Event::Failed(id.get(), cause));
    }

    fn families(&self, _: EndpointId, found: &Families) {
        let _ = self.events.send(Event::Families(*found));
    }

    fn skipped(&self, _: EndpointId, samples: u32) {
        let _ = self.events.send(Event::Skipped(samples));
    }
}

/// A scraper at work.
pub(super) struct Rig {
    pub(super) settings: watch::Sender<Settings>,
    endpoints: watch::Sender<Arc<[Found]>>,
    events: mpsc::UnboundedReceiver<Event>,
    /// Events passed over while waiting for others, and those waited for.
    pub(super) seen: Vec<Event>,
    waiting: VecDeque<Event>,
    task: JoinHandle<()>,
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn clock() -> Arc<dyn Fn() -> Moment + Send + Sync> {
    let origin = Instant::now();
    Arc::new(move || Moment::from_origin(origin.elapsed() + Duration::from_nanos(1)))
}

impl Rig {
    pub(super) fn start<const N: usize>(endpoints: [Found; N]) -> Self {
        Self::start_with(QUICK, endpoints)
    }

    pub(super) fn start_with<const N: usize>(settings: Settings, endpoints: [Found; N]) -> Self {
        let (sender, events) = mpsc::unbounded_channel();
        let ear = Arc::new(Ear { events: sender, panicked: AtomicBool::new(false) });
        let (settings, settings_receiver) = watch::channel(settings);
        let (endpoints, endpoints_receiver) = watch::channel(Arc::from(endpoints));
        let task = tokio::spawn(Scraper::new(ear, clock()).run(settings_receiver, endpoints_receiver));
        Self { settings, endpoints, events, seen: Vec::new(), waiting: VecDeque::new(), task }
    }

    pub(super) fn set<const N: usize>(&self, endpoints: [Found; N]) {
        self.endpoints.send(Arc::from(endpoints)).unwrap();
    }

    /// What came and was not waited for.
    pub(super) fn drain(&mut self) -> Vec<Event> {
        std::iter::from_fn(|| self.events.try_recv().ok()).collect()
    }

    async fn next<T>(&mut self, wanted: impl Fn(&Event) -> Option<T>) -> T {
        if let Some(at) = self.waiting.iter().position(|event| wanted(event).is_some()) {
            return wanted(&self.waiting.remove(at).unwrap()).unwrap();
        }
        loop {
            let event = timeout(PATIENCE, self.events.recv()).await.expect("an event").unwrap();
            self.seen.push(event.clone());
            match wanted(&event) {
                Some(found) => return found,
                None => self.waiting.push_back(event),
            }
        }
    }

    /// The next observation of `id` not yet taken.
    pub(super) async fn observed(&mut self, id: u64) -> Observation {
        self.next(|event| match event {
            Event::Observed(of, observation) if *of == id => Some(observation.clone()),
            Event::Observed(..) | Event::Failed(..) | Event::Families(_) | Event::Skipped(_) => None,
        })
        .await
    }

    /// The next failure of `id` not yet taken.
    pub(super) async fn failed(&mut self, id: u64) -> Cause {
        self.next(|event| match event {
            Event::Failed(of, cause) if *of == id => Some(*cause),
            Event::Observed(..) | Event::Failed(..) | Event::Families(_) | Event::Skipped(_) => None,
        })
        .await
    }
}

/// Counts the log lines of this thread, at `info` and above.
pub(super) struct Capture {
    lines: Arc<AtomicUsize>,
    _guard: tracing::subscriber::DefaultGuard,
}

struct Counter(Arc<AtomicUsize>);

impl tracing::Subscriber for Counter {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() <= tracing::Level::INFO
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        if event.metadata().target().starts_with("discovery") {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

impl Capture {
    pub(super) fn start() -> Self {
        let lines: Arc<AtomicUsize> = Arc::default();
        let guard = tracing::subscriber::set_default(Counter(lines.clone()));
        Self { lines, _guard: guard }
    }

    pub(super) fn lines(&self) -> usize {
        self.lines.load(Ordering::Relaxed)
    }
}
