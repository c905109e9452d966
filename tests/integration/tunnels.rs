//! CONNECT over HTTP/2, plain and extended: refused at once, and the connection stays good.

use std::time::Duration;

use h2::ext::Protocol;
use harness::{Config, Gateway, Peer};
use http::{Method, Request};
use tokio::{net::TcpStream, runtime::Builder, time::timeout};

use crate::two_models::CHAT;

/// How a request ends: with a status, or with a reset of its stream.
type Ending = Result<u16, h2::Reason>;

/// Sends requests one after the other on one connection; each leaves its own half open, as a tunnel would.
fn ask(gateway: &Gateway, requests: Vec<(Request<()>, &'static str)>) -> Vec<Ending> {
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime starts");
    runtime.block_on(async {
        let stream = TcpStream::connect(gateway.data).await.expect("the gateway listens");
        let (mut sender, connection) = h2::client::handshake(stream).await.expect("it speaks HTTP/2");
        tokio::spawn(connection);
        let mut endings = Vec::new();
        for (request, body) in requests {
            sender = sender.ready().await.expect("the connection stays good");
            let (answer, mut upload) = sender.send_request(request, false).expect("a stream opens");
            if !body.is_empty() {
                upload.send_data(body.into(), true).expect("an open stream takes data");
            }
            let answer = timeout(Duration::from_secs(10), answer).await.expect("never a hang");
            endings
                .push(answer.map(|answer| answer.status().as_u16()).map_err(|error| error.reason().expect("a reset")));
        }
        endings
    })
}

#[test]
fn c10_connect_over_http2_is_refused_at_once() {
    let peer = Peer::plain();
    let gateway = Gateway::start(&Config::plain("m1", [peer.address]));
    let plain = Request::builder().method(Method::CONNECT).uri("m1:8000").body(()).unwrap();
    let mut extended =
        Request::builder().method(Method::CONNECT).uri("http://g/v1/realtime?model=m1").body(()).unwrap();
    extended.extensions_mut().insert(Protocol::from_static("websocket"));
    let mut served = Request::builder().method(Method::CONNECT).uri("http://g/v1/chat/completions").body(()).unwrap();
    served.extensions_mut().insert(Protocol::from_static("websocket"));
    let chat = Request::builder().method(Method::POST).uri("http://g/v1/chat/completions").body(()).unwrap();
    let endings = ask(&gateway, vec![(plain, ""), (extended, ""), (served, ""), (chat, CHAT)]);
    let refused = |ending: &Ending| matches!(ending, Ok(400..=499) | Err(h2::Reason::PROTOCOL_ERROR));
    assert!(endings[..3].iter().all(refused), "{endings:?}");
    assert_eq!(endings[3], Ok(200));
    assert_eq!(peer.seen().len(), 1);
}
