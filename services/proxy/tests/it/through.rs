//! Both sides together: what a client does reaches the endpoint, and the other way round.

use std::sync::Arc;

use http::Method;
use http_body_util::BodyExt;
use proxy::{
    client::{Chunks, Clients, Destination, Protocol, Timeouts, TlsClient, TlsError, Verify},
    headers,
    serve::{Limits, RequestBody},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    sync::mpsc,
    time,
};

use crate::{
    client_http1::{self, endpoint, read_request},
    rig::{AT_ONCE, Door, answer, soon},
};

/// The smallest proxy there is.
fn forwarding(to: Arc<Destination>) -> Door {
    let clients = Clients::new();
    Door::open(Limits::default(), move |request: http::Request<RequestBody>| {
        let (clients, to) = (clients.clone(), Arc::clone(&to));
        async move {
            let (mut head, body) = request.into_parts();
            let body = Chunks::from(body.collect().await.unwrap().to_bytes());
            headers::prepare_request(&mut head.headers);
            match clients.send(&to, &head, body, &Timeouts::default()).await {
                Ok(answer) => {
                    let (mut parts, body) = answer.into_parts();
                    headers::prepare_response(&head.method, parts.status, &mut parts.headers);
                    http::Response::from_parts(parts, body.map_err(Into::into).boxed_unsync())
                }
                Err(error) => answer(502, error.to_string()),
            }
        }
    })
}

const POST: &str =
    "POST /x HTTP/1.1\r\nHost: g\r\nConnection: x-drop\r\nX-Drop: 1\r\nX-Keep: 1\r\nContent-Length: 2\r\n\r\nhi";

#[tokio::test]
async fn b03_a_client_that_leaves_hangs_up_on_its_endpoint() {
    for raw in
        ["", "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n", "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nabc"]
    {
        let (told, mut tell) = mpsc::unbounded_channel();
        let endpoint = endpoint(move |_, mut socket| {
            let told = told.clone();
            async move {
                read_request(&mut socket).await.unwrap();
                socket.write_all(raw.as_bytes()).await.unwrap();
                told.send("asked").unwrap();
                let _closed = socket.read(&mut [0]).await;
                told.send("closed").unwrap();
            }
        })
        .await;
        let door = forwarding(Arc::clone(&endpoint.to));
        let mut client = door.connect().await;
        client.send(POST).await;
        assert_eq!(soon(tell.recv()).await, Some("asked"));
        drop(client);
        assert_eq!(time::timeout(AT_ONCE, tell.recv()).await.unwrap(), Some("closed"), "{raw:?}");
    }
}

#[tokio::test]
async fn b07_an_endpoint_that_dies_inside_its_answer_cannot_look_complete() {
    for raw in [
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nabc",
    ] {
        let endpoint = endpoint(move |_, mut socket| async move {
            read_request(&mut socket).await.unwrap();
            socket.write_all(raw.as_bytes()).await.unwrap();
        })
        .await;
        let door = forwarding(Arc::clone(&endpoint.to));
        let mut client = door.connect().await;
        client.send(POST).await;
        let all = client.rest().await.unwrap_or_default();
        assert!(!all.ends_with("0\r\n\r\n") && !all.contains("abcdefghi"), "{all}");
        let mut again = door.connect().await;
        again.send(POST).await;
        again.until("abc").await;
    }
}

#[tokio::test]
async fn c05_b05_headers_and_framing_are_made_anew() {
    let (seen, mut saw) = mpsc::unbounded_channel();
    let endpoint = endpoint(move |_, mut socket| {
        let seen = seen.clone();
        async move {
            while let Some(request) = read_request(&mut socket).await {
                seen.send(request).unwrap();
                let raw = "HTTP/1.1 200 OK\r\ncontent-length: 212\r\ntransfer-encoding: chunked\r\nconnection: x-r\r\n\
                           x-r: 1\r\nset-cookie: a\r\nset-cookie: b\r\n\r\n2\r\nok\r\n0\r\n\r\n";
                socket.write_all(raw.as_bytes()).await.unwrap();
            }
        }
    })
    .await;
    let door = forwarding(Arc::clone(&endpoint.to));
    let mut client = door.connect().await;
    for _ in 0..2 {
        client.send(POST).await;
        let all = client.until("0\r\n\r\n").await;
        assert!(!all.contains("x-r") && !all.contains("212") && all.contains("2\r\nok\r\n"), "{all}");
        assert!(all.contains("set-cookie: a\r\nset-cookie: b\r\n"), "{all}");
        let request = saw.recv().await.unwrap();
        assert!(request.starts_with("POST /x HTTP/1.1\r\n") && request.ends_with("\r\n\r\nhi"), "{request}");
        assert!(!request.contains("x-drop") && request.contains("x-keep: 1"), "{request}");
    }
}

