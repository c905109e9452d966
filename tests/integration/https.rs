//! HTTPS at the data port: what clients are shown while certificates change, and that no request is lost at the end.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on stops where it stands")]

use std::{
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, SystemTime},
};

use harness::{Config, Gateway, Peer, eventually, soon};
use rcgen::{CertificateParams, KeyPair};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    runtime::{Builder, Runtime},
    task::JoinSet,
    time::{MissedTickBehavior, interval},
};
use tokio_rustls::{
    TlsConnector,
    client::TlsStream,
    rustls::{
        ClientConfig, RootCertStore,
        pki_types::{CertificateDer, ServerName},
    },
};

use crate::rig::CHAT;

const NAME: &str = "gateway.test";
const LISTENER: &str = r#"listener="https""#;
const REFUSED: &str = "inference_gateway_certificates_refused_total";

/// A self-signed certificate and its key.
struct Pair {
    certificate: String,
    key: String,
    der: CertificateDer<'static>,
    not_after: SystemTime,
}

fn pair(valid_for: Duration) -> Pair {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec![NAME.to_owned()]).unwrap();
    let not_after = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000) + valid_for;
    params.not_before = (SystemTime::UNIX_EPOCH + Duration::from_secs(1_600_000_000)).into();
    params.not_after = not_after.into();
    let made = params.self_signed(&key).unwrap();
    Pair { certificate: made.pem(), key: key.serialize_pem(), der: made.der().clone(), not_after }
}

/// Valid until 2053.
fn good() -> Pair {
    pair(Duration::from_secs(30 * 365 * 86_400))
}

fn config(peer: &Peer) -> Config {
    Config::plain("m1", [peer.address]).line("tls: {secretRef: {name: front}}")
}

fn secret(certificate: &str, key: &str) -> String {
    let block = |text: &str| text.lines().map(|line| format!("    {line}\n")).collect::<String>();
    format!(
        "apiVersion: v1\nkind: Secret\nmetadata: {{name: front}}\ntype: kubernetes.io/tls\nstringData:\n  \
         tls.crt: |\n{}  tls.key: |\n{}",
        block(certificate),
        block(key)
    )
}

fn with(peer: &Peer, certificate: &str, key: &str) -> Config {
    config(peer).document(&secret(certificate, key))
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

fn connector(trusted: &[&Pair]) -> TlsConnector {
    let mut roots = RootCertStore::empty();
    for pair in trusted {
        roots.add(pair.der.clone()).unwrap();
    }
    let mut config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    // Each connection is to show its certificate.
    config.resumption = tokio_rustls::rustls::client::Resumption::disabled();
    TlsConnector::from(Arc::new(config))
}

async fn connect(gateway: &Gateway, connector: &TlsConnector) -> TlsStream<TcpStream> {
    let tcp = TcpStream::connect(gateway.data).await.expect("it listens");
    let name = ServerName::try_from(NAME).unwrap();
    connector.connect(name, tcp).await.expect("a handshake never fails")
}

/// One chat on a connection that stays open; the answer's head. Nothing if the connection ends without one.
async fn chat(stream: &mut TlsStream<TcpStream>) -> Option<String> {
    let length = CHAT.len();
    let request = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: {NAME}\r\ncontent-type: application/json\r\n\
         content-length: {length}\r\n\r\n{CHAT}"
    );
    stream.write_all(request.as_bytes()).await.ok()?;
    stream.flush().await.ok()?;
    let mut all = Vec::new();
    let head = loop {
        if let Some(end) = all.windows(4).position(|at| at == b"\r\n\r\n") {
            break String::from_utf8_lossy(&all[..end]).into_owned();
        }
        if stream.read_buf(&mut all).await.ok()? == 0 {
            return None;
        }
    };
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).expect("a length");
    let whole = head.len() + 4 + length.parse::<usize>().unwrap();
    while all.len() < whole {
        if stream.read_buf(&mut all).await.ok()? == 0 {
            return None;
        }
    }
    Some(head)
}

fn shown(runtime: &Runtime, gateway: &Gateway, connector: &TlsConnector) -> CertificateDer<'static> {
    runtime.block_on(async {
        let mut stream = connect(gateway, connector).await;
        let head = chat(&mut stream).await.expect("an answer");
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
        stream.get_ref().1.peer_certificates().expect("it shows one")[0].clone().into_owned()
    })
}

