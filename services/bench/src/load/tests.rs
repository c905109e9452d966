use std::time::Duration;

use super::*;
use crate::backend::{Answering, Backend, Stream};
use crate::bodies::{Kind, Requests};
use crate::certificate::Certificate;

fn backend() -> Backend {
    Backend::start(1).unwrap()
}

#[test]
fn a_closed_loop_counts_and_times_every_answer() {
    let backend = backend();
    let requests = Requests::new(1_000, Kind::Whole, 1);
    let outcome = closed(&backend.addresses[0].into(), 4, &requests, Duration::from_millis(200)).unwrap();
    assert!(outcome.answered > 20, "{outcome:?}");
    assert_eq!((outcome.failed, outcome.latencies_ns.len() as u64), (0, outcome.answered));
    assert!(outcome.latencies_ns.iter().all(|latency| *latency > 0));
}

#[test]
fn an_open_loop_keeps_its_rate() {
    let backend = backend();
    let requests = Requests::new(1_000, Kind::Whole, 1);
    let rate = Rate { per_second: 400.0, seed: 7 };
    let outcome = open(&backend.addresses[0].into(), &requests, rate, Duration::from_millis(500)).unwrap();
    // 200 are due; a Poisson count is within six deviations of it, and on a machine so slow that some were missed they
    // are counted as failed, never forgotten.
    assert!((110..290).contains(&(outcome.answered + outcome.failed)), "{} + {}", outcome.answered, outcome.failed);
    assert!(outcome.answered > 0);
}

#[test]
fn streams_are_read_to_their_end() {
    let backend = backend();
    let requests = Requests::new(1_000, Kind::Streamed, 1);
    backend.answer(Answering::Streamed(Stream { chunks: 20, gap: Duration::from_millis(1) }));
    let seen = streams(&backend.addresses[0].into(), 10, &requests, Duration::from_millis(5)).unwrap();
    assert_eq!((seen.completed, seen.failed, seen.events), (10, 0, 10 * 23));
    assert!(seen.elapsed_s >= 0.02, "{seen:?}");
}

#[test]
fn nobody_there_is_an_error_and_not_a_measurement() {
    let backend = backend();
    let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let requests = Requests::new(1_000, Kind::Whole, 1);
    assert!(closed(&address.into(), 1, &requests, Duration::from_millis(50)).is_err());
    let rate = Rate { per_second: 200.0, seed: 7 };
    let outcome = open(&address.into(), &requests, rate, Duration::from_millis(100)).unwrap();
    assert_eq!(outcome.answered, 0);
    assert!(outcome.failed > 0);
    assert_eq!(streams(&address.into(), 2, &requests, Duration::ZERO).unwrap().failed, 2);
    drop(backend);
}

#[test]
fn bodies_wait_until_all_have_come_and_are_then_answered() {
    let backend = backend();
    let requests = Requests::new(100_000, Kind::Whole, 1);
    let to = backend.addresses[0].into();
    let (held, failed) = while_bodies_wait(&to, 5, &requests, &backend, || backend.held()).unwrap();
    assert_eq!((held, failed, backend.held()), (5, 0, 0));
    let outcome = closed(&to, 1, &requests, Duration::from_millis(50)).unwrap();
    assert!(outcome.answered > 0, "nobody is kept waiting afterwards");
}

#[test]
fn open_streams_are_looked_at_while_all_are_open() {
    let backend = backend();
    let requests = Requests::new(1_000, Kind::Streamed, 1);
    let to = backend.addresses[0].into();
    let stream = |chunks| Answering::Streamed(Stream { chunks, gap: Duration::from_millis(50) });
    backend.answer(stream(10_000));
    assert_eq!(while_streams_are_open(&to, 5, &requests, || 7).unwrap(), 7);
    backend.answer(Answering::Whole);
    assert!(while_streams_are_open(&to, 5, &requests, || 7).is_err(), "whole answers are no open streams");
}

#[test]
fn clients_speak_tls_and_http2() {
    let folder = tempfile::tempdir().unwrap();
    let certificate = Certificate::make(folder.path()).unwrap();
    let requests = Requests::new(4_000, Kind::Whole, 1);
    let front = Front::start(&certificate);
    let to = Target { address: front.tls, tls: Some(certificate.client.clone()) };
    let outcome = closed(&to, 2, &requests, Duration::from_millis(100)).unwrap();
    assert!(outcome.answered > 0 && outcome.failed == 0, "{outcome:?}");
    assert_eq!(once(&to, requests.get(0)).unwrap(), 200);
    let plain = front.http2.into();
    let outcome = closed_http2(&plain, 2, 3, &requests, Duration::from_millis(100)).unwrap();
    assert!(outcome.answered > 0 && outcome.failed == 0, "{outcome:?}");
}

/// Answers over TLS, and over HTTP/2, for as long as it is kept.
struct Front {
    tls: std::net::SocketAddr,
    http2: std::net::SocketAddr,
    _stop: tokio::sync::oneshot::Sender<()>,
}

impl Front {
    fn start(certificate: &Certificate) -> Self {
        use tokio_rustls::rustls::pki_types::pem::PemObject;
        use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
        let chain =
            CertificateDer::pem_slice_iter(certificate.certificate_pem.as_bytes()).map(Result::unwrap).collect();
        let key = PrivateKeyDer::from_pem_slice(certificate.key_pem.as_bytes()).unwrap();
        let provider = std::sync::Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
        let config = tokio_rustls::rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .unwrap();
        let acceptor = tokio_rustls::TlsAcceptor::from(std::sync::Arc::new(config));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let bind = || runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
        let (one, two) = (bind(), bind());
        let (tls, http2) = (one.local_addr().unwrap(), two.local_addr().unwrap());
        let (_stop, stopped) = tokio::sync::oneshot::channel::<()>();
        std::thread::spawn(move || {
            runtime.block_on(async {
                tokio::spawn(async move {
                    while let Ok((stream, _)) = one.accept().await {
                        let acceptor = acceptor.clone();
                        tokio::spawn(async move { answer(acceptor.accept(stream).await.unwrap()).await });
                    }
                });
                tokio::spawn(async move {
                    while let Ok((stream, _)) = two.accept().await {
                        tokio::spawn(answer(stream));
                    }
                });
                let _ = stopped.await;
            });
        });
        Self { tls, http2, _stop }
    }
}

async fn answer(stream: impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + 'static) {
    use http_body_util::{BodyExt, Empty};
    let service = hyper::service::service_fn(|request: http::Request<hyper::body::Incoming>| async move {
        request.into_body().collect().await?;
        let mut answer = http::Response::new(Empty::<bytes::Bytes>::new());
        answer.headers_mut().insert("content-length", 0.into());
        Ok::<_, hyper::Error>(answer)
    });
    let builder = hyper_util::server::conn::auto::Builder::new(hyper_util::rt::TokioExecutor::new());
    let _ = builder.serve_connection(hyper_util::rt::TokioIo::new(stream), service).await;
}
