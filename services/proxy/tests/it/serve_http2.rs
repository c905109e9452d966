//! HTTP/2 with prior knowledge on the same port.

use std::time::{Duration, Instant};

use bytes::Bytes;
use h2::{Reason, client};
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Frame;
use proxy::serve::{Drained, Limits, Refused};
use tokio::{net::TcpStream, sync::watch, time};

use crate::{
    rig::{AT_ONCE, Door, answer, soon},
    serve_gone::{Endless, Stuck},
};

async fn dial(door: &Door) -> client::SendRequest<Bytes> {
    let (sender, connection) = client::handshake(TcpStream::connect(door.address).await.unwrap()).await.unwrap();
    tokio::spawn(connection);
    sender
}

fn post(path: &str) -> Request<()> {
    Request::post(format!("http://g{path}")).body(()).unwrap()
}

async fn read(mut body: h2::RecvStream) -> Result<Vec<u8>, h2::Error> {
    let mut all = Vec::new();
    while let Some(data) = soon(body.data()).await {
        let data = data?;
        body.flow_control().release_capacity(data.len())?;
        all.extend_from_slice(&data);
    }
    Ok(all)
}

/// Writes as much as the peer takes, reading nothing in between.
async fn write_all(mut stream: h2::SendStream<Bytes>, mut left: usize) -> Result<(), h2::Error> {
    while left > 0 {
        stream.reserve_capacity(left);
        match std::future::poll_fn(|cx| stream.poll_capacity(cx)).await {
            Some(room) => {
                let room = room?.min(left);
                left -= room;
                stream.send_data(Bytes::from(vec![b'x'; room]), left == 0)?;
            }
            None => return Err(Reason::STREAM_CLOSED.into()),
        }
    }
    Ok(())
}

#[tokio::test]
async fn requests_share_a_connection() {
    let door = Door::echo(Limits::default());
    let mut sender = dial(&door).await;
    let mut open = Vec::new();
    for n in 0..20 {
        sender = soon(sender.ready()).await.unwrap();
        let (answer, mut stream) = sender.send_request(post("/"), false).unwrap();
        stream.send_data(Bytes::from(n.to_string()), true).unwrap();
        open.push((n, answer));
    }
    for (n, answer) in open {
        let answer = soon(answer).await.unwrap();
        assert_eq!(answer.status(), 200);
        assert_eq!(read(answer.into_body()).await.unwrap(), n.to_string().into_bytes());
    }
    assert_eq!(door.serving.as_ref().unwrap().open_connections(), 1);
}

#[tokio::test]
async fn a03_a_413_can_be_read_by_who_writes_everything_first() {
    let door = Door::open(Limits::default(), |_| async { answer(413, "too large") });
    for n in 0..50 {
        let mut sender = dial(&door).await;
        let length = 3 * 1024 * 1024;
        let mut request = post("/");
        if n % 2 == 0 {
            request.headers_mut().insert("content-length", length.into());
        }
        let (answer, stream) = sender.send_request(request, false).unwrap();
        soon(write_all(stream, length)).await.expect("the whole body is taken");
        let answer = soon(answer).await.unwrap();
        assert_eq!(answer.status(), 413);
        assert_eq!(read(answer.into_body()).await.unwrap(), b"too large");
    }
}

#[tokio::test]
async fn c06_a_head_over_the_limits_gets_431() {
    let door = Door::echo(Limits::default());
    for (bytes, status) in [(17_000, 200), (60_000, 200), (70_000, 431)] {
        let mut sender = dial(&door).await;
        let mut request = post("/");
        request.headers_mut().insert("x-long", HeaderValue::from_str(&"a".repeat(bytes)).unwrap());
        let (answer, _) = sender.send_request(request, true).unwrap();
        assert_eq!(soon(answer).await.unwrap().status(), status, "{bytes}");
    }
    let mut sender = dial(&door).await;
    let mut request = post("/");
    for n in 0..101 {
        request.headers_mut().append("x-short", n.into());
    }
    let (answer, _) = sender.send_request(request, true).unwrap();
    assert_eq!(soon(answer).await.unwrap().status(), 431);
    assert_eq!(door.refused(), [Refused::HeadTooLarge]);
}

#[tokio::test]
async fn b03_a_reset_drops_the_service_or_the_answer() {
    for stuck in [Stuck::BeforeTheHead, Stuck::BeforeTheBody, Stuck::InTheAnswer] {
        let mut endless = Endless::open(stuck);
        let mut sender = dial(&endless.door).await;
        let (answer, mut stream) = sender.send_request(post("/"), false).unwrap();
        if stuck != Stuck::BeforeTheBody {
            stream.send_data(Bytes::from_static(b"hi"), true).unwrap();
        }
        soon(endless.started.recv()).await.unwrap();
        stream.send_reset(Reason::CANCEL);
        endless.ends_at_once().await;
        drop((answer, sender));
    }
}

#[tokio::test]
async fn b03_the_end_of_the_connection_drops_all_its_streams() {
    for stuck in [Stuck::BeforeTheHead, Stuck::BeforeTheBody, Stuck::InTheAnswer] {
        let mut endless = Endless::open(stuck);
        let socket = TcpStream::connect(endless.door.address).await.unwrap();
        let (mut sender, connection) = client::handshake(socket).await.unwrap();
        let connection = tokio::spawn(connection);
        let (_answer, mut stream) = sender.send_request(post("/"), false).unwrap();
        if stuck != Stuck::BeforeTheBody {
            stream.send_data(Bytes::from_static(b"hi"), true).unwrap();
        }
        soon(endless.started.recv()).await.unwrap();
        connection.abort();
        endless.ends_at_once().await;
    }
}

