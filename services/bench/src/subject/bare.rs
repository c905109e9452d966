//! The barest proxy: hyper, one runtime per core, bodies read whole, endpoints taken in turn, connections kept.
//!
//! It is this very program, started once more with `bare`. What it costs is what the kernel and an HTTP library cost,
//! and what a gateway of the same build adds to it is the gateway's.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::Command;
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::Context;
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::SendRequest;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

use super::{Running, Site, first_answer};
use crate::load::Target;
use crate::process::Process;

const BOUND_WITHIN: Duration = Duration::from_secs(10);

/// The barest proxy: hyper, one runtime per core
#[derive(clap::Args, Clone, Debug)]
pub struct Arguments {
    /// Endpoints, taken in turn
    #[arg(long, required = true, value_delimiter = ',')]
    backends: Vec<SocketAddr>,
}

pub(super) fn start(site: &Site<'_>, started: Instant) -> anyhow::Result<Running> {
    let mut command = Command::new(std::env::current_exe()?);
    let backends: Vec<String> = site.endpoints.iter().map(ToString::to_string).collect();
    command.args(["bare", "--backends", &backends.join(",")]);
    let mut process = Process::start(command, site.folder.join("bare.log")).context("the bare proxy")?;
    let line = process.line(BOUND_WITHIN).context("the bare proxy")?;
    let data = Target::from(line.parse::<SocketAddr>().with_context(|| format!("no address: `{line}`"))?);
    let first_answer = first_answer(&mut process, &data, started).context("the bare proxy")?;
    Ok(Running { data, process: Some(process), first_answer })
}

/// Serves until the process is ended; its address is the only line on stdout.
pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let mut queues = Vec::new();
    for core in 0..cores {
        let (queue, accepted) = mpsc::unbounded_channel();
        let backends = arguments.backends.clone();
        std::thread::Builder::new().name(format!("core-{core}")).spawn(move || serve_core(accepted, backends))?;
        queues.push(queue);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        println!("{}", listener.local_addr()?);
        for queue in queues.iter().cycle() {
            let (stream, _) = listener.accept().await?;
            queue.send(stream.into_std()?).context("a core is gone")?;
        }
        Ok(())
    })
}

fn serve_core(mut accepted: mpsc::UnboundedReceiver<std::net::TcpStream>, backends: Vec<SocketAddr>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a runtime starts where others have started");
    let upstream = Rc::new(Upstream { backends, next: Cell::default(), idle: RefCell::default() });
    tokio::task::LocalSet::new().block_on(&runtime, async {
        while let Some(stream) = accepted.recv().await {
            let upstream = Rc::clone(&upstream);
            tokio::task::spawn_local(async move {
                // A client that goes away ends its connection; nobody is told.
                let _ = serve(stream, upstream).await;
            });
        }
    });
}

async fn serve(stream: std::net::TcpStream, upstream: Rc<Upstream>) -> anyhow::Result<()> {
    let stream = TcpStream::from_std(stream)?;
    stream.set_nodelay(true)?;
    let service = service_fn(move |request| {
        let upstream = Rc::clone(&upstream);
        async move { Ok::<_, Infallible>(upstream.pass(request).await.unwrap_or_else(failed)) }
    });
    hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await?;
    Ok(())
}

struct Upstream {
    backends: Vec<SocketAddr>,
    next: Cell<usize>,
    idle: RefCell<HashMap<SocketAddr, Vec<SendRequest<Full<Bytes>>>>>,
}

impl Upstream {
    async fn pass(
        self: Rc<Self>,
        request: Request<Incoming>,
    ) -> anyhow::Result<Response<BoxBody<Bytes, hyper::Error>>> {
        let (head, body) = request.into_parts();
        let body = body.collect().await?.to_bytes();
        let to = self.backends[self.next.replace(self.next.get() + 1) % self.backends.len()];
        let mut sender = self.sender(to).await?;
        let answer = sender.send_request(Request::from_parts(head, Full::new(body))).await?;
        // It is ready again when the answer has been read to its end.
        tokio::task::spawn_local(async move {
            if sender.ready().await.is_ok() {
                self.idle.borrow_mut().entry(to).or_default().push(sender);
            }
        });
        Ok(answer.map(BodyExt::boxed))
    }

    async fn sender(&self, to: SocketAddr) -> anyhow::Result<SendRequest<Full<Bytes>>> {
        let idle = || self.idle.borrow_mut().get_mut(&to).and_then(Vec::pop);
        while let Some(sender) = idle() {
            if !sender.is_closed() {
                return Ok(sender);
            }
        }
        let stream = TcpStream::connect(to).await?;
        stream.set_nodelay(true)?;
        let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        tokio::task::spawn_local(connection);
        Ok(sender)
    }
}

fn failed(error: anyhow::Error) -> Response<BoxBody<Bytes, hyper::Error>> {
    eprintln!("{error:#}");
    let body = Full::new(Bytes::from_static(b"no answer")).map_err(|never| match never {}).boxed();
    let mut answer = Response::new(body);
    *answer.status_mut() = StatusCode::BAD_GATEWAY;
    answer
}
