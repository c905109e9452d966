//! A server that answers with what it was asked: the stand-in for the image that test suites use as a back end.
//!
//! Its variables, ports and JSON are those that the suites expect; it binds the pod's address, because pods share one
//! network here.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    env,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use anyhow::Context;
use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode, Version, header::HeaderName};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto::Builder,
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpListener,
};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        ServerConfig, ServerConnection,
        crypto::ring,
        pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
    },
};

/// What a request may bring; more is not echoed anyway.
const BODY_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Response headers that a request asks for.
const SET_HEADER: &str = "x-echo-set-header";

/// Serves until it is killed.
///
/// # Errors
/// When it cannot listen.
pub(crate) fn run(address: IpAddr) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let port = |name: &str, default: u16| env::var(name).ok().and_then(|port| port.parse().ok()).unwrap_or(default);
        let http = port("HTTP_PORT", 3000);
        let about = Arc::new(About::read(http));
        let plain = [http, port("H2C_PORT", 3001)].map(|port| SocketAddr::new(address, port));
        for at in plain {
            let listener = TcpListener::bind(at).await.with_context(|| format!("cannot listen on {at}"))?;
            println!("listening on {at}");
            tokio::spawn(accept(listener, None, about.clone()));
        }
        if let (Ok(certificate), Ok(key)) = (env::var("TLS_SERVER_CERT"), env::var("TLS_SERVER_PRIVKEY")) {
            let at = SocketAddr::new(address, port("HTTPS_PORT", 8443));
            let listener = TcpListener::bind(at).await.with_context(|| format!("cannot listen on {at}"))?;
            println!("listening on {at} (TLS)");
            tokio::spawn(accept(listener, Some(acceptor(&certificate, &key)?), about));
        }
        std::future::pending().await
    })
}

/// Who answers.
struct About {
    port: u16,
    context: [(&'static str, String); 4],
}

impl About {
    fn read(port: u16) -> Self {
        let named =
            [("namespace", "NAMESPACE"), ("ingress", "INGRESS_NAME"), ("service", "SERVICE_NAME"), ("pod", "POD_NAME")];
        Self { port, context: named.map(|(key, variable)| (key, env::var(variable).unwrap_or_default())) }
    }
}

fn acceptor(certificate: &str, key: &str) -> anyhow::Result<TlsAcceptor> {
    let chain = CertificateDer::pem_file_iter(certificate)?.collect::<Result<Vec<_>, _>>()?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, PrivateKeyDer::from_pem_file(key)?)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

async fn accept(listener: TcpListener, tls: Option<TlsAcceptor>, about: Arc<About>) {
    while let Ok((stream, _)) = listener.accept().await {
        let (tls, about) = (tls.clone(), about.clone());
        tokio::spawn(async move {
            match tls {
                None => serve(stream, about, None).await,
                Some(tls) => {
                    if let Ok(stream) = tls.accept(stream).await {
                        let told = told(stream.get_ref().1);
                        serve(stream, about, Some(told)).await;
                    }
                }
            }
        });
    }
}

async fn serve(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, about: Arc<About>, tls: Option<Value>) {
    let service = hyper::service::service_fn(move |request| {
        let (about, tls) = (about.clone(), tls.clone());
        async move { Ok::<_, Infallible>(answer(request, &about, tls).await) }
    });
    // A client that breaks off is no concern of this server.
    let _ = Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service).await;
}

fn told(connection: &ServerConnection) -> Value {
    let version = match connection.protocol_version() {
        Some(tokio_rustls::rustls::ProtocolVersion::TLSv1_2) => "TLSv1.2",
        _ => "TLSv1.3",
    };
    json!({
        "version": version,
        "serverName": connection.server_name().unwrap_or_default(),
        "negotiatedProtocol": connection.alpn_protocol().map(String::from_utf8_lossy),
        "cipherSuite": connection.negotiated_cipher_suite().map(|suite| format!("{:?}", suite.suite())),
    })
}

async fn answer(request: Request<Incoming>, about: &About, tls: Option<Value>) -> Response<Full<Bytes>> {
    let (head, body) = request.into_parts();
    // Read to its end, so that a client that is still writing is not cut off.
    let read = http_body_util::Limited::new(body, BODY_BYTES_MAX).collect().await;
    if read.is_err() {
        return plain(StatusCode::BAD_REQUEST, "the body could not be read");
    }
    let path = head.uri.path();
    if path == "/health" {
        return plain(StatusCode::OK, "OK");
    }
    if let Some(code) = path.strip_prefix("/status/") {
        return plain(code.parse().unwrap_or(StatusCode::BAD_REQUEST), "");
    }
    if let Some(delay) = head.uri.query().and_then(delay) {
        tokio::time::sleep(delay).await;
    }
    let mut document = json!({
        "path": head.uri.path_and_query().map_or(path, |target| target.as_str()),
        "host": host(&head),
        "method": head.method.as_str(),
        "proto": proto(head.version),
        "headers": headers(&head.headers),
        "httpPort": about.port.to_string(),
    });
    for (key, value) in &about.context {
        document[*key] = json!(value);
    }
    if let Some(tls) = tls {
        document["tls"] = tls;
    }
    let text = serde_json::to_string_pretty(&document).unwrap_or_default();
    let mut response = plain(StatusCode::OK, text);
    response.headers_mut().insert("content-type", http::HeaderValue::from_static("application/json"));
    response.headers_mut().insert("x-content-type-options", http::HeaderValue::from_static("nosniff"));
    for (name, value) in asked_for(&head.headers) {
        response.headers_mut().insert(name, value);
    }
    response
}

fn plain(status: StatusCode, text: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(text.into()));
    *response.status_mut() = status;
    response
}

