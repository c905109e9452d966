//! HTTP/2 with prior knowledge, down to streams: a client and a server for tests that are not asynchronous themselves.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use bytes::Bytes;
use h2::{Reason, RecvStream, SendStream, client, server};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use tokio::{
    net::{TcpListener, TcpStream},
    runtime::{Builder, Handle},
    sync::oneshot,
    time::timeout,
};

/// Longest wait for anything of the other side.
const PATIENCE: Duration = Duration::from_secs(20);

/// One client connection.
pub struct Http2 {
    runtime: Background,
    sender: client::SendRequest<Bytes>,
}

/// An answer as it came.
#[derive(Clone, Debug)]
pub struct Http2Answer {
    /// The status.
    pub status: StatusCode,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body up to where it ended.
    pub body: Vec<u8>,
    /// Trailers, if there were any.
    pub trailers: Option<HeaderMap>,
    /// How the stream was reset, if it was.
    pub reset: Option<Reason>,
}

/// A request whose answer has not been read. Dropping it resets its stream.
pub struct OpenStream {
    answer: client::ResponseFuture,
    upload: SendStream<Bytes>,
    body: Option<(Response<()>, RecvStream)>,
}

/// Whether a request's body is all there.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Sent,
    Open,
}

impl Http2Answer {
    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

impl Http2 {
    /// Connects.
    ///
    /// # Panics
    /// When nobody there speaks HTTP/2.
    pub fn open(to: SocketAddr) -> Self {
        let runtime = Background::start();
        let sender = runtime.handle.block_on(async {
            let stream = TcpStream::connect(to).await.expect("somebody listens");
            stream.set_nodelay(true).expect("a connected socket takes options");
            let mut builder = client::Builder::new();
            builder
                .max_header_list_size(256 * 1024)
                .initial_window_size(1 << 20)
                .initial_connection_window_size(1 << 20);
            let (sender, connection) = builder.handshake(stream).await.expect("a handshake");
            tokio::spawn(connection);
            sender
        });
        Self { runtime, sender }
    }

    /// Sends one request and reads nothing of its answer.
    ///
    /// # Panics
    /// When the connection does not take it.
    pub fn start(&self, method: &str, path: &str, headers: &[(&str, &str)], body: impl AsRef<[u8]>) -> OpenStream {
        self.send(method, path, headers, body.as_ref(), End::Sent)
    }

    /// Posts the beginning of a body and leaves it open.
    pub fn start_unfinished(&self, path: &str, headers: &[(&str, &str)], part: impl AsRef<[u8]>) -> OpenStream {
        self.send("POST", path, headers, part.as_ref(), End::Open)
    }

    fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8], end: End) -> OpenStream {
        let mut request = Request::builder().method(Method::from_bytes(method.as_bytes()).expect("a method"));
        request = request.uri(format!("http://gateway{path}"));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(()).expect("a request");
        let body = Bytes::copy_from_slice(body);
        let is_whole = end == End::Sent;
        self.runtime.handle.block_on(async {
            let mut sender = self.sender.clone().ready().await.expect("the connection takes a request");
            let (answer, mut upload) =
                sender.send_request(request, body.is_empty() && is_whole).expect("a stream opens");
            if !body.is_empty() {
                // It may have been refused by its head already, which its answer tells.
                let _ = upload.send_data(body, is_whole);
            }
            OpenStream { answer, upload, body: None }
        })
    }

    /// Posts JSON and reads the answer to its end.
    pub fn post(&self, path: &str, headers: &[(&str, &str)], body: impl AsRef<[u8]>) -> Http2Answer {
        let headers = [headers, &[("content-type", "application/json")]].concat();
        self.finish(self.start("POST", path, &headers, body))
    }

    /// Reads data until `wanted` holds of all that came of the answer since the last call.
    ///
    /// # Panics
    /// When the stream ends or nothing comes in time.
    pub fn read_until(&self, open: &mut OpenStream, wanted: impl Fn(&[u8]) -> bool) -> Vec<u8> {
        self.runtime.handle.block_on(async {
            let mut all = Vec::new();
            while !wanted(&all) {
                let data = timeout(PATIENCE, open.data()).await.expect("data in time");
                all.extend_from_slice(&data.expect("the stream goes on").expect("the stream was not reset"));
            }
            all
        })
    }

    /// Waits so long for a piece of the answer; false when there was none, or no more will come.
    pub fn hears_within(&self, open: &mut OpenStream, limit: Duration) -> bool {
        self.runtime.handle.block_on(async { matches!(timeout(limit, open.data()).await, Ok(Some(Ok(_)))) })
    }

    /// Waits for the head of an answer.
    ///
    /// # Panics
    /// When there is none in time.
    pub fn head(&self, open: &mut OpenStream) -> StatusCode {
        self.runtime.handle.block_on(async {
            timeout(PATIENCE, open.head()).await.expect("an answer in time").expect("a head");
        });
        open.body.as_ref().expect("just read").0.status()
    }

    /// Reads the answer to its end.
    ///
    /// # Panics
    /// When there is no head, or no end in time.
    pub fn finish(&self, mut open: OpenStream) -> Http2Answer {
        self.runtime.handle.block_on(async {
            timeout(PATIENCE, open.head()).await.expect("an answer in time").expect("a head");
            let mut all = Vec::new();
            let mut reset = None;
            while let Some(data) = timeout(PATIENCE, open.data()).await.expect("data in time") {
                match data {
                    Ok(data) => all.extend_from_slice(&data),
                    Err(error) => {
                        reset = Some(error.reason().unwrap_or(Reason::INTERNAL_ERROR));
                        break;
                    }
                }
            }
            let (head, mut body) = open.body.take().expect("its head was read");
            let trailers = if reset.is_some() { Ok(None) } else { body.trailers().await };
            let reset = reset.or_else(|| trailers.as_ref().err().and_then(h2::Error::reason));
            let (head, ()) = head.into_parts();
            let trailers = trailers.unwrap_or_default();
            Http2Answer { status: head.status, headers: head.headers, body: all, trailers, reset }
        })
    }
}