#[tokio::test]
async fn c09_head_then_get_on_one_connection() {
    let endpoint = endpoint(|_, mut socket| async move {
        while let Some(request) = read_request(&mut socket).await {
            let body = if request.starts_with("HEAD") { "" } else { "ok" };
            socket.write_all(format!("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{body}").as_bytes()).await.unwrap();
        }
    })
    .await;
    let door = forwarding(Arc::clone(&endpoint.to));
    let mut client = door.connect().await;
    for _ in 0..3 {
        client.send("HEAD / HTTP/1.1\r\nHost: g\r\n\r\n").await;
        assert!(client.until("\r\n\r\n").await.contains("content-length: 2"));
        client.send("GET / HTTP/1.1\r\nHost: g\r\n\r\n").await;
        assert_eq!(client.answer().await.1, "ok");
    }
    assert_eq!(endpoint.connections.load(std::sync::atomic::Ordering::SeqCst), 1);
}

#[test]
fn tls_settings_are_checked_when_they_are_made() {
    assert!(matches!(TlsClient::new("no name", &Verify::Nothing), Err(TlsError::ServerName { .. })));
    assert!(matches!(TlsClient::new("a.b", &Verify::CaFile("/nowhere".into())), Err(TlsError::CaFile { .. })));
    let mut file = tempfile::NamedTempFile::new().unwrap();
    assert!(matches!(TlsClient::new("a.b", &Verify::CaFile(file.path().into())), Err(TlsError::NoRoots)));
    std::io::Write::write_all(&mut file, include_bytes!("tls/ca.pem")).unwrap();
    assert!(TlsClient::new("10.0.0.1", &Verify::CaFile(file.path().into())).is_ok());
}

/// The certificates are for `endpoint.test`, by an authority made for this test, and valid for a hundred years.
async fn tls_endpoint(protocols: &[&str]) -> std::net::SocketAddr {
    use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
    let chain = CertificateDer::pem_slice_iter(include_bytes!("tls/endpoint.pem")).map(Result::unwrap).collect();
    let key = PrivateKeyDer::from_pem_slice(include_bytes!("tls/endpoint.key")).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let mut config = builder.with_no_client_auth().with_single_cert(chain, key).unwrap();
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let Ok(mut stream) = acceptor.accept(socket).await else { continue };
            tokio::spawn(async move {
                if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
                    let mut connection = h2::server::handshake(stream).await.unwrap();
                    while let Some(Ok((request, mut respond))) = connection.accept().await {
                        assert_eq!(request.uri().scheme_str(), Some("https"));
                        respond.send_response(http::Response::new(()), true).unwrap();
                    }
                    return;
                }
                let mut all = Vec::new();
                while !all.ends_with(b"hello") {
                    all.push(stream.read_u8().await.unwrap());
                }
                stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.unwrap();
            });
        }
    });
    address
}

#[tokio::test]
async fn tls_endpoints_are_believed_by_their_authority_and_name() {
    let mut authority = tempfile::NamedTempFile::new().unwrap();
    std::io::Write::write_all(&mut authority, include_bytes!("tls/ca.pem")).unwrap();
    let ca = Verify::CaFile(authority.path().into());
    for (name, verify, protocol, spoken, works) in [
        ("endpoint.test", &ca, Protocol::Http1, &["http/1.1"][..], true),
        ("endpoint.test", &ca, Protocol::Http1, &[], true),
        ("endpoint.test", &ca, Protocol::H2c, &["h2"], true),
        ("endpoint.test", &ca, Protocol::H2c, &[], false),
        ("other.test", &ca, Protocol::Http1, &[], false),
        ("other.test", &Verify::Nothing, Protocol::Http1, &[], true),
    ] {
        let address = tls_endpoint(spoken).await;
        let tls = Some(Arc::new(TlsClient::new(name, verify).unwrap()));
        let to = Arc::new(Destination { id: 1, address, protocol, tls, authority: "endpoint.test".parse().unwrap() });
        let head = client_http1::head(Method::POST);
        let sent = soon(Clients::new().send(&to, &head, client_http1::body(), &Timeouts::default())).await.map(drop);
        assert_eq!(sent.is_ok(), works, "{name} {verify:?} {protocol:?}: {sent:?}");
        if let Err(error) = sent {
            assert!(error.nothing_sent(), "{error:?}");
        }
    }
}
