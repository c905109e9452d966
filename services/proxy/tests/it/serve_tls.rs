//! TLS at the door: the same guards as in plain text, and those of the handshake.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::{Duration, Instant},
};

use bytes::Bytes;
use futures_core::Stream;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use hyper_util::rt::{TokioExecutor, TokioIo};
use proxy::serve::{
    Drained, Limits, Refused,
    tls::{Certificate, Site},
};
use rcgen::{CertificateParams, KeyPair};
use rustls::{
    ClientConfig, RootCertStore, SupportedProtocolVersion,
    crypto::ring,
    version::{TLS12, TLS13},
};
use rustls_pki_types::{CertificateDer, ServerName};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt, DuplexStream, copy, duplex, split},
    net::TcpStream,
    sync::oneshot,
    task::JoinHandle,
};
use tokio_rustls::{TlsConnector, client::TlsStream};

use crate::{
    rig::{AT_ONCE, Door, Failure, answer, full, soon, text_of},
    serve_gone::{Endless, Stuck},
};

const GET: &str = "GET / HTTP/1.1\r\nHost: g\r\n\r\n";
const NAME: &str = "gateway.test";

/// A certificate for [`NAME`], self-signed, and what trusts it.
fn pair() -> (Arc<Certificate>, CertificateDer<'static>) {
    let key = KeyPair::generate().unwrap();
    let made = CertificateParams::new(vec![NAME.to_owned()]).unwrap().self_signed(&key).unwrap();
    let pair = Certificate::from_pem(made.pem().as_bytes(), key.serialize_pem().as_bytes()).unwrap();
    (Arc::new(pair), made.der().clone())
}

fn show(door: &Door, pair: &Arc<Certificate>) {
    door.tls.speak_tls(vec![Site { hostname: None, certificates: vec![Arc::clone(pair)] }]).unwrap();
}

fn secure(door: &Door) -> CertificateDer<'static> {
    let (pair, trusted) = pair();
    show(door, &pair);
    trusted
}

