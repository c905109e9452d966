//! A model server that answers at once, on as many ports as endpoints are wanted.
//!
//! It costs as little as a correct answer can, so that the CPU of a small machine is left to what is measured. It
//! serves one fixed chat answer, a stream of chunks at a fixed pace, or keeps everyone waiting, as it is told: what it
//! is asked does not matter, since some proxies write bodies anew. Its metrics page was taken from a vLLM 0.32 (so that a
//! gateway's scraping is part of its cost). It simulates nothing: that is `model-sim`.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::Context;
use bytes::Bytes;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, MissedTickBehavior};

use crate::bodies::MODEL;
use crate::wire::Reader;

/// What a vLLM 0.32 with adapters serves: 52 kB.
const METRICS_PAGE: &str = include_str!("../../model-sim/fixtures/vllm-0.32.0-lora-metrics.txt");

/// How every request is answered from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answering {
    Whole,
    Streamed(Stream),
    /// Not before it is told otherwise; bodies are read to their end.
    Held,
}

/// Streams are paced, since a backend that writes as fast as it can lets a proxy pass many chunks at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stream {
    pub chunks: usize,
    pub gap: Duration,
}

/// A running backend; it stops when dropped.
#[derive(Debug)]
pub struct Backend {
    pub addresses: Vec<SocketAddr>,
    answering: watch::Sender<Answering>,
    held: Arc<AtomicUsize>,
    _stop: oneshot::Sender<()>,
}

/// What each connection is served from.
#[derive(Clone)]
struct Site {
    answers: &'static Answers,
    answering: watch::Receiver<Answering>,
    held: Arc<AtomicUsize>,
}

struct Answers {
    whole: Bytes,
    metrics: Bytes,
    health: Bytes,
    chunk: Bytes,
    last: Bytes,
}

impl Backend {
    /// Binds `ports` free ports on loopback and serves them from one thread.
    pub fn start(ports: usize) -> anyhow::Result<Self> {
        let bind = |_| std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
        let listeners: Vec<_> = (0..ports).map(bind).collect::<io::Result<_>>().context("cannot bind the backend")?;
        let addresses = listeners.iter().map(std::net::TcpListener::local_addr).collect::<io::Result<_>>()?;
        let (stop, stopped) = oneshot::channel();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (answering, told) = watch::channel(Answering::Whole);
        let held = Arc::default();
        // Lives as long as the process: one allocation that every connection may borrow.
        let answers: &'static Answers = Box::leak(Box::new(Answers::new()));
        let site = Site { answers, answering: told, held: Arc::clone(&held) };
        let serve = move || runtime.block_on(serve_all(listeners, site, stopped));
        std::thread::Builder::new().name("backend".to_owned()).spawn(serve)?;
        Ok(Self { addresses, answering, held, _stop: stop })
    }

    /// Answers like this from the next request on.
    pub fn answer(&self, answering: Answering) {
        self.answering.send_replace(answering);
    }

    /// Requests that are kept waiting, their bodies read.
    pub fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }
}

async fn serve_all(listeners: Vec<std::net::TcpListener>, site: Site, stopped: oneshot::Receiver<()>) {
    for listener in listeners {
        let prepared = listener.set_nonblocking(true).and_then(|()| TcpListener::from_std(listener));
        let listener = prepared.expect("a bound loopback listener can be used by this runtime");
        tokio::spawn(accept(listener, site.clone()));
    }
    // The sender is only ever dropped.
    let _ = stopped.await;
}

async fn accept(listener: TcpListener, site: Site) {
    loop {
        // A connection that is gone before it was accepted, or too many files: the client sees it and reports.
        let Ok((stream, _)) = listener.accept().await else { continue };
        let site = site.clone();
        tokio::spawn(async move {
            // A client that goes away ends its task; the generator counts what it missed.
            let _ = serve(stream, site).await;
        });
    }
}

async fn serve(mut stream: TcpStream, mut site: Site) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let (from, mut to) = stream.split();
    let mut reader = Reader::new(from);
    while let Some(head) = reader.request().await? {
        reader.body(head.framing, &mut |_| {}).await?;
        match head.path.as_str() {
            "/metrics" => to.write_all(&site.answers.metrics).await?,
            "/health" | "/v1/models" => to.write_all(&site.answers.health).await?,
            _ => site.chat(&mut to).await?,
        }
    }
    Ok(())
}

impl Site {
    async fn chat(&mut self, to: &mut tokio::net::tcp::WriteHalf<'_>) -> io::Result<()> {
        let answering = *self.answering.borrow_and_update();
        match answering {
            Answering::Whole => to.write_all(&self.answers.whole).await,
            Answering::Streamed(stream) => self.answers.write_stream(stream, to).await,
            Answering::Held => {
                self.held.fetch_add(1, Ordering::Relaxed);
                let told = self.answering.wait_for(|answering| *answering != Answering::Held).await.map(|_| ());
                self.held.fetch_sub(1, Ordering::Relaxed);
                told.map_err(io::Error::other)?;
                to.write_all(&self.answers.whole).await
            }
        }
    }
}

impl Answers {
    fn new() -> Self {
        let text = "word ".repeat(60);
        let whole = format!(
            r#"{{"id":"chatcmpl-1","object":"chat.completion","created":1700000000,"model":"{MODEL}","choices":[{{"index":0,"message":{{"role":"assistant","content":"{text}"}},"finish_reason":"stop"}}],"usage":{{"prompt_tokens":1000,"completion_tokens":60,"total_tokens":1060}}}}"#
        );
        let event = |rest: &str| {
            format!(
                r#"data: {{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1700000000,"model":"{MODEL}",{rest}}}"#
            ) + "\n\n"
        };
        let delta =
            event(r#""choices":[{"index":0,"delta":{"content":" word"},"logprobs":null,"finish_reason":null}]"#);
        let end = event(r#""choices":[{"index":0,"delta":{},"finish_reason":"length"}]"#);
        let usage =
            event(r#""choices":[],"usage":{"prompt_tokens":1000,"completion_tokens":1000,"total_tokens":2000}"#);
        let last = chunk(&format!("{end}{usage}data: [DONE]\n\n")) + "0\r\n\r\n";
        Self {
            whole: sized("application/json", &whole),
            metrics: sized("text/plain; version=0.0.4; charset=utf-8", METRICS_PAGE),
            health: sized(
                "application/json",
                &format!(r#"{{"object":"list","data":[{{"id":"{MODEL}","object":"model"}}]}}"#),
            ),
            chunk: Bytes::from(chunk(&delta)),
            last: Bytes::from(last),
        }
    }

    /// Each chunk is one write. A late tick is caught up, so that the rate holds on a busy machine.
    async fn write_stream(&self, stream: Stream, to: &mut tokio::net::tcp::WriteHalf<'_>) -> io::Result<()> {
        let head =
            "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n";
        to.write_all(head.as_bytes()).await?;
        let gap = stream.gap.max(Duration::from_micros(1));
        let mut ticks = tokio::time::interval_at(Instant::now() + gap, gap);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
        for _ in 0..stream.chunks {
            ticks.tick().await;
            to.write_all(&self.chunk).await?;
        }
        to.write_all(&self.last).await
    }
}

fn chunk(text: &str) -> String {
    format!("{:x}\r\n{text}\r\n", text.len())
}

fn sized(kind: &str, body: &str) -> Bytes {
    let length = body.len();
    Bytes::from(format!(
        "HTTP/1.1 200 OK\r\nserver: static\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\n\r\n{body}"
    ))
}

#[cfg(test)]
mod tests;