impl OpenStream {
    /// Resets the stream, as a client that no longer wants the answer.
    pub fn reset(mut self) {
        self.upload.send_reset(Reason::CANCEL);
    }

    async fn head(&mut self) -> Result<(), h2::Error> {
        if self.body.is_none() {
            let (head, body) = (&mut self.answer).await?.into_parts();
            self.body = Some((Response::from_parts(head, ()), body));
        }
        Ok(())
    }

    async fn data(&mut self) -> Option<Result<Bytes, h2::Error>> {
        if let Err(error) = self.head().await {
            return Some(Err(error));
        }
        let (_, body) = self.body.as_mut().expect("its head was read");
        let data = body.data().await?;
        if let Ok(data) = &data {
            // A stream that has ended needs no more room.
            let _ = body.flow_control().release_capacity(data.len());
        }
        Some(data)
    }
}

/// A server that plays one script per connection. Dropping it ends them.
pub struct Http2Peer {
    /// Where it listens.
    pub address: SocketAddr,
    connections: Arc<AtomicUsize>,
    _runtime: Background,
}

impl Http2Peer {
    /// Listens. `play` is told how many connections there were before.
    ///
    /// # Panics
    /// When there is no free port.
    pub fn start<F, P>(builder: &server::Builder, play: F) -> Self
    where
        F: Fn(usize, server::Connection<TcpStream, Bytes>) -> P + Send + Sync + 'static,
        P: Future<Output = ()> + Send + 'static,
    {
        let runtime = Background::start();
        let listener = runtime.handle.block_on(TcpListener::bind("127.0.0.1:0")).expect("a free port on loopback");
        let address = listener.local_addr().expect("a bound socket has an address");
        let connections = Arc::new(AtomicUsize::new(0));
        let (counted, play, builder) = (Arc::clone(&connections), Arc::new(play), builder.clone());
        runtime.handle.spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let (play, builder, counted) = (Arc::clone(&play), builder.clone(), Arc::clone(&counted));
                tokio::spawn(async move {
                    // A connection that is only a look at the port never shakes hands.
                    if let Ok(connection) = builder.handshake(socket).await {
                        play(counted.fetch_add(1, Ordering::SeqCst), connection).await;
                    }
                });
            }
        });
        Self { address, connections, _runtime: runtime }
    }

    /// Connections so far.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

/// Answers a stream with a whole body.
///
/// # Panics
/// When the stream is gone.
pub fn respond(answer: &mut server::SendResponse<Bytes>, status: u16, content_type: &str, body: impl Into<Bytes>) {
    let head = Response::builder().status(status).header("content-type", content_type).body(()).expect("a head");
    let mut stream = answer.send_response(head, false).expect("the stream is open");
    stream.send_data(body.into(), true).expect("the stream is open");
}

/// A runtime that a thread of its own drives, so that connections go on between a test's calls. Dropping it ends them.
pub(crate) struct Background {
    handle: Handle,
    _stop: oneshot::Sender<()>,
}

impl Background {
    pub(crate) fn start() -> Self {
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel::<()>();
        thread::spawn(move || runtime.block_on(stopped));
        Self { handle, _stop: stop }
    }

    pub(crate) fn handle(&self) -> &Handle {
        &self.handle
    }
}