#[test]
fn i08_a_new_pair_is_shown_within_a_second_and_a_bad_one_changes_nothing() {
    let (runtime, peer) = (runtime(), Peer::plain());
    let (old, new, last) = (good(), good(), good());
    let expired = pair(Duration::ZERO);
    let gateway = Gateway::start(&with(&peer, &old.certificate, &old.key));
    let connector = connector(&[&old, &new, &last]);
    let shows = |pair: &Pair| shown(&runtime, &gateway, &connector) == pair.der;
    let until = |pair: &Pair| {
        let seconds = pair.not_after.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs_f64();
        soon("the gauge follows", || {
            gateway.admin.metric("inference_gateway_certificate_not_after_seconds", &[LISTENER]) == Some(seconds)
        });
    };
    assert!(shows(&old));
    until(&old);
    let mut open = runtime.block_on(connect(&gateway, &connector));
    assert!(runtime.block_on(chat(&mut open)).is_some());

    gateway.write(&with(&peer, &new.certificate, &new.key).yaml());
    eventually("the new pair is shown", Duration::from_secs(5), || shows(&new).then_some(()));
    until(&new);
    assert!(runtime.block_on(chat(&mut open)).is_some(), "open connections live on");

    let garbage = "-----BEGIN CERTIFICATE-----\nZ2FyYmFnZQ==\n-----END CERTIFICATE-----\n";
    let bad = [(&*new.certificate, &*last.key), (garbage, &*last.key), (&*expired.certificate, &*expired.key)];
    for (count, (certificate, key)) in (1_u32..).zip(bad) {
        gateway.write(&with(&peer, certificate, key).yaml());
        soon("it is refused", || gateway.admin.metric(REFUSED, &[LISTENER]) == Some(f64::from(count)));
        let error = gateway.admin.json("/api/v1/config")["error"]["message"].as_str().unwrap().to_owned();
        assert!(error.contains("spec.tls.secretRef: Secret `front`: "), "{error}");
        assert!(!error.contains("BEGIN"), "{error}");
        assert!(shows(&new), "{error}");
    }
    assert_eq!(gateway.log().matches("certificate refused").count(), 3, "once each");

    gateway.write(&config(&peer).yaml());
    soon("a missing Secret is told", || {
        let error = gateway.admin.json("/api/v1/config")["error"]["message"].clone();
        error.as_str().is_some_and(|error| error.contains("no Secret is called"))
    });
    assert!(shows(&new));
    gateway.write(&with(&peer, &last.certificate, &last.key).yaml());
    eventually("the last pair is shown", Duration::from_secs(5), || shows(&last).then_some(()));
    assert_eq!(gateway.admin.metric("inference_gateway_config_valid", &[]), Some(1.0));
    assert!(runtime.block_on(chat(&mut open)).is_some(), "open connections live on");
}

#[test]
fn tls_1_1_is_not_spoken_and_that_is_no_request() {
    let (peer, pair) = (Peer::plain(), good());
    let gateway = Gateway::start(&with(&peer, &pair.certificate, &pair.key));
    let to = gateway.data.to_string();
    let old = ["s_client", "-connect", &to, "-tls1_1", "-cipher", "DEFAULT@SECLEVEL=0"];
    let asked = Command::new("openssl").args(old).stdin(Stdio::null()).output().expect("openssl can be run");
    assert!(!asked.status.success(), "{}", String::from_utf8_lossy(&asked.stdout));
    soon("it is counted", || {
        let cause = [r#"cause="tls_handshake""#];
        gateway.admin.metric("inference_gateway_connections_refused_total", &cause) == Some(1.0)
    });
    assert!(gateway.requests().is_empty());
}

/// A thousand clients that send again and again on connections of their own, and a SIGTERM in the middle: whatever was
/// sent is answered, and each connection ends with an answer that says so.
#[test]
fn g08_a_thousand_clients_on_tls_lose_nothing_when_the_process_ends() {
    const CLIENTS: usize = 1_000;
    let (peer, pair) = (Peer::plain(), good());
    let mut gateway = Gateway::start(&with(&peer, &pair.certificate, &pair.key));
    let connector = connector(&[&pair]);
    let (begun, lost) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    runtime().block_on(async {
        let mut clients = JoinSet::new();
        for _ in 0..CLIENTS {
            let mut stream = connect(&gateway, &connector).await;
            let (begun, lost) = (Arc::clone(&begun), Arc::clone(&lost));
            clients.spawn(async move {
                let mut due = interval(Duration::from_millis(100));
                due.set_missed_tick_behavior(MissedTickBehavior::Delay);
                let mut first = true;
                loop {
                    due.tick().await;
                    match chat(&mut stream).await {
                        Some(head) if head.contains("connection: close") => return,
                        Some(head) => assert!(head.starts_with("HTTP/1.1 200 "), "{head}"),
                        None => {
                            lost.fetch_add(1, Ordering::Relaxed);
                            return;
                        }
                    }
                    if std::mem::take(&mut first) {
                        begun.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
        while begun.load(Ordering::Relaxed) < CLIENTS {
            tokio::task::yield_now().await;
        }
        gateway.process.signal("TERM");
        while let Some(ended) = clients.join_next().await {
            ended.expect("no client fails");
        }
    });
    assert_eq!(lost.load(Ordering::Relaxed), 0);
    assert_eq!(eventually("the process ends", Duration::from_secs(30), || gateway.process.ended()), Some(0));
}
