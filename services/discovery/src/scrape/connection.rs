//! One kept-alive HTTP/1.1 connection to one port of one endpoint.
//!
//! hyper's connection is used bare: a pooling client would hide which connection an answer came by, and whether the
//! port was reached at all is half of what a look is to find out.

use std::{net::SocketAddr, sync::Arc};

use bytes::Bytes;
use http::{
    HeaderValue, Method, Request, Response, StatusCode, Uri, Version,
    header::{ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, HOST, USER_AGENT},
};
use http_body_util::Empty;
use hyper::{
    body::Incoming,
    client::conn::http1::{self, SendRequest},
};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    task::JoinHandle,
};
use tokio_rustls::TlsConnector;

use super::{Cause, Shared, body, tls};
use crate::resolve::{Found, TlsTo, Trust};

/// Largest head of an answer, and hyper's read buffer.
const HEAD_BYTES_MAX: usize = 64 << 10;

/// Plain text in any version; engines choose by this header and all know 0.0.4.
const ACCEPTED: HeaderValue = HeaderValue::from_static("text/plain;version=0.0.4;q=1,*/*;q=0.1");

const IDENTITY: HeaderValue = HeaderValue::from_static("identity");

const AGENT: HeaderValue = HeaderValue::from_static(concat!("inference-gateway/", env!("CARGO_PKG_VERSION")));

/// A failed look: why, and a word for the log.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) cause: Cause,
    pub(super) detail: String,
}

impl From<Cause> for Failure {
    fn from(cause: Cause) -> Self {
        Self { cause, detail: String::new() }
    }
}

fn failure(cause: Cause, error: impl std::error::Error) -> Failure {
    let mut detail = error.to_string();
    let mut source = error.source();
    while let Some(deeper) = source {
        detail = format!("{detail}: {deeper}");
        source = deeper.source();
    }
    Failure { cause, detail }
}

/// A port to ask, and the connection to it while there is one.
pub(super) struct Connection {
    address: SocketAddr,
    host: HeaderValue,
    authorization: Option<HeaderValue>,
    tls: Option<TlsTo>,
    /// The host as a name for TLS to verify.
    host_name: String,
    config: Option<Arc<ClientConfig>>,
    open: Option<Open>,
    reached: Reached,
    shared: Arc<Shared>,
}

/// How far the last request came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reached {
    /// There was no connection yet.
    Nothing,
    /// The port had taken the connection (and TLS stood, where spoken).
    Port,
}

struct Open {
    sender: SendRequest<Empty<Bytes>>,
    /// Moves the bytes. Dropping it closes the connection.
    _driver: Driver,
}

struct Driver(JoinHandle<()>);

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// An answer, as far as it could be read.
pub(super) struct Answer {
    pub(super) status: StatusCode,
    /// In plain bytes, or why not: to some the status is enough.
    pub(super) body: Result<Bytes, Cause>,
}

impl Connection {
    /// To where `found` has its metrics page.
    pub(super) fn to_metrics(found: &Found, shared: Arc<Shared>) -> Self {
        Self::to_port(found, found.want.metrics.port, shared)
    }

    /// To where `found` serves.
    pub(super) fn to_serving(found: &Found, shared: Arc<Shared>) -> Self {
        Self::to_port(found, found.want.port, shared)
    }

    fn to_port(found: &Found, port: u16, shared: Arc<Shared>) -> Self {
        let want = &found.want;
        let host = pool::Address { host: want.host.clone(), port }.to_string();
        let serving = port == want.port;
        if serving && matches!(&want.tls, Some(TlsTo { trust: Trust::Anyone, .. })) {
            tracing::warn!(
                endpoint = &*found.endpoint.name,
                "INSECURE: the endpoint's certificate is not verified (insecureSkipVerify)"
            );
        }
        Self {
            address: SocketAddr::new(found.endpoint.address.ip(), port),
            host: HeaderValue::try_from(host).expect("a host is a DNS name or an address"),
            authorization: want.authorization.clone().filter(|_| serving),
            tls: want.tls.clone().filter(|_| serving),
            host_name: want.host.to_string().trim_matches(['[', ']']).to_owned(),
            config: None,
            open: None,
            reached: Reached::Nothing,
            shared,
        }
    }

