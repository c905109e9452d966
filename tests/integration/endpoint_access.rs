//! How the gateway gets in at an endpoint: keys of its own, and TLS.

use std::{fs, net::SocketAddr, path::Path};

use harness::{Authority, Config, Gateway, Peer, Scheduler, TlsFront, post, request, soon};
use tempfile::TempDir;

use crate::two_models::CHAT;

const PATH: &str = "/v1/chat/completions";

fn pool(model: &str, at: SocketAddr) -> Scheduler {
    Scheduler::new(model, [at]).line("engineType: none")
}

/// `Authorization` of the last request at a peer.
fn authorization(peer: &Peer) -> Option<String> {
    peer.seen().last().expect("a request came").header("authorization").map(str::to_owned)
}

fn ask(gateway: &Gateway, model: &str) -> u16 {
    let body = CHAT.replace("m1", model);
    request(gateway.data, "POST", PATH, &[("authorization", "Bearer clients")], body).status
}

#[test]
fn an_endpoints_own_key_replaces_the_clients_and_goes_to_no_other() {
    let peers = [Peer::plain(), Peer::plain(), Peer::plain()];
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("key");
    fs::write(&file, "from-file-1\n").unwrap();
    let config = Config::new([
        pool("m1", peers[0].address).endpoint_line("apiKey: {env: INFERENCE_GATEWAY_TEST_KEY}"),
        pool("m2", peers[1].address).endpoint_line(&format!("apiKey: {{file: {}}}", file.display())),
        pool("m3", peers[2].address),
    ]);
    let gateway = Gateway::start_in(&config, &[("INFERENCE_GATEWAY_TEST_KEY", "from-environment")]);
    for model in ["m1", "m2", "m3", "m1", "m3"] {
        assert_eq!(ask(&gateway, model), 200, "{model}");
    }
    assert_eq!(authorization(&peers[0]).as_deref(), Some("Bearer from-environment"));
    assert_eq!(authorization(&peers[1]).as_deref(), Some("Bearer from-file-1"));
    assert_eq!(
        authorization(&peers[2]).as_deref(),
        Some("Bearer clients"),
        "an endpoint without a key gets the client's"
    );
    assert_eq!(post(gateway.data, PATH, CHAT.replace("m1", "m3")).status, 200);
    assert_eq!(authorization(&peers[2]), None, "and nothing if the client sent nothing");
    assert_eq!(post(gateway.data, PATH, CHAT).status, 200);
    assert_eq!(authorization(&peers[0]).as_deref(), Some("Bearer from-environment"));
    // A rotated file is taken up while the process runs, without a change of the configuration.
    let next = folder.path().join("next");
    fs::write(&next, "from-file-2").unwrap();
    fs::rename(&next, &file).unwrap();
    soon("the new key is sent", || {
        assert_eq!(ask(&gateway, "m2"), 200);
        authorization(&peers[1]).as_deref() == Some("Bearer from-file-2")
    });
    for secret in ["from-environment", "from-file", "clients"] {
        assert!(!gateway.log().contains(secret), "{secret} is in the log");
        assert!(!gateway.admin.json("/api/v1/config").to_string().contains(secret), "{secret} is shown");
    }
}