fn host(head: &http::request::Parts) -> String {
    let header = head.headers.get("host").and_then(|host| host.to_str().ok()).map(str::to_owned);
    header.or_else(|| head.uri.authority().map(ToString::to_string)).unwrap_or_default()
}

fn proto(version: Version) -> &'static str {
    match version {
        Version::HTTP_10 => "HTTP/1.0",
        Version::HTTP_2 => "HTTP/2.0",
        _ => "HTTP/1.1",
    }
}

/// Names written as `Content-Type`, as the suites look for them.
fn headers(map: &HeaderMap) -> BTreeMap<String, Vec<String>> {
    let mut headers = BTreeMap::<String, Vec<String>>::new();
    for (name, value) in map.iter().filter(|(name, _)| *name != "host") {
        headers.entry(canonical(name)).or_default().push(String::from_utf8_lossy(value.as_bytes()).into_owned());
    }
    headers
}

fn canonical(name: &HeaderName) -> String {
    let words = name.as_str().split('-').map(|word| {
        let (first, rest) = word.split_at(word.len().min(1));
        format!("{}{rest}", first.to_ascii_uppercase())
    });
    words.collect::<Vec<_>>().join("-")
}

/// Of `X-Echo-Set-Header: NAME: VALUE, NAME: VALUE`; values of one name are joined.
fn asked_for(map: &HeaderMap) -> Vec<(HeaderName, http::HeaderValue)> {
    let mut pairs = Vec::<(HeaderName, String)>::new();
    for list in map.get_all(SET_HEADER).iter().filter_map(|value| value.to_str().ok()) {
        for pair in list.split(',') {
            let (name, value) = pair.trim().split_once(':').unwrap_or((pair.trim(), ""));
            let Ok(name) = name.parse::<HeaderName>() else { continue };
            match pairs.iter_mut().find(|(known, _)| *known == name) {
                Some((_, known)) => known.push_str(&format!(",{}", value.trim())),
                None => pairs.push((name, value.trim().to_owned())),
            }
        }
    }
    pairs.into_iter().filter_map(|(name, value)| Some((name, value.parse().ok()?))).collect()
}

/// Of `?delay=500ms` or `?delay=2s`.
fn delay(query: &str) -> Option<Duration> {
    let value = query.split('&').find_map(|pair| pair.strip_prefix("delay="))?;
    if let Some(ms) = value.strip_suffix("ms") {
        return ms.parse().ok().map(Duration::from_millis);
    }
    value.strip_suffix('s')?.parse::<f64>().ok().map(Duration::from_secs_f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_told_with_capitals_and_set_as_asked() {
        let mut map = HeaderMap::new();
        map.insert("x-request-id", "7".parse().unwrap());
        map.append(SET_HEADER, "a: 1, b:2".parse().unwrap());
        map.append(SET_HEADER, "a:3".parse().unwrap());
        assert_eq!(headers(&map)["X-Request-Id"], ["7"]);
        let set: Vec<_> =
            asked_for(&map).iter().map(|(name, value)| format!("{name}={}", value.to_str().unwrap())).collect();
        assert_eq!(set, ["a=1,3", "b=2"]);
    }

    #[test]
    fn delays_are_read() {
        assert_eq!(delay("x=1&delay=250ms"), Some(Duration::from_millis(250)));
        assert_eq!(delay("delay=1.5s"), Some(Duration::from_millis(1500)));
        assert_eq!(delay("delayed=1s"), None);
    }
}