#[tokio::test]
async fn the_end_of_a_stream_is_not_the_end_of_a_client() {
    let (finish, finished) = watch::channel(false);
    let door = Door::open(Limits::default(), move |_| {
        let mut finished = finished.clone();
        async move {
            finished.wait_for(|finish| *finish).await.unwrap();
            answer(200, "patient")
        }
    });
    let mut sender = dial(&door).await;
    let (answer, _) = sender.send_request(post("/"), true).unwrap();
    soon(async {
        while door.serving.as_ref().unwrap().open_requests() == 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    time::sleep(AT_ONCE * 2).await;
    finish.send(true).unwrap();
    assert_eq!(read(soon(answer).await.unwrap().into_body()).await.unwrap(), b"patient");
}

#[tokio::test]
async fn b07_an_answer_that_breaks_gives_its_last_bytes_and_then_a_reset() {
    let door = Door::open(Limits::default(), |_| async {
        let good = Ok(Frame::data(Bytes::from_static(b"last words")));
        let mut frames = [good, Err::<_, crate::rig::Failure>("broke".into())].into_iter();
        let stream = crate::serve_gone::stream_of(move |_| std::task::Poll::Ready(frames.next()));
        Response::new(StreamBody::new(stream).boxed_unsync())
    });
    let mut sender = dial(&door).await;
    for _ in 0..20 {
        sender = soon(sender.ready()).await.unwrap();
        let (answer, _) = sender.send_request(post("/"), true).unwrap();
        let mut body = soon(answer).await.unwrap().into_body();
        assert_eq!(soon(body.data()).await.unwrap().unwrap(), "last words");
        assert!(soon(body.data()).await.unwrap().unwrap_err().is_reset());
    }
}

#[tokio::test]
async fn c08_trailers_of_64_kb_pass() {
    let door = Door::open(Limits::default(), |_| async {
        let mut trailers = HeaderMap::new();
        trailers.insert("grpc-status", 7.into());
        trailers.insert("grpc-message", HeaderValue::from_str(&"m".repeat(64_000)).unwrap());
        let frames = [Frame::data(Bytes::from_static(b"data")), Frame::trailers(trailers)];
        let mut frames = frames.into_iter().map(Ok::<_, crate::rig::Failure>);
        let stream = crate::serve_gone::stream_of(move |_| std::task::Poll::Ready(frames.next()));
        Response::new(StreamBody::new(stream).boxed_unsync())
    });
    let (mut sender, connection) = client::Builder::new()
        .max_header_list_size(100_000)
        .handshake::<_, Bytes>(TcpStream::connect(door.address).await.unwrap())
        .await
        .unwrap();
    tokio::spawn(connection);
    let (answer, _) = sender.send_request(post("/"), true).unwrap();
    let mut body = soon(answer).await.unwrap().into_body();
    assert_eq!(soon(body.data()).await.unwrap().unwrap(), "data");
    let trailers = soon(body.trailers()).await.unwrap().unwrap();
    assert_eq!(trailers["grpc-status"], "7");
    assert_eq!(trailers["grpc-message"].len(), 64_000);
}

#[tokio::test]
async fn c11_idle_and_silent_connections_are_closed() {
    let limits =
        Limits { head_timeout: Duration::from_millis(150), idle: Duration::from_millis(500), ..Limits::default() };
    let door = Door::echo(limits);
    // The preface alone, and then nothing.
    let mut raw = door.connect().await;
    raw.send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await;
    let start = Instant::now();
    raw.rest().await.unwrap();
    assert!(start.elapsed() < Duration::from_secs(6), "{:?}", start.elapsed());
    // A client that answers pings and asks for nothing.
    let socket = TcpStream::connect(door.address).await.unwrap();
    let (_sender, connection) = client::handshake(socket).await.unwrap();
    let start = Instant::now();
    soon(connection).await.unwrap();
    let elapsed = start.elapsed();
    assert!(elapsed >= Duration::from_millis(150) && elapsed < Duration::from_millis(450), "{elapsed:?}");
    // One that has asked, and rests.
    let socket = TcpStream::connect(door.address).await.unwrap();
    let (mut sender, connection) = client::handshake(socket).await.unwrap();
    let connection = tokio::spawn(connection);
    let (answer, _) = sender.send_request(post("/"), true).unwrap();
    soon(answer).await.unwrap();
    let start = Instant::now();
    soon(connection).await.unwrap().unwrap();
    assert!(start.elapsed() >= Duration::from_millis(450), "{:?}", start.elapsed());
}

#[tokio::test]
async fn g07_a_drain_lets_streams_end_and_takes_no_more() {
    let (finish, finished) = watch::channel(false);
    let mut door = Door::open(Limits::default(), move |_| {
        let mut finished = finished.clone();
        async move {
            finished.wait_for(|finish| *finish).await.unwrap();
            Response::new(Full::from("done").map_err(|never| match never {}).boxed_unsync())
        }
    });
    let mut sender = dial(&door).await;
    let (answer, _) = sender.send_request(post("/"), true).unwrap();
    let serving = door.serving.take().unwrap();
    soon(async {
        while serving.open_requests() == 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    door.drain.begin();
    let draining = tokio::spawn(async move { serving.drained(Duration::from_secs(60)).await });
    // The client is told: no stream can be opened any more.
    soon(async {
        while let Ok(ready) = sender.clone().ready().await {
            drop(ready);
            tokio::task::yield_now().await;
        }
    })
    .await;
    finish.send(true).unwrap();
    assert_eq!(read(soon(answer).await.unwrap().into_body()).await.unwrap(), b"done");
    assert_eq!(soon(draining).await.unwrap(), Drained { aborted: 0 });
}