fn client(
    trusted: &CertificateDer<'static>,
    alpn: &[&str],
    versions: &[&'static SupportedProtocolVersion],
) -> TlsConnector {
    let mut roots = RootCertStore::empty();
    roots.add(trusted.clone()).unwrap();
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder.with_protocol_versions(versions).unwrap();
    let mut config = builder.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
    TlsConnector::from(Arc::new(config))
}

async fn connect(door: &Door, connector: &TlsConnector) -> io::Result<TlsStream<TcpStream>> {
    let tcp = TcpStream::connect(door.address).await?;
    soon(connector.connect(ServerName::try_from(NAME).unwrap(), tcp)).await
}

async fn http1(door: &Door, trusted: &CertificateDer<'static>) -> TlsStream<TcpStream> {
    connect(door, &client(trusted, &["http/1.1"], &[&TLS13])).await.unwrap()
}

/// Everything until the server says that it was all; an error if it only stops.
async fn rest(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<String> {
    let mut all = Vec::new();
    soon(stream.read_to_end(&mut all)).await?;
    Ok(text_of(&all))
}

async fn ask(stream: &mut TlsStream<TcpStream>) {
    stream.write_all(GET.as_bytes()).await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(soon(stream.read_u8()).await.unwrap());
    }
    let head = text_of(&head);
    assert!(head.starts_with("HTTP/1.1 200 ") && head.contains("content-length: 0"), "{head}");
}

#[tokio::test]
async fn both_versions_of_tls_and_of_http_are_spoken() {
    let door = Door::echo(Limits::default());
    let trusted = secure(&door);
    for version in [&TLS12, &TLS13] {
        for (alpn, agreed) in [(&["h2", "http/1.1"][..], Some("h2")), (&["http/1.1"], Some("http/1.1")), (&[], None)] {
            let stream = connect(&door, &client(&trusted, alpn, &[version])).await.unwrap();
            assert_eq!(stream.get_ref().1.alpn_protocol(), agreed.map(str::as_bytes));
            if agreed != Some("h2") {
                // More than one record, both ways.
                let body = "x".repeat(100_000);
                let head = format!(
                    "POST / HTTP/1.1\r\nHost: g\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
                    body.len()
                );
                let (mut reader, mut writer) = tokio::io::split(stream);
                let sending = async {
                    writer.write_all(head.as_bytes()).await.unwrap();
                    writer.write_all(body.as_bytes()).await.unwrap();
                    writer.flush().await.unwrap();
                };
                let mut all = Vec::new();
                let (read, ()) = soon(async { tokio::join!(reader.read_to_end(&mut all), sending) }).await;
                read.expect("the end is told");
                assert!(all.starts_with(b"HTTP/1.1 200 ") && all.ends_with(body.as_bytes()));
                continue;
            }
            let (mut send, connection) = hyper::client::conn::http2::Builder::new(TokioExecutor::new())
                .handshake(TokioIo::new(stream))
                .await
                .unwrap();
            let asked = async {
                let request = Request::post("https://gateway.test/").body(full("hello")).unwrap();
                let answer = send.send_request(request).await.unwrap();
                assert_eq!(answer.status(), StatusCode::OK);
                assert_eq!(answer.into_body().collect().await.unwrap().to_bytes(), "hello");
            };
            soon(async {
                tokio::select! { _ = connection => panic!("it ended"), () = asked => {} }
            })
            .await;
        }
    }
    assert_eq!(door.refused(), []);
}

#[tokio::test]
async fn a_handshake_that_fails_is_counted_once_and_is_no_request() {
    let door = Door::open(Limits::default(), |_| async { panic!("no request was sent") });
    let trusted = secure(&door);
    let expected = |counts: usize| {
        let refused = Arc::clone(&door.refused);
        async move {
            while refused.lock().unwrap().len() < counts {
                tokio::task::yield_now().await;
            }
        }
    };
    // Plain text, a protocol that is not spoken here, and what is no TLS at all.
    let mut plain = door.connect().await;
    plain.send(GET).await;
    assert!(!plain.rest().await.unwrap_or_default().contains("HTTP"), "nothing in plain text");
    assert!(connect(&door, &client(&trusted, &["spdy/1"], &[&TLS13])).await.is_err());
    let mut garbage = door.connect().await;
    garbage.send([0x16, 3, 1, 0xff, 0xff, 0, 0, 0]).await;
    garbage.send([0; 70_000]).await;
    soon(expected(3)).await;
    assert_eq!(door.refused(), [Refused::Handshake; 3]);
    // Whoever only looks whether the port is open is not counted.
    drop(door.connect().await);
    soon(async {
        while door.serving.as_ref().unwrap().open_connections() > 1 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(door.refused().len(), 3);
}

#[tokio::test]
async fn a_handshake_has_the_time_of_a_head() {
    let limits = Limits { head_timeout: Duration::from_millis(300), ..Limits::default() };
    let door = Door::echo(limits);
    let trusted = secure(&door);
    let start = Instant::now();
    let (mut begun, mut silent) = (door.connect().await, door.connect().await);
    begun.send([0x16, 3, 1]).await;
    assert_eq!(begun.rest().await.unwrap(), "");
    assert_eq!(silent.rest().await.unwrap(), "");
    assert!(start.elapsed() >= Duration::from_millis(290), "{:?}", start.elapsed());
    assert_eq!(door.refused(), [Refused::HandshakeTimeout], "one that said nothing is not counted");
    // One that shook hands and says nothing, and one that stops inside its head.
    let (mut quiet, mut slow) = (http1(&door, &trusted).await, http1(&door, &trusted).await);
    slow.write_all(b"GET / HTTP/1.1\r\n").await.unwrap();
    assert!(rest(&mut slow).await.unwrap().starts_with("HTTP/1.1 408 "));
    let _either = rest(&mut quiet).await;
    assert_eq!(door.refused(), [Refused::HandshakeTimeout, Refused::HeadTimeout]);
}

#[tokio::test]
async fn i08_new_handshakes_show_the_new_pair_and_open_connections_live_on() {
    let door = Door::echo(Limits::default());
    let (old, new) = (pair(), pair());
    show(&door, &old.0);
    let mut open = http1(&door, &old.1).await;
    ask(&mut open).await;
    show(&door, &new.0);
    ask(&mut open).await;
    ask(&mut http1(&door, &new.1).await).await;
    assert!(connect(&door, &client(&old.1, &[], &[&TLS13])).await.is_err(), "nobody shows the old one");

    door.tls.speak_plain();
    ask(&mut open).await;
    let mut plain = door.connect().await;
    plain.send(GET).await;
    assert!(plain.answer().await.0.starts_with("HTTP/1.1 200 "));
}

#[tokio::test]
async fn what_cannot_be_read_is_refused_in_our_words() {
    let door = Door::echo(Limits::default());
    let trusted = secure(&door);
    let mut stream = http1(&door, &trusted).await;
    stream.write_all(b"NOT HTTP\r\n\r\n").await.unwrap();
    let all = rest(&mut stream).await.unwrap();
    assert!(all.starts_with("HTTP/1.1 400 ") && all.ends_with(r#"{"BadRequest":1}"#), "{all}");
}

#[tokio::test]
async fn c01_a_client_that_leaves_is_noticed_at_once() {
    for stuck in [Stuck::BeforeTheHead, Stuck::InTheAnswer] {
        let mut endless = Endless::open(stuck);
        let trusted = secure(&endless.door);
        let mut stream = http1(&endless.door, &trusted).await;
        stream.write_all(b"POST / HTTP/1.1\r\nHost: g\r\nContent-Length: 2\r\n\r\nhi").await.unwrap();
        soon(endless.started.recv()).await.unwrap();
        drop(stream);
        tokio::time::timeout(AT_ONCE * 5, endless.dropped).await.expect("at once").unwrap();
    }
}

#[tokio::test]
async fn an_answer_cut_short_does_not_look_complete() {
    let door = Door::open(Limits::default(), |_| async {
        let frames: [Result<Frame<Bytes>, Failure>; 2] =
            [Ok(Frame::data(Bytes::from_static(b"half"))), Err("broken".into())];
        http::Response::new(StreamBody::new(Frames(frames.into_iter())).boxed_unsync())
    });
    let trusted = secure(&door);
    let mut stream = http1(&door, &trusted).await;
    stream.write_all(b"GET / HTTP/1.0\r\n\r\n").await.unwrap();
    let mut all = Vec::new();
    let read = soon(stream.read_to_end(&mut all)).await;
    assert!(text_of(&all).ends_with("half"), "{}", text_of(&all));
    assert_eq!(read.map_err(|error| error.kind()), Err(io::ErrorKind::UnexpectedEof), "no close_notify");
}

struct Frames<I>(I);

impl<I: Iterator + Unpin> Stream for Frames<I> {
    type Item = I::Item;

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<I::Item>> {
        Poll::Ready(self.0.next())
    }
}

/// A client whose hello is answered, and that gets to see the answer when `see` is told.
struct Slow {
    see: oneshot::Sender<()>,
    stream: JoinHandle<io::Result<TlsStream<DuplexStream>>>,
}

impl Slow {
    async fn connect(door: &Door, connector: TlsConnector) -> Self {
        let (mut reader, mut writer) = TcpStream::connect(door.address).await.unwrap().into_split();
        let (inside, outside) = duplex(64 * 1024);
        let (mut from_client, mut to_client) = split(outside);
        let (see, may_see) = oneshot::channel();
        let (tell_answered, answered) = oneshot::channel();
        tokio::spawn(async move { copy(&mut from_client, &mut writer).await });
        tokio::spawn(async move {
            let mut first = [0];
            reader.read_exact(&mut first).await.unwrap();
            tell_answered.send(()).unwrap();
            may_see.await.unwrap();
            to_client.write_all(&first).await.unwrap();
            copy(&mut reader, &mut to_client).await.unwrap();
            to_client.shutdown().await
        });
        let stream = tokio::spawn(async move { connector.connect(ServerName::try_from(NAME).unwrap(), inside).await });
        soon(answered).await.unwrap();
        Self { see, stream }
    }

    async fn finish(self) -> TlsStream<DuplexStream> {
        self.see.send(()).unwrap();
        soon(self.stream).await.unwrap().unwrap()
    }
}

#[tokio::test]
async fn g08_a_request_that_comes_with_the_end_of_a_handshake_is_answered_in_a_drain() {
    let mut door = Door::open(Limits::default(), |_| async { answer(200, "") });
    let trusted = secure(&door);
    let mut idle = http1(&door, &trusted).await;
    ask(&mut idle).await;
    // A client whose hello has arrived, and that is slow with the rest of its handshake.
    let slow = Slow::connect(&door, client(&trusted, &["http/1.1"], &[&TLS13])).await;
    let serving = door.serving.take().unwrap();
    door.drain.begin();
    let draining = tokio::spawn(async move { serving.drained(Duration::from_secs(60)).await });
    assert_eq!(rest(&mut idle).await.unwrap(), "", "the idle one is closed, with a close_notify");
    let mut stream = slow.finish().await;
    stream.write_all(GET.as_bytes()).await.unwrap();
    let all = rest(&mut stream).await.unwrap();
    assert!(all.starts_with("HTTP/1.1 200 ") && all.contains("connection: close"), "{all}");
    assert_eq!(soon(draining).await.unwrap(), Drained { aborted: 0 });
}