    /// Whom this asks.
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// How far the request under way, or the last one, came. Also true of one that was dropped.
    pub(super) fn reached(&self) -> Reached {
        self.reached
    }

    /// Gives up the connection; the next request makes a new one, reading certificate authorities anew.
    pub(super) fn close(&mut self) {
        self.open = None;
        self.config = None;
    }

    /// Asks for `path`. The connection is kept if the answer was read to its end. Where a kept one turns out to be
    /// closed, as engines do after some seconds of idleness, a new one is tried at once.
    pub(super) async fn get(&mut self, path: &str, bytes_max: usize) -> Result<Answer, Failure> {
        let uri: Uri = path.parse().map_err(|error| failure(Cause::Protocol, error))?;
        // Out of `self` while in use, so that dropping this future closes it.
        let kept = self.open.take().filter(|open| !open.sender.is_closed());
        let (mut open, response) = match kept {
            Some(mut open) => match self.ask(&mut open, &uri).await {
                Ok(response) => (open, response),
                Err(_) => self.ask_anew(&uri).await?,
            },
            None => self.ask_anew(&uri).await?,
        };
        let (head, incoming) = response.into_parts();
        let body = body::collect(incoming, bytes_max).await;
        if body.is_ok() && open.sender.ready().await.is_ok() {
            self.open = Some(open);
        }
        let body = body.and_then(|body| body::decode(&head.headers, body, bytes_max));
        Ok(Answer { status: head.status, body })
    }

    async fn ask_anew(&mut self, uri: &Uri) -> Result<(Open, Response<Incoming>), Failure> {
        let mut open = self.connect().await?;
        let response = self.ask(&mut open, uri).await.map_err(|error| failure(Cause::Protocol, error))?;
        Ok((open, response))
    }

    async fn ask(&self, open: &mut Open, uri: &Uri) -> Result<Response<Incoming>, hyper::Error> {
        let mut request = Request::new(Empty::new());
        *request.method_mut() = Method::GET;
        *request.version_mut() = Version::HTTP_11;
        *request.uri_mut() = uri.clone();
        let headers = request.headers_mut();
        headers.insert(HOST, self.host.clone());
        headers.insert(USER_AGENT, AGENT);
        headers.insert(ACCEPT, ACCEPTED);
        headers.insert(ACCEPT_ENCODING, IDENTITY);
        if let Some(authorization) = &self.authorization {
            headers.insert(AUTHORIZATION, authorization.clone());
        }
        open.sender.ready().await?;
        open.sender.send_request(request).await
    }

    async fn connect(&mut self) -> Result<Open, Failure> {
        self.reached = Reached::Nothing;
        let stream = TcpStream::connect(self.address).await.map_err(|error| failure(Cause::Connect, error))?;
        stream.set_nodelay(true).map_err(|error| failure(Cause::Connect, error))?;
        let Some(tls) = &self.tls else {
            self.reached = Reached::Port;
            return open(stream).await;
        };
        let setup = |error| failure(Cause::Connect, error);
        let name: ServerName<'static> = tls::server_name(tls.server_name.as_deref(), &self.host_name).map_err(setup)?;
        let config = match &self.config {
            Some(config) => config.clone(),
            None => self.shared.roots.client(&tls.trust).map_err(setup)?,
        };
        self.config = Some(config.clone());
        let session = TlsConnector::from(config).connect(name, stream).await;
        let session = session.map_err(|error| failure(Cause::Connect, error))?;
        self.reached = Reached::Port;
        open(session).await
    }
}

async fn open(stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static) -> Result<Open, Failure> {
    let mut builder = http1::Builder::new();
    builder.max_buf_size(HEAD_BYTES_MAX);
    let handshake = builder.handshake(TokioIo::new(stream)).await;
    let (sender, connection) = handshake.map_err(|error| failure(Cause::Protocol, error))?;
    // How it ends is seen by whoever waits for an answer.
    let driver = Driver(tokio::spawn(async move { connection.await.unwrap_or_default() }));
    Ok(Open { sender, _driver: driver })
}
