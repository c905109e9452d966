//! A client that leaves: everything done for it ends at once.

use std::{convert::Infallible, future::pending, sync::Arc};

use bytes::Bytes;
use http::Response;
use http_body_util::{BodyExt, StreamBody, combinators::UnsyncBoxBody};
use hyper::body::Frame;
use proxy::serve::Limits;
use tokio::{
    io::AsyncWriteExt,
    sync::{Mutex, mpsc, oneshot},
    time,
};

use crate::rig::{AT_ONCE, Alive, AnyBody, Door, Failure, Raw, alive, soon};

const REQUEST: &str = "POST / HTTP/1.1\r\nHost: g\r\nContent-Length: 2\r\n\r\nhi";

/// A door whose one request never ends; `started` tells that it began.
pub(crate) struct Endless {
    pub(crate) door: Door,
    pub(crate) started: mpsc::UnboundedReceiver<()>,
    pub(crate) dropped: oneshot::Receiver<()>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stuck {
    /// The service's future waits, having read the body.
    BeforeTheHead,
    /// The service's future waits and leaves the body unread.
    BeforeTheBody,
    /// The answer's body waits after its first frame.
    InTheAnswer,
}

impl Endless {
    pub(crate) fn open(stuck: Stuck) -> Self {
        let (alive, dropped) = alive();
        let alive = Arc::new(Mutex::new(Some(alive)));
        let (start, started) = mpsc::unbounded_channel();
        let door = Door::open(Limits::default(), move |request| {
            let (alive, start) = (Arc::clone(&alive), start.clone());
            async move {
                let held = alive.lock().await.take();
                let body = request.into_body();
                if stuck != Stuck::BeforeTheBody {
                    let _read = body.collect().await;
                } else {
                    std::mem::forget(start.clone());
                    start.send(()).unwrap();
                    pending::<()>().await;
                    drop(body);
                }
                start.send(()).unwrap();
                if stuck == Stuck::BeforeTheHead {
                    pending::<()>().await;
                }
                Response::new(endless(held))
            }
        });
        Self { door, started, dropped }
    }

    async fn begun(&mut self) -> Raw {
        let mut raw = self.door.connect().await;
        raw.send(REQUEST).await;
        soon(self.started.recv()).await.unwrap();
        raw
    }

