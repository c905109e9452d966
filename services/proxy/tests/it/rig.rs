//! What the tests share: a served door, raw sockets, and limits on every wait.

use std::{
    future::Future,
    io,
    net::{SocketAddr, TcpListener},
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full, combinators::UnsyncBoxBody};
use proxy::{
    cores::Cores,
    serve::{self, Drain, Limits, Listener, Refusal, Refused, RequestBody, Scheme, Serving, tls::Tls},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::oneshot,
    time,
};

/// No test's step takes as long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// The port that clients of a test's first listener would name.
pub(crate) const PORT: u16 = 80;

/// How soon a client's leaving must be known.
pub(crate) const AT_ONCE: Duration = Duration::from_millis(100);

pub(crate) type Failure = Box<dyn std::error::Error + Send + Sync>;
pub(crate) type AnyBody = UnsyncBoxBody<Bytes, Failure>;

pub(crate) async fn soon<F: Future>(what: F) -> F::Output {
    time::timeout(PATIENCE, what).await.expect("in time")
}

pub(crate) fn full(text: impl Into<Bytes>) -> AnyBody {
    Full::new(text.into()).map_err(|never| match never {}).boxed_unsync()
}

pub(crate) fn answer(status: u16, text: impl Into<Bytes>) -> Response<AnyBody> {
    Response::builder().status(status).body(full(text)).unwrap()
}

pub(crate) fn loopback() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").unwrap()
}

pub(crate) struct Door {
    pub(crate) address: SocketAddr,
    pub(crate) serving: Option<Serving>,
    pub(crate) drain: Drain,
    pub(crate) refused: Arc<Mutex<Vec<Refused>>>,
    pub(crate) tls: Arc<Tls>,
    _cores: Cores,
}

impl Door {
    pub(crate) fn open<F, A>(limits: Limits, handle: F) -> Self
    where
        F: Fn(Request<RequestBody>) -> A + Clone + Send + Sync + 'static,
        A: Future<Output = Response<AnyBody>> + Send + 'static,
    {
        let cores = Cores::start(2, "door").unwrap();
        let drain = Drain::new();
        let refused = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&refused);
        let refusals = Arc::new(move |what: Refused| {
            seen.lock().unwrap().push(what);
            Refusal {
                headers: [(http::header::CONTENT_TYPE, "application/json".parse().unwrap())].into_iter().collect(),
                body: Bytes::from(format!("{{\"{what:?}\":1}}")),
            }
        });
        let service = move |_core, _listener| {
            let handle = handle.clone();
            tower::service_fn(move |request| {
                let answer = handle(request);
                async move { Ok(answer.await) }
            })
        };
        let serving = serve::start(&cores, limits, service, drain.clone(), refusals);
        let (tls, listener) = (Tls::plain(), Listener { port: PORT, scheme: Scheme::Http });
        let address = serving.add(loopback(), listener, Arc::clone(&tls)).unwrap();
        Self { address, serving: Some(serving), drain, refused, tls, _cores: cores }
    }

    /// Answers 200 with the body it was sent.
    pub(crate) fn echo(limits: Limits) -> Self {
        Self::open(limits, |request| async move {
            match request.into_body().collect().await {
                Ok(body) => answer(200, body.to_bytes()),
                Err(error) => answer(408, error.to_string()),
            }
        })
    }

    pub(crate) async fn connect(&self) -> Raw {
        Raw(TcpStream::connect(self.address).await.unwrap())
    }

    pub(crate) fn refused(&self) -> Vec<Refused> {
        self.refused.lock().unwrap().clone()
    }
}

/// A socket without a library.
pub(crate) struct Raw(pub(crate) TcpStream);

impl Raw {
    pub(crate) async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        soon(self.0.write_all(bytes.as_ref())).await.unwrap();
    }

    /// Everything until the peer ends; an error if it resets.
    pub(crate) async fn rest(&mut self) -> io::Result<String> {
        let mut all = Vec::new();
        soon(self.0.read_to_end(&mut all)).await?;
        Ok(String::from_utf8_lossy(&all).into_owned())
    }

    /// Reads until `end` was seen.
    pub(crate) async fn until(&mut self, end: &str) -> String {
        let mut all = Vec::new();
        loop {
            let mut byte = [0];
            let bytes = soon(self.0.read(&mut byte)).await.unwrap();
            let text = || String::from_utf8_lossy(&all).into_owned();
            assert_ne!(bytes, 0, "ended before {end:?}, after {:?}", text());
            all.push(byte[0]);
            if all.ends_with(end.as_bytes()) {
                return text_of(&all);
            }
        }
    }

    /// One answer with a declared length: head and body.
    pub(crate) async fn answer(&mut self) -> (String, String) {
        let head = self.until("\r\n\r\n").await;
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap().parse().unwrap();
        let mut body = vec![0; length];
        soon(self.0.read_exact(&mut body)).await.unwrap();
        (head, text_of(&body))
    }
}

pub(crate) fn text_of(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Tells when it is dropped.
pub(crate) struct Alive(Option<oneshot::Sender<()>>);

pub(crate) fn alive() -> (Alive, oneshot::Receiver<()>) {
    let (dropped, when) = oneshot::channel();
    (Alive(Some(dropped)), when)
}

impl Drop for Alive {
    fn drop(&mut self) {
        let _told = self.0.take().unwrap().send(());
    }
}
