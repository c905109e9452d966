//! Closed loop over HTTP/2 with prior knowledge: several requests at once on each of a few connections, as clients and
//! load balancers that speak it send them.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use h2::client::SendRequest;
use http::Request;
use tokio::net::TcpStream;

use super::{Outcome, Target, on_this_thread};
use crate::bodies::{PATH, Requests};

/// Large enough that no body here ever waits for a window.
const WINDOW_BYTES: u32 = 1 << 20;

/// `connections` with `each` clients on them, back to back, for `time`.
pub fn closed_http2(
    to: &Target,
    connections: usize,
    each: usize,
    requests: &Requests,
    time: Duration,
) -> io::Result<Outcome> {
    on_this_thread(async {
        let outcome = Rc::new(RefCell::new(Outcome::default()));
        let mut clients = Vec::new();
        let mut open = Vec::new();
        for _ in 0..connections {
            let stream = TcpStream::connect(to.address).await?;
            stream.set_nodelay(true)?;
            let mut builder = h2::client::Builder::new();
            builder.initial_window_size(WINDOW_BYTES).initial_connection_window_size(WINDOW_BYTES);
            let (sender, connection) = builder.handshake::<_, Bytes>(stream).await.map_err(io::Error::other)?;
            open.push(tokio::task::spawn_local(connection));
            clients.extend((0..each).map(|_| sender.clone()));
        }
        let started = Instant::now();
        let tasks: Vec<_> = clients
            .into_iter()
            .enumerate()
            .map(|(client, sender)| {
                let (requests, outcome) = (requests.clone(), Rc::clone(&outcome));
                let until = started + time;
                tokio::task::spawn_local(
                    async move { one_client(sender, client * 7, &requests, until, &outcome).await },
                )
            })
            .collect();
        for task in tasks {
            task.await.map_err(io::Error::other)?;
        }
        open.iter().for_each(tokio::task::JoinHandle::abort);
        let mut outcome = outcome.take();
        outcome.elapsed_s = started.elapsed().as_secs_f64();
        Ok(outcome)
    })?
}

/// Ends early when its connection is gone: every further request would fail alike.
async fn one_client(
    mut sender: SendRequest<Bytes>,
    first: usize,
    requests: &Requests,
    until: Instant,
    outcome: &RefCell<Outcome>,
) {
    for number in first.. {
        let sent = Instant::now();
        if sent >= until {
            return;
        }
        let result = exchange(&mut sender, requests.body(number)).await;
        let gone = result.is_err();
        outcome.borrow_mut().count(&result, sent.elapsed());
        if gone {
            return;
        }
    }
}

async fn exchange(sender: &mut SendRequest<Bytes>, body: Bytes) -> io::Result<u16> {
    let request = Request::post(format!("http://bench{PATH}"))
        .header("user-agent", "igw-bench")
        .header("authorization", "Bearer none")
        .header("content-type", "application/json")
        .header("content-length", body.len())
        .body(())
        .map_err(io::Error::other)?;
    let mut ready = sender.clone().ready().await.map_err(io::Error::other)?;
    let (answer, mut to) = ready.send_request(request, false).map_err(io::Error::other)?;
    to.send_data(body, true).map_err(io::Error::other)?;
    let answer = answer.await.map_err(io::Error::other)?;
    let status = answer.status().as_u16();
    let mut from = answer.into_body();
    while let Some(piece) = from.data().await {
        let piece = piece.map_err(io::Error::other)?;
        from.flow_control().release_capacity(piece.len()).map_err(io::Error::other)?;
    }
    Ok(status)
}
