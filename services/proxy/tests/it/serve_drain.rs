//! The end of a process, seen from its clients.

use std::time::{Duration, Instant};

use http::Response;
use http_body_util::{BodyExt, Full};
use proxy::serve::{Drained, Limits, Phase};
use tokio::{net::TcpStream, sync::watch};

use crate::rig::{Door, Raw, answer, soon};

const GET: &str = "GET / HTTP/1.1\r\nHost: g\r\n\r\n";

/// `/slow` answers when told to; anything else at once.
fn door(finish: watch::Receiver<bool>) -> Door {
    Door::open(Limits::default(), move |request| {
        let mut finish = finish.clone();
        async move {
            if request.uri().path() == "/slow" {
                finish.wait_for(|finish| *finish).await.unwrap();
                return Response::new(Full::from("slow").map_err(|never| match never {}).boxed_unsync());
            }
            answer(200, "quick")
        }
    })
}

async fn served(door: &Door) -> Raw {
    let mut raw = door.connect().await;
    raw.send(GET).await;
    raw.answer().await;
    raw
}

#[tokio::test]
async fn g07_streams_end_idle_connections_are_told_and_nobody_new_comes_in() {
    let (finish, finished) = watch::channel(false);
    let mut door = door(finished);
    let (mut told, mut silent) = (served(&door).await, served(&door).await);
    let mut slow = door.connect().await;
    slow.send("GET /slow HTTP/1.1\r\nHost: g\r\n\r\n").await;
    let serving = door.serving.take().unwrap();
    soon(async {
        while serving.open_requests() == 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;

    door.drain.announce();
    assert_eq!(door.drain.phase(), Phase::Announced);
    served(&door).await;
    door.drain.begin();
    let draining = tokio::spawn(async move { serving.drained(Duration::from_secs(60)).await });
    soon(async { while TcpStream::connect(door.address).await.is_ok() {} }).await;

    // An idle connection still gets an answer, with the news.
    told.send(GET).await;
    let all = told.rest().await.unwrap();
    assert!(all.starts_with("HTTP/1.1 200 ") && all.contains("connection: close"), "{all}");
    assert!(!draining.is_finished());

    finish.send(true).unwrap();
    let all = slow.rest().await.unwrap();
    assert!(all.ends_with("slow") && all.contains("connection: close"), "{all}");
    assert_eq!(silent.rest().await.unwrap(), "", "with the last answer the idle ones are closed");
    assert_eq!(soon(draining).await.unwrap(), Drained { aborted: 0 });
}

#[tokio::test]
async fn g07_with_nothing_at_hand_a_drain_is_over_at_once() {
    let (_finish, finished) = watch::channel(false);
    let mut door = door(finished);
    let _idle = served(&door).await;
    let _silent = door.connect().await;
    let start = Instant::now();
    door.drain.begin_after(Duration::ZERO).await;
    let drained = soon(door.serving.take().unwrap().drained(Duration::from_secs(60))).await;
    assert_eq!(drained, Drained { aborted: 0 });
    assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
}

#[tokio::test]
async fn g07_what_does_not_end_is_cut_off_when_time_is_over() {
    let (_finish, finished) = watch::channel(false);
    let mut door = door(finished);
    let mut slow = door.connect().await;
    slow.send("GET /slow HTTP/1.1\r\nHost: g\r\n\r\n").await;
    let serving = door.serving.take().unwrap();
    soon(async {
        while serving.open_requests() == 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    door.drain.begin();
    assert_eq!(soon(serving.drained(Duration::from_millis(100))).await, Drained { aborted: 1 });
    assert_eq!(slow.rest().await.unwrap_or_default(), "");
}
