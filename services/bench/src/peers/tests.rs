use super::*;

const MINIMAL: &str = r#"
[[peer]]
name = "one"
title = "One"
about = "as it comes"
package = "one==1.0"
program = "bin/one"
policy = "rr"
policies = { rr = "ROUND", lr = "LEAST" }
speaks = ["tls"]
ready = "/health"
ready_port = "port"
command = ["--port", "${port}", "${backends}", "--by=${policy}"]
backend = "http://${backend_host}:${backend_port}"
tls_arguments = ["--cert", "${certificate}"]
[[peer.files]]
name = "a.conf"
text = "admin ${admin_port}\n${tls}${backends}"
"#;

fn values(certificate: bool) -> Values {
    let backends = vec!["127.0.0.1:41".parse().unwrap(), "127.0.0.1:42".parse().unwrap()];
    let certificate = certificate.then(|| ("/c.pem".into(), "/k.pem".into()));
    Values { port: 8, admin_port: 9, policy: "ROUND".to_owned(), backends, certificate, ..Values::for_checking() }
}

#[test]
fn the_built_in_peers_are_complete() {
    let peers = load(None).unwrap();
    let names: Vec<&str> = peers.iter().map(|peer| peer.name.as_str()).collect();
    assert_eq!(names, ["envoy", "smg", "vllm-router", "sglang-router"]);
    for peer in &peers {
        let tls = !peer.tls.is_empty() || !peer.tls_arguments.is_empty();
        assert_eq!(tls, peer.speaks.contains(&Speech::Tls), "{}", peer.name);
    }
}

#[test]
fn envoy_gets_every_backend_and_its_certificate() {
    let envoy = load(None).unwrap().remove(0);
    let text = |certificate| envoy.texts(&values(certificate)).unwrap().remove(0).1;
    assert_eq!(
        text(false).matches("- endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: 4").count(),
        2
    );
    assert!(!text(false).contains("transport_socket"));
    assert!(text(true).contains(r#"private_key: {filename: "/k.pem"}"#));
}

#[test]
fn a_command_is_completed() {
    let peer = parse(MINIMAL).unwrap().remove(0);
    let plain = peer.arguments(&values(false)).unwrap();
    assert_eq!(plain, ["--port", "8", "http://127.0.0.1:41", "http://127.0.0.1:42", "--by=ROUND"]);
    assert_eq!(peer.arguments(&values(true)).unwrap()[5..], ["--cert", "/c.pem"]);
    let files = peer.texts(&values(false)).unwrap();
    assert_eq!(files, [("a.conf", "admin 9\nhttp://127.0.0.1:41http://127.0.0.1:42".to_owned())]);
}

#[test]
fn policies_are_chosen_by_name() {
    let peer = parse(MINIMAL).unwrap().remove(0);
    assert_eq!(peer.policy(None).unwrap(), "ROUND");
    assert_eq!(peer.policy(Some("lr")).unwrap(), "LEAST");
    assert!(peer.policy(Some("best")).unwrap_err().to_string().ends_with("it has lr, rr"));
}

#[test]
fn what_cannot_start_is_refused_when_it_is_read() {
    for (from, to, why) in [
        ("${admin_port}", "${adminport}", "nothing is called `${adminport}`"),
        ("${policy}", "${policy", "without its"),
        ("one==1.0", "one", "pinned"),
        ("policy = \"rr\"", "policy = \"best\"", "no policy `best`"),
        ("name = \"one\"", "name = \"gateway\"", "not one of the bench's own"),
        ("ready_port = \"port\"", "ready_port = \"door\"", "door"),
        ("title = \"One\"", "titel = \"One\"", "titel"),
    ] {
        let error = parse(&MINIMAL.replace(from, to)).unwrap_err().to_string();
        assert!(error.contains(why), "{to}: {error}");
    }
    let twice = format!("{MINIMAL}{MINIMAL}");
    assert!(matches!(parse(&twice), Err(PeersError::Twice(_))));
}