#[test]
fn a_key_does_not_follow_a_request_to_the_next_endpoint_of_its_list() {
    // Both in one pool; the first has a key and cannot be connected to, so requests go on to the second.
    let (first, second) = (Peer::plain(), Peer::plain());
    let scheduler = pool("m1", first.address).endpoint_line("apiKey: {env: INFERENCE_GATEWAY_TEST_KEY}");
    let other = format!(
        "apiVersion: inference-gateway/v1alpha1\nkind: Endpoint\nmetadata: {{name: other, labels: {{app: m1}}}}\n\
         spec: {{address: {}, port: {}}}",
        second.address.ip(),
        second.address.port()
    );
    // Looked at so seldom that nobody notices in between.
    let config = Config::new([scheduler]).line("signals: {scrapeInterval: 5s, staleAfter: 30s}").document(&other);
    let gateway = Gateway::start_in(&config, &[("INFERENCE_GATEWAY_TEST_KEY", "firsts")]);
    soon("both are ready", || {
        ["m1-0", "other"].iter().all(|name| gateway.admin.endpoint("m1", name)["state"] == "ready")
    });
    drop(first);
    for prompt in 0..12 {
        let body = format!(r#"{{"model":"m1","messages":[{{"role":"user","content":"{prompt}"}}]}}"#);
        let answer = request(gateway.data, "POST", PATH, &[("authorization", "Bearer clients")], body);
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    let seen = second.seen();
    assert_eq!(seen.len(), 12);
    assert!(seen.iter().all(|seen| seen.header("authorization") == Some("Bearer clients")), "{seen:?}");
    soon("every line is written", || gateway.requests().len() == 12);
    let moved = gateway.requests().iter().filter(|line| line["tries"] == 2).count();
    assert!(moved > 0, "at least one was tried at the first");
}

#[test]
fn a_configuration_with_a_key_that_is_not_there_is_refused_and_names_it() {
    let peer = Peer::plain();
    let config = Config::plain("m1", [peer.address]);
    let gateway = Gateway::start(&config);
    let mut keyed = config;
    keyed.schedulers[0] =
        keyed.schedulers[0].clone().endpoint_line("apiKey: {env: INFERENCE_GATEWAY_TEST_NO_SUCH_KEY}");
    gateway.write(&keyed.yaml());
    soon("the refusal is shown", || {
        let error = gateway.admin.json("/api/v1/config")["error"]["message"].to_string();
        error.contains("INFERENCE_GATEWAY_TEST_NO_SUCH_KEY") && error.contains("m1-0")
    });
    assert_eq!(post(gateway.data, PATH, CHAT).status, 200, "the last good one stays in force");
}

/// A gateway whose `m1` is behind `front` with these lines of `tls`.
fn over_tls(front: &TlsFront, tls: &str) -> Gateway {
    Gateway::start(&Config::new([pool("m1", front.address).endpoint_line(&format!("tls: {tls}"))]))
}

fn trusting(ca: &Path, name: &str) -> String {
    format!("{{caFile: {}, serverName: {name}}}", ca.display())
}

#[test]
fn an_endpoint_over_tls_is_spoken_to_when_its_certificate_is_good() {
    let (peer, folder, authority) = (Peer::plain(), TempDir::new().unwrap(), Authority::new());
    let ca = folder.path().join("ca.pem");
    authority.write(&ca);
    let front = TlsFront::start(peer.address, &authority, "llama.test");
    let gateway = over_tls(&front, &trusting(&ca, "llama.test"));
    soon("its health is seen over TLS too", || gateway.admin.endpoint("m1", "m1-0")["state"] == "ready");
    let answer = post(gateway.data, PATH, CHAT);
    assert_eq!(answer.status, 200, "{}", answer.text());
    let [seen] = &peer.seen()[..] else { panic!() };
    assert_eq!((&seen.body[..], seen.header("host")), (CHAT.as_bytes(), Some(front.address.to_string().as_str())));
}

#[test]
fn an_endpoint_whose_certificate_is_not_good_gets_nothing() {
    let (peer, folder) = (Peer::plain(), TempDir::new().unwrap());
    let (authority, stranger) = (Authority::new(), Authority::new());
    let ca = folder.path().join("ca.pem");
    authority.write(&ca);
    let signed_by_a_stranger = TlsFront::start(peer.address, &stranger, "llama.test");
    let for_another_name = TlsFront::start(peer.address, &authority, "other.test");
    let unknown_to_the_system = TlsFront::start(peer.address, &authority, "127.0.0.1");
    for (front, tls) in [
        (&signed_by_a_stranger, trusting(&ca, "llama.test")),
        (&for_another_name, trusting(&ca, "llama.test")),
        (&unknown_to_the_system, "{}".to_owned()),
    ] {
        let gateway = over_tls(front, &tls);
        let answer = post(gateway.data, PATH, CHAT);
        assert_eq!(answer.status, 503, "{tls}: {}", answer.text());
        assert!(["endpoint_unreachable", "no_endpoint"].contains(&answer.code().as_str()), "{}", answer.text());
        assert!(peer.seen().is_empty(), "{tls}");
    }
    // Said loudly, and done.
    let careless = over_tls(&signed_by_a_stranger, "{insecureSkipVerify: true}");
    assert_eq!(post(careless.data, PATH, CHAT).status, 200);
    assert!(careless.log().contains("NOT checked"), "{}", careless.log());
}

#[test]
fn a_plain_endpoint_where_tls_is_configured_is_unreachable_not_answered_in_plain() {
    let (peer, folder, authority) = (Peer::plain(), TempDir::new().unwrap(), Authority::new());
    let ca = folder.path().join("ca.pem");
    authority.write(&ca);
    let tls = trusting(&ca, "llama.test");
    let gateway = Gateway::start(&Config::new([pool("m1", peer.address).endpoint_line(&format!("tls: {tls}"))]));
    let answer = post(gateway.data, PATH, CHAT);
    assert_eq!(answer.status, 503, "{}", answer.text());
    assert!(peer.seen().is_empty());
}
