//! Listeners come and go while the process serves.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use proxy::{
    cores::Cores,
    serve::{self, AddError, Drain, Drained, LISTENERS_MAX, Limits, Listener, Refusal, Scheme, Serving, tls::Tls},
};
use tokio::{net::TcpStream, sync::watch};

use crate::rig::{PATIENCE, Raw, answer, loopback, soon};

const GET: &str = "GET / HTTP/1.1\r\nHost: g\r\n\r\n";
const SLOW: &str = "GET /slow HTTP/1.1\r\nHost: g\r\n\r\n";

struct Site {
    serving: Serving,
    drain: Drain,
    finish: watch::Sender<bool>,
    _cores: Cores,
}

/// Answers with the listener's port and scheme; `/slow` when told to.
fn site(limits: Limits) -> Site {
    let (finish, finished) = watch::channel(false);
    let (cores, drain) = (Cores::start(2, "site").unwrap(), Drain::new());
    let service = move |_core, listener: Listener| {
        let finished = finished.clone();
        tower::service_fn(move |request: http::Request<serve::RequestBody>| {
            let mut finished = finished.clone();
            async move {
                if request.uri().path() == "/slow" {
                    finished.wait_for(|finish| *finish).await.unwrap();
                }
                Ok(answer(200, format!("{}:{}", listener.scheme.as_str(), listener.port)))
            }
        })
    };
    let refusals = std::sync::Arc::new(|_| Refusal::default());
    let serving = serve::start(&cores, limits, service, drain.clone(), refusals);
    Site { serving, drain, finish, _cores: cores }
}

impl Site {
    fn add(&self, port: u16) -> SocketAddr {
        self.serving.add(loopback(), http(port), Tls::plain()).unwrap()
    }

    async fn until_requests(&self, requests: usize) {
        let wait = async {
            while self.serving.open_requests() != requests {
                tokio::task::yield_now().await;
            }
        };
        soon(wait).await;
    }
}

fn http(port: u16) -> Listener {
    Listener { port, scheme: Scheme::Http }
}

async fn connect(to: SocketAddr) -> Raw {
    Raw(TcpStream::connect(to).await.unwrap())
}

async fn ask(to: SocketAddr) -> String {
    let mut raw = connect(to).await;
    raw.send(GET).await;
    raw.answer().await.1
}

#[tokio::test]
async fn a_request_knows_the_listener_it_came_by() {
    let site = site(Limits::default());
    let (plain, other) = (site.add(80), site.add(8080));
    let tls = site.serving.add(loopback(), Listener { port: 443, scheme: Scheme::Https }, Tls::plain()).unwrap();
    assert_eq!(ask(plain).await, "http:80");
    assert_eq!(ask(other).await, "http:8080");
    assert_eq!(ask(tls).await, "https:443");
    assert!(matches!(site.serving.add(loopback(), http(80), Tls::plain()), Err(AddError::Taken(80))));
    assert_eq!(site.serving.listeners().len(), 3);
}

#[tokio::test]
async fn a_removed_listener_closes_its_socket_and_lets_its_answers_end() {
    let site = site(Limits::default());
    let (leaving, staying) = (site.add(80), site.add(81));
    let (mut slow, mut idle) = (connect(leaving).await, connect(leaving).await);
    slow.send(SLOW).await;
    idle.send(GET).await;
    idle.answer().await;
    site.until_requests(1).await;

    assert!(soon(site.serving.remove(80)).await);
    assert!(!site.serving.remove(80).await, "it is gone");
    TcpStream::connect(leaving).await.unwrap_err();
    assert_eq!(ask(staying).await, "http:81", "the other one serves on");

    // Its address can be used again before its last connection has ended.
    let again = std::net::TcpListener::bind(leaving).unwrap();
    site.serving.add(again, http(80), Tls::plain()).unwrap();
    assert_eq!(ask(leaving).await, "http:80");

    // A kept connection is told to end with its next answer.
    idle.send(GET).await;
    let last = idle.rest().await.unwrap();
    assert!(last.starts_with("HTTP/1.1 200 ") && last.contains("connection: close"), "{last}");
    site.finish.send(true).unwrap();
    let last = slow.rest().await.unwrap();
    assert!(last.ends_with("http:80") && last.contains("connection: close"), "{last}");
}

#[tokio::test]
async fn the_end_of_the_process_waits_for_removed_listeners_too_and_adds_no_more() {
    let site = site(Limits::default());
    let (removed, open) = (site.add(80), site.add(81));
    let mut slow = [connect(removed).await, connect(open).await];
    for slow in &mut slow {
        slow.send(SLOW).await;
    }
    site.until_requests(2).await;
    assert!(soon(site.serving.remove(80)).await);
    site.drain.begin();
    assert!(matches!(site.serving.add(loopback(), http(82), Tls::plain()), Err(AddError::Draining)));
    let start = Instant::now();
    let drained = soon(site.serving.drained(Duration::from_millis(100))).await;
    assert_eq!(drained, Drained { aborted: 2 });
    assert!(start.elapsed() < PATIENCE / 2, "{:?}", start.elapsed());
    for slow in &mut slow {
        assert_eq!(slow.rest().await.unwrap_or_default(), "");
    }
}

#[tokio::test]
async fn listeners_share_one_limit_of_connections_and_are_bounded_themselves() {
    let site = site(Limits { connections_max: 1, ..Limits::default() });
    let (one, other) = (site.add(80), site.add(81));
    let mut first = connect(one).await;
    first.send(GET).await;
    first.answer().await;
    assert_eq!(connect(other).await.rest().await.unwrap_or_default(), "", "one too many");
    for port in 82.. {
        match site.serving.add(loopback(), http(port), Tls::plain()) {
            Ok(_) => {}
            Err(error) => {
                assert!(matches!(error, AddError::TooMany), "{error}");
                assert_eq!(site.serving.listeners().len(), LISTENERS_MAX);
                break;
            }
        }
    }
}