    pub(crate) async fn ends_at_once(self) {
        time::timeout(AT_ONCE, self.dropped).await.expect("within the limit").unwrap();
    }
}

fn endless(held: Option<Alive>) -> AnyBody {
    let (frames, mut coming) = mpsc::channel::<Result<Frame<Bytes>, Infallible>>(1);
    frames.try_send(Ok(Frame::data(Bytes::from_static(b"data: first\n\n")))).unwrap();
    let stream = stream_of(move |cx| {
        let _held = (&held, &frames);
        coming.poll_recv(cx)
    });
    let body: UnsyncBoxBody<Bytes, Failure> =
        BodyExt::boxed_unsync(StreamBody::new(stream).map_err(|never| match never {}));
    body
}

/// A stream from a poll function.
pub(crate) fn stream_of<T>(
    poll: impl FnMut(&mut std::task::Context<'_>) -> std::task::Poll<Option<T>> + Unpin,
) -> impl futures_core::Stream<Item = T> {
    struct FromFn<F>(F);
    impl<T, F: FnMut(&mut std::task::Context<'_>) -> std::task::Poll<Option<T>> + Unpin> futures_core::Stream
        for FromFn<F>
    {
        type Item = T;
        fn poll_next(
            mut self: std::pin::Pin<&mut Self>,
            cx: &mut std::task::Context<'_>,
        ) -> std::task::Poll<Option<T>> {
            (self.0)(cx)
        }
    }
    FromFn(poll)
}

#[tokio::test]
async fn b03_closing_before_the_first_byte_drops_the_service() {
    let mut endless = Endless::open(Stuck::BeforeTheHead);
    drop(endless.begun().await);
    endless.ends_at_once().await;
}

#[tokio::test]
async fn b03_closing_with_the_body_unread_drops_the_service() {
    let mut endless = Endless::open(Stuck::BeforeTheBody);
    let mut raw = endless.begun().await;
    // More than anybody will read before the end of input is seen.
    raw.send("x".repeat(1_000)).await;
    drop(raw);
    endless.ends_at_once().await;
}

#[tokio::test]
async fn b03_closing_inside_a_stream_drops_the_answer() {
    let mut endless = Endless::open(Stuck::InTheAnswer);
    let mut raw = endless.begun().await;
    raw.until("data: first\n\n").await;
    drop(raw);
    endless.ends_at_once().await;
}

#[tokio::test]
async fn b13_a_half_close_is_the_end_before_the_first_byte() {
    let mut endless = Endless::open(Stuck::BeforeTheHead);
    let mut raw = endless.begun().await;
    raw.0.shutdown().await.unwrap();
    endless.ends_at_once().await;
    assert_eq!(raw.rest().await.unwrap(), "");
}

#[tokio::test]
async fn b13_a_half_close_is_the_end_inside_a_stream() {
    let mut endless = Endless::open(Stuck::InTheAnswer);
    let mut raw = endless.begun().await;
    raw.until("data: first\n\n").await;
    raw.0.shutdown().await.unwrap();
    endless.ends_at_once().await;
}

#[tokio::test]
async fn b03_a_pipelined_request_does_not_hide_the_end() {
    for stuck in [Stuck::BeforeTheHead, Stuck::InTheAnswer] {
        let mut endless = Endless::open(stuck);
        let mut raw = endless.begun().await;
        raw.send(REQUEST.repeat(20)).await;
        // Once more after the first was read ahead, so that bytes lie unread in the socket too.
        tokio::task::yield_now().await;
        raw.send(REQUEST.repeat(2_000)).await;
        drop(raw);
        endless.ends_at_once().await;
    }
}

#[tokio::test]
async fn b07_an_answer_that_breaks_gives_a_slow_reader_its_last_bytes() {
    const BYTES: usize = 16 * 1024 * 1024;
    let door = Door::open(Limits::default(), |_| async {
        let good = Ok(Frame::data(Bytes::from(vec![b'x'; BYTES])));
        let mut frames = [good, Err::<_, Failure>("broke".into())].into_iter();
        Response::new(StreamBody::new(stream_of(move |_| std::task::Poll::Ready(frames.next()))).boxed_unsync())
    });
    let mut raw = door.connect().await;
    raw.send("GET / HTTP/1.1\r\nHost: g\r\n\r\n").await;
    raw.until("\r\n\r\n").await;
    time::sleep(AT_ONCE).await;
    let rest = raw.rest().await.unwrap();
    assert_eq!(rest.len(), "1000000\r\n".len() + BYTES + "\r\n".len());
}

#[tokio::test]
async fn b12_each_frame_leaves_at_once() {
    let (frames, coming) = mpsc::channel::<Result<Frame<Bytes>, Failure>>(1);
    let coming = Arc::new(std::sync::Mutex::new(Some(coming)));
    let door = Door::open(Limits::default(), move |_| {
        let mut coming = coming.lock().unwrap().take().unwrap();
        async move { Response::new(StreamBody::new(stream_of(move |cx| coming.poll_recv(cx))).boxed_unsync()) }
    });
    let mut raw = door.connect().await;
    raw.send("GET / HTTP/1.1\r\nHost: g\r\n\r\n").await;
    raw.until("\r\n\r\n").await;
    for n in 0..50 {
        frames.send(Ok(Frame::data(Bytes::from(format!("data: {n}\n\n"))))).await.unwrap();
        let piece = time::timeout(AT_ONCE, raw.until("\n\n\r\n")).await.expect("within the limit");
        assert!(piece.contains(&format!("data: {n}\n\n")), "{piece}");
    }
    drop(frames);
    raw.until("0\r\n\r\n").await;
}
