//! A model server that answers at once, on as many ports as endpoints are wanted.
//!
//! It costs as little as a correct answer can, so that the CPU of a small machine is left to what is measured. It
//! serves one fixed chat answer, a stream of chunks at a fixed pace, and a metrics page as long as a real one (so that
//! a gateway's scraping is part of its cost). It simulates nothing: that is `model-sim`.

use std::fmt::Write as _;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::Context;
use bytes::Bytes;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::time::{Instant, MissedTickBehavior};

use crate::bodies::{MODEL, STREAM};
use crate::wire::Reader;

/// Where the backend looks for `"stream":true`.
const LOOKED_AT_BYTES: usize = 256;

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
    _stop: oneshot::Sender<()>,
}

struct Answers {
    whole: Bytes,
    metrics: Bytes,
    health: Bytes,
    chunk: Bytes,
    last: Bytes,
    stream: Stream,
}

impl Backend {
    /// Binds `ports` free ports on loopback and serves them from one thread.
    pub fn start(ports: usize, stream: Stream) -> anyhow::Result<Self> {
        let bind = |_| std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
        let listeners: Vec<_> = (0..ports).map(bind).collect::<io::Result<_>>().context("cannot bind the backend")?;
        let addresses = listeners.iter().map(std::net::TcpListener::local_addr).collect::<io::Result<_>>()?;
        let (stop, stopped) = oneshot::channel();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let serve = move || runtime.block_on(serve_all(listeners, stream, stopped));
        std::thread::Builder::new().name("backend".to_owned()).spawn(serve)?;
        Ok(Self { addresses, _stop: stop })
    }
}

async fn serve_all(listeners: Vec<std::net::TcpListener>, stream: Stream, stopped: oneshot::Receiver<()>) {
    // Lives as long as the process: one allocation that every connection may borrow.
    let answers: &'static Answers = Box::leak(Box::new(Answers::new(stream)));
    for listener in listeners {
        let prepared = listener.set_nonblocking(true).and_then(|()| TcpListener::from_std(listener));
        let listener = prepared.expect("a bound loopback listener can be used by this runtime");
        tokio::spawn(accept(listener, answers));
    }
    // The sender is only ever dropped.
    let _ = stopped.await;
}

async fn accept(listener: TcpListener, answers: &'static Answers) {
    loop {
        // A connection that is gone before it was accepted, or too many files: the client sees it and reports.
        let Ok((stream, _)) = listener.accept().await else { continue };
        tokio::spawn(async move {
            // A client that goes away ends its task; the generator counts what it missed.
            let _ = serve(stream, answers).await;
        });
    }
}

async fn serve(mut stream: TcpStream, answers: &Answers) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let (from, mut to) = stream.split();
    let mut reader = Reader::new(from);
    while let Some(head) = reader.request().await? {
        let mut start = Vec::with_capacity(LOOKED_AT_BYTES);
        let mut keep = |piece: &[u8]| start.extend_from_slice(&piece[..piece.len().min(LOOKED_AT_BYTES - start.len())]);
        reader.body(head.framing, &mut keep).await?;
        let whole = match head.path.as_str() {
            "/metrics" => &answers.metrics,
            "/health" | "/v1/models" => &answers.health,
            _ if memchr::memmem::find(&start, STREAM.as_bytes()).is_some() => {
                answers.write_stream(&mut to).await?;
                continue;
            }
            _ => &answers.whole,
        };
        to.write_all(whole).await?;
    }
    Ok(())
}

impl Answers {
    fn new(stream: Stream) -> Self {
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
            metrics: sized("text/plain; version=0.0.4; charset=utf-8", &metrics_page()),
            health: sized(
                "application/json",
                &format!(r#"{{"object":"list","data":[{{"id":"{MODEL}","object":"model"}}]}}"#),
            ),
            chunk: Bytes::from(chunk(&delta)),
            last: Bytes::from(last),
            stream,
        }
    }

    /// Each chunk is one write. A late tick is caught up, so that the rate holds on a busy machine.
    async fn write_stream(&self, to: &mut tokio::net::tcp::WriteHalf<'_>) -> io::Result<()> {
        let head =
            "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n";
        to.write_all(head.as_bytes()).await?;
        let gap = self.stream.gap.max(Duration::from_micros(1));
        let mut ticks = tokio::time::interval_at(Instant::now() + gap, gap);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
        for _ in 0..self.stream.chunks {
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

/// An idle vLLM's page: the gauges that are read, among as many histograms as a real page has (about 50 kB).
fn metrics_page() -> String {
    let labels = format!(r#"engine="0",model_name="{MODEL}""#);
    let mut page = String::new();
    let mut add = |name: &str, kind: &str, labels: &str, value: &str| {
        // Writing to a string cannot fail.
        let _ = write!(page, "# HELP {name} Of the engine.\n# TYPE {name} {kind}\n{name}{{{labels}}} {value}\n");
    };
    add("vllm:num_requests_running", "gauge", &labels, "0.0");
    add("vllm:num_requests_waiting", "gauge", &labels, "0.0");
    add("vllm:kv_cache_usage_perc", "gauge", &labels, "0.0");
    let shape = format!(r#"block_size="16",{labels},num_gpu_blocks="27000""#);
    add("vllm:cache_config_info", "gauge", &shape, "1.0");
    for histogram in 0..24 {
        let name = format!("vllm:phase_{histogram}_seconds");
        let _ = write!(page, "# HELP {name} Time spent.\n# TYPE {name} histogram\n");
        for bucket in 1..=20 {
            let _ = writeln!(page, r#"{name}_bucket{{{labels},le="{}.5"}} 1234.0"#, bucket * bucket);
        }
        let _ = writeln!(page, "{name}_count{{{labels}}} 1234.0\n{name}_sum{{{labels}}} 56.789012345");
    }
    page
}

#[cfg(test)]
mod tests;
