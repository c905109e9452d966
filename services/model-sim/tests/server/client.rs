//! A small HTTP client: one connection per request unless a test holds one, bodies read whole or event by event.

use std::{net::SocketAddr, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::{body::Incoming, client::conn::http1};
use hyper_util::rt::TokioIo;
use model_sim::{Options, Running};
use serde_json::Value;
use tokio::net::TcpStream;

/// Longest wait of any test for anything.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// An answer, read to its end.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {:?}", self.body))
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// A server on a free port, fifty times faster than real time.
pub(crate) async fn start(change: impl FnOnce(&mut Options)) -> Running {
    let profile = engine::Profile::named("llama-3.1-8b-h100").expect("a profile of the table");
    let mut options = Options::new(model_sim::Face::Vllm, profile, "llama");
    options.time_scale = 0.02;
    change(&mut options);
    model_sim::start(options).await.expect("it starts")
}

/// One connection to a server.
pub(crate) struct Connection(http1::SendRequest<Full<Bytes>>);

impl Connection {
    pub(crate) async fn open(address: SocketAddr) -> std::io::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(std::io::Error::other)?;
        tokio::spawn(async move {
            // How a connection ends is seen by its requests.
            drop(connection.await);
        });
        Ok(Self(sender))
    }

    pub(crate) async fn send(&mut self, request: Request<Full<Bytes>>) -> hyper::Result<http::Response<Incoming>> {
        self.0.send_request(request).await
    }

    /// Waits until the server has closed it.
    pub(crate) async fn closed(&mut self) {
        let closed = async {
            while self.0.ready().await.is_ok() {
                tokio::task::yield_now().await
            }
        };
        tokio::time::timeout(PATIENCE, closed).await.expect("the server closes an idle connection");
    }
}

pub(crate) fn request(method: Method, path: &str, body: impl Into<Bytes>) -> Request<Full<Bytes>> {
    let builder = Request::builder().method(method).uri(path).header("host", "sim");
    builder.header("content-type", "application/json").body(Full::new(body.into())).expect("a request")
}

/// Sends one request on a connection of its own and reads the answer.
pub(crate) async fn send(address: SocketAddr, request: Request<Full<Bytes>>) -> Result<Answer, String> {
    let exchange = async {
        let mut connection = Connection::open(address).await.map_err(|e| format!("connect: {e}"))?;
        let response = connection.send(request).await.map_err(|e| format!("head: {e}"))?;
        let (parts, body) = response.into_parts();
        let body = body.collect().await.map_err(|e| format!("body: {e}"))?.to_bytes();
        Ok(Answer { status: parts.status, headers: parts.headers, body })
    };
    tokio::time::timeout(PATIENCE, exchange).await.unwrap_or_else(|_| Err("no answer in time".to_owned()))
}

pub(crate) async fn get(address: SocketAddr, path: &str) -> Answer {
    send(address, request(Method::GET, path, "")).await.expect("an answer")
}

pub(crate) async fn post(address: SocketAddr, path: &str, body: &Value) -> Answer {
    send(address, request(Method::POST, path, body.to_string())).await.expect("an answer")
}

/// The JSON of all `data:` lines of an event stream; `[DONE]` as a string.
pub(crate) fn events(answer: &Answer) -> Vec<Value> {
    let text = answer.text();
    let data = text.lines().filter_map(|line| line.strip_prefix("data: ")).map(str::to_owned);
    data.map(|data| serde_json::from_str(&data).unwrap_or(Value::String(data))).collect()
}

/// One sample of a metrics page; `series` is the line up to its value.
pub(crate) fn sample(page: &str, series: &str) -> Option<f64> {
    page.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok())
}

/// Asks until `good` says so.
pub(crate) async fn eventually<T>(mut ask: impl AsyncFnMut() -> T, good: impl Fn(&T) -> bool) -> T {
    let polling = async {
        loop {
            let answer = ask().await;
            if good(&answer) {
                return answer;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, polling).await.expect("it becomes true in time")
}
