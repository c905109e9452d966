//! The configuration at run time: a good change is in force within a second and costs nobody a request, a bad one changes
//! nothing and is said.

use std::{
    fs,
    os::unix::fs::symlink,
    path::Path,
    process::{Command, Output},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use harness::{
    Config, Connection, Gateway, MetricsPage, ModelServer, Peer, Scheduler, chat_body, eventually, post, program, soon,
};
use serde_json::Value;

const BAD: &str = "apiVersion: inference.sagemaker.aws.amazon.com/v1alpha1\nkind: InferenceGatewayConfig\nmetadata: {name: test}\n\
    spec:\n  bbr: {enabled: false, maxRequestBodyBytes: 0}\n  signls: {}\n  schedulers:\n  - name: a\n    modelName: m1\n    \
    modelSelector: {matchLabels: {app: a}}\n    weights: {queue: -1}\n  - name: b\n    modelName: m1\n    modelSelector: {matchLabels: {app: b}}\n";

fn run(arguments: &[&str]) -> Output {
    Command::new(program("inference-gateway")).args(arguments).output().expect("the program can be run")
}

fn ask(gateway: &Gateway, model: &str) -> u16 {
    post(gateway.data, "/v1/chat/completions", chat_body(model, "hello")).status
}

fn status(gateway: &Gateway) -> Value {
    gateway.admin.json("/api/v1/config")
}

fn valid(gateway: &Gateway) -> Option<f64> {
    gateway.admin.metric("inference_gateway_config_valid", &[])
}

/// Waits until a request of this model gets this status; how long that took.
fn until(gateway: &Gateway, model: &str, wanted: u16) -> Duration {
    let started = Instant::now();
    soon(&format!("{model} gets {wanted}"), || ask(gateway, model) == wanted);
    started.elapsed()
}

#[test]
fn a_bad_configuration_does_not_start_and_every_violation_has_its_line() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bad.yaml");
    fs::write(&path, BAD).unwrap();
    let path = path.to_str().unwrap();
    for check in [&["--check"][..], &["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]] {
        let output = run(&[&["--config", path], check].concat());
        assert_eq!(output.status.code(), Some(1));
        assert!(output.stdout.is_empty(), "{}", String::from_utf8_lossy(&output.stdout));
        let text = String::from_utf8(output.stderr).unwrap();
        let about = |what: &[&str]| text.lines().filter(|line| what.iter().all(|what| line.contains(what))).count();
        for what in [
            &["spec.bbr.maxRequestBodyBytes"][..],
            &["signls", "`signals`"],
            &["weights.queue"],
            &["modelName", "m1"],
            &["bbr must be enabled when more than one scheduler is defined"],
        ] {
            assert_eq!(about(what), 1, "{what:?} in\n{text}");
        }
        assert!(text.lines().filter(|line| !line.is_empty()).all(|line| line.contains("bad.yaml:")), "{text}");
    }
}

#[test]
fn check_passes_a_good_configuration_and_names_what_cannot_be_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("good.yaml");
    fs::write(&path, Config::plain("m1", ["127.0.0.1:1".parse().unwrap()]).yaml()).unwrap();
    let output = run(&["--check", "--config", path.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.stdout.is_empty());
    let missing = folder.path().join("missing.yaml");
    let output = run(&["--check", "--config", missing.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("missing.yaml"));
    let empty = folder.path().join("empty");
    fs::create_dir(&empty).unwrap();
    assert_eq!(run(&["--check", "--config", empty.to_str().unwrap()]).status.code(), Some(1));
}

#[test]
fn what_a_configuration_names_and_is_not_there_is_told_all_at_once_by_check_and_start_alike() {
    let mut config = Config::new([Scheduler::new("m1", [])]);
    for (name, line) in [
        ("a", "apiKey: {file: /nowhere/key}"),
        ("b", "tls: {caFile: /nowhere/ca.pem}"),
        ("c", "apiKey: {env: NO_SUCH_KEY_HERE}"),
    ] {
        config = config.document(&format!(
            "apiVersion: inference-gateway/v1alpha1\nkind: Endpoint\nmetadata: {{name: {name}, labels: {{app: m1}}}}\nspec:\n  address: 10.0.0.1\n  {line}"
        ));
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gateway.yaml");
    fs::write(&path, config.yaml()).unwrap();
    for check in [&["--check"][..], &["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]] {
        let output = run(&[&["--config", path.to_str().unwrap()], check].concat());
        assert_eq!(output.status.code(), Some(1), "{check:?}");
        let text = String::from_utf8(output.stderr).unwrap();
        for what in ["/nowhere/key", "/nowhere/ca.pem", "NO_SUCH_KEY_HERE"] {
            assert_eq!(text.matches(what).count(), 1, "{what} in {text}");
            assert_eq!(text.lines().filter(|line| line.contains(what)).count(), 1, "{text}");
        }
        assert_eq!(text.lines().count(), 3, "{text}");
    }
}

#[test]
fn where_it_listens_is_one_json_line_and_the_log_is_json_too() {
    let peer = Peer::plain();
    let gateway = Gateway::start(&Config::plain("m1", [peer.address]));
    // The harness read that line: both ports were free ones that were asked for as 0.
    assert!(gateway.data.port() != 0 && gateway.admin.address.port() != 0 && gateway.data != gateway.admin.address);
    assert_eq!(ask(&gateway, "m1"), 200);
    soon("the request is logged", || gateway.requests().len() == 1);
    for line in gateway.log().lines() {
        let parsed: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        assert!(parsed.is_object(), "{line}");
    }
    gateway.process.signal("TERM");
    let mut gateway = gateway;
    let code = eventually("it ends", Duration::from_secs(10), || gateway.process.ended());
    assert_eq!(code, Some(0));
    assert_eq!(gateway.process.line(), None, "nothing else on standard output");
}

/// Sends short requests from several threads while `change` runs, and says how many; each must be served, and a stream
/// that began before must go on until after it, when `streaming` is set to false.
fn under_load(gateway: &Gateway, streaming: &AtomicBool, change: impl FnOnce()) -> usize {
    let stop = AtomicBool::new(false);
    let mut stream = Connection::open(gateway.data);
    let body = r#"{"model":"m1","stream":true,"messages":[{"role":"user","content":"long"}]}"#;
    let head = "POST /v1/chat/completions HTTP/1.1\r\nhost: g\r\ncontent-type: application/json";
    stream
        .send(format!("{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len()))
        .expect("the test's own files and connections work");
    stream
        .read_until(|bytes| bytes.windows(5).any(|five| five == b"begun"))
        .expect("the test's own files and connections work");
    let counts: Vec<usize> = thread::scope(|scope| {
        let load = || {
            let mut count = 0;
            while !stop.load(Ordering::Acquire) {
                let answer = post(gateway.data, "/v1/chat/completions", chat_body("m1", "hello"));
                assert_eq!(answer.status, 200, "after {count}: {}", answer.text());
                count += 1;
            }
            count
        };
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(load)).collect();
        change();
        stop.store(true, Ordering::Release);
        threads.into_iter().map(|thread| thread.join().expect("no request was dropped")).collect()
    });
    streaming.store(false, Ordering::Release);
    let answer = stream.answer().expect("the stream goes on");
    assert!(answer.complete && answer.text().ends_with("[DONE]\n\n"), "{answer:?}");
    counts.iter().sum()
}

/// Streams go on while `streaming` is true; all else is answered plainly.
fn streaming_peer(streaming: &Arc<AtomicBool>) -> Peer {
    let streaming = Arc::clone(streaming);
    Peer::start(move |exchange| {
        if !String::from_utf8_lossy(&exchange.request.body).contains("\"stream\":true") {
            return exchange.answer_plainly();
        }
        exchange.begin_stream();
        exchange.token("begun");
        while streaming.load(Ordering::Acquire) {
            // The pace of a model.
            thread::sleep(Duration::from_millis(20));
            exchange.token("on");
        }
        exchange.event("[DONE]");
        exchange.end_chunks()
    })
}

#[test]
fn good_changes_are_in_force_within_a_second_and_drop_no_request() {
    let streaming = Arc::new(AtomicBool::new(true));
    let peers = [(); 3].map(|()| streaming_peer(&streaming));
    let at = |indices: &[usize]| indices.iter().map(|&index| peers[index].address).collect::<Vec<_>>();
    let scheduler = |model: &str, indices: &[usize]| Scheduler::new(model, at(indices)).line("engineType: none");
    let gateway = Gateway::start(&Config::new([scheduler("m1", &[0, 1])]));
    let total = under_load(&gateway, &streaming, || {
        let mut slowest = Duration::ZERO;
        let mut apply = |config: &Config| {
            let before = status(&gateway)["generation"].as_u64();
            let started = Instant::now();
            gateway.write(&config.yaml());
            soon("it is in force", || status(&gateway)["generation"].as_u64() > before);
            slowest = slowest.max(started.elapsed());
        };
        // Weights; a model more; an endpoint more; one endpoint less; one model less; a model renamed and back.
        apply(&Config::new([scheduler("m1", &[0, 1]).line("weights: {queue: 5, kvCache: 0, prefix: 1}")]));
        apply(&Config::new([scheduler("m1", &[0, 1]), scheduler("m2", &[1])]));
        until(&gateway, "m2", 200);
        apply(&Config::new([scheduler("m1", &[0, 1, 2]), scheduler("m2", &[1])]));
        let before = peers[2].seen().len();
        soon("the new endpoint is used", || peers[2].seen().len() > before);
        apply(&Config::new([scheduler("m1", &[0, 2]), scheduler("m2", &[1])]));
        apply(&Config::new([scheduler("m1", &[2])]));
        until(&gateway, "m2", 404);
        apply(&Config::new([scheduler("m1", &[2, 0])]));
        // All endpoints change at once, again and again: the pool is never empty.
        for round in 0..6 {
            apply(&Config::new([scheduler("m1", &[round % 3])]));
        }
        // The contract says one second; the machine may be busy.
        assert!(slowest < Duration::from_secs(2), "{slowest:?}");
    });
    assert!(total > 20, "{total} requests");
    soon("all is accounted for", || gateway.admin.in_flight("m1") == 0);
    let requests = gateway.requests();
    let others: Vec<_> = requests.iter().filter(|line| line["modelName"] == "m1" && line["outcome"] != "ok").collect();
    assert!(others.is_empty(), "{others:?}");
    assert_eq!(valid(&gateway), Some(1.0));
}

#[test]
fn a_bad_change_keeps_what_was_in_force_says_so_and_the_next_good_one_heals() {
    let peer = Peer::plain();
    let good = Config::plain("m1", [peer.address]);
    let gateway = Gateway::start(&good);
    let before = status(&gateway);
    assert_eq!((&before["generation"], &before["error"], valid(&gateway)), (&1.into(), &Value::Null, Some(1.0)));
    let two_faults = good.yaml().replace("engineType: none", "engineType: nonsense\n    targetPort: 70000");
    gateway.write(&two_faults);
    soon("it is refused", || !status(&gateway)["error"].is_null());
    let refused = status(&gateway);
    assert_eq!(refused["generation"], 1);
    let error = &refused["error"];
    assert_eq!(error["path"], "spec.schedulers[0].engineType", "{error}");
    let message = error["message"].as_str().unwrap();
    assert!(
        message.contains("engineType") && message.contains("targetPort") && message.contains("gateway.yaml:"),
        "{message}"
    );
    assert_eq!(error["at"].as_str().unwrap().len(), before["loaded_at"].as_str().unwrap().len(), "{error}");
    assert_eq!(valid(&gateway), Some(0.0));
    assert_eq!(gateway.admin.metric("inference_gateway_config_generation", &[]), Some(1.0));
    assert_eq!(gateway.log().lines().filter(|line| line.contains("configuration refused")).count(), 1);
    assert_eq!(ask(&gateway, "m1"), 200);
    assert_eq!(gateway.admin.get("/readyz").status, 200);
    // Refused for other reasons: not YAML at all; gone; a key file that is not there.
    for (what, text) in [
        ("no YAML", "spec: [unclosed".to_owned()),
        ("two configurations", good.yaml() + "---\n" + &good.yaml()),
        (
            "a key that cannot be read",
            good.yaml().replace("spec:\n  address", "spec:\n  apiKey: {file: /nowhere/key}\n  address"),
        ),
    ] {
        let former = status(&gateway)["error"]["message"].clone();
        gateway.write(&text);
        soon(&format!("{what} is refused"), || status(&gateway)["error"]["message"] != former);
        assert_eq!(ask(&gateway, "m1"), 200, "{what}");
    }
    fs::remove_file(gateway.config_path()).unwrap();
    soon("a file that is gone is refused", || {
        status(&gateway)["error"]["message"].as_str().is_some_and(|m| m.contains("cannot read"))
    });
    assert_eq!(ask(&gateway, "m1"), 200);
    // The very text in force heals too.
    gateway.write(&good.yaml());
    soon("it is well again", || status(&gateway)["error"].is_null() && valid(&gateway) == Some(1.0));
    gateway.write(&two_faults);
    soon("it is refused again", || valid(&gateway) == Some(0.0));
    let two = Config::new([
        Scheduler::new("m1", [peer.address]).line("engineType: none"),
        Scheduler::new("m2", [peer.address]).line("engineType: none"),
    ]);
    gateway.write(&two.yaml());
    until(&gateway, "m2", 200);
    assert_eq!((valid(&gateway), &status(&gateway)["error"]), (Some(1.0), &Value::Null));
}

/// Writes `yaml` as a ConfigMap volume does: a new hidden directory, then the link to it swapped.
fn mount(volume: &Path, version: u32, yaml: &str) {
    let data = format!("..version_{version}");
    fs::create_dir(volume.join(&data)).expect("the test's own files and connections work");
    fs::write(volume.join(&data).join("gateway.yaml"), yaml).expect("the test's own files and connections work");
    symlink(&data, volume.join("..next")).expect("the test's own files and connections work");
    fs::rename(volume.join("..next"), volume.join("..data")).expect("the test's own files and connections work");
    if !volume.join("gateway.yaml").exists() {
        symlink("..data/gateway.yaml", volume.join("gateway.yaml")).expect("the test's own files and connections work");
    }
    if version > 0 {
        fs::remove_dir_all(volume.join(format!("..version_{}", version - 1)))
            .expect("the test's own files and connections work");
    }
}

#[test]
fn changes_are_noticed_however_the_file_is_replaced() {
    let peer = Peer::plain();
    let of = |model: &str| Config::plain(model, [peer.address]).yaml();
    // Once by the file's path, once by the directory's.
    for name in ["gateway.yaml", ""] {
        let volume = tempfile::tempdir().unwrap();
        mount(volume.path(), 0, &of("m0"));
        let gateway = Gateway::launch_on(&volume.path().join(name), &[]);
        gateway.ready();
        until(&gateway, "m0", 200);
        for version in 1..4 {
            mount(volume.path(), version, &of(&format!("m{version}")));
            let took = until(&gateway, &format!("m{version}"), 200);
            assert!(took < Duration::from_secs(2), "the link was swapped {took:?} ago");
        }
        assert_eq!(valid(&gateway), Some(1.0));
    }
    // Written in place, and by an editor that renames.
    let gateway = Gateway::start(&Config::plain("m1", [peer.address]));
    fs::write(gateway.config_path(), of("in-place")).unwrap();
    until(&gateway, "in-place", 200);
    gateway.write(&of("renamed"));
    until(&gateway, "renamed", 200);
}

#[test]
fn a_directory_is_read_as_one_configuration_and_followed() {
    let peers = [Peer::plain(), Peer::plain()];
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    let config = Config::new([Scheduler::new("m1", []).line("engineType: none")]);
    let endpoint = |name: &str, peer: &Peer| {
        format!(
            "apiVersion: inference-gateway/v1alpha1\nkind: Endpoint\nmetadata: {{name: {name}, labels: {{app: m1}}}}\nspec: {{address: 127.0.0.1, port: {}}}\n",
            peer.address.port()
        )
    };
    file("10-gateway.yaml", &config.yaml());
    file("20-first.yml", &endpoint("first", &peers[0]));
    file("notes.txt", "not: [yaml");
    file(".hidden.yaml", "not: [yaml");
    let gateway = Gateway::launch_on(folder.path(), &[]);
    gateway.ready();
    until(&gateway, "m1", 200);
    file("30-second.yaml", &endpoint("second", &peers[1]));
    soon("the second is there", || gateway.admin.pool("m1")["endpoints"].as_array().unwrap().len() == 2);
    fs::remove_file(folder.path().join("20-first.yml")).unwrap();
    soon("the first has left", || gateway.admin.pool("m1")["endpoints"].as_array().unwrap().len() == 1);
    assert_eq!(ask(&gateway, "m1"), 200);
    // A fault is told with the file that has it.
    file("30-second.yaml", &endpoint("second", &peers[1]).replace("port: ", "prt: "));
    soon("the fault is told", || {
        status(&gateway)["error"]["message"]
            .as_str()
            .is_some_and(|m| m.contains("30-second.yaml:") && m.contains("port"))
    });
    assert_eq!(ask(&gateway, "m1"), 200);
}

#[test]
fn an_endpoint_that_comes_back_is_a_new_life_and_its_counts_are_exact() {
    let server = ModelServer::start(MetricsPage::vllm(0, 0, 0.0));
    let with = |names: &[&str]| {
        let mut config =
            Config::new([Scheduler::new("m1", [])]).line("signals: {scrapeInterval: 50ms, staleAfter: 1s}");
        for name in names {
            config = config.document(&format!(
                "apiVersion: inference-gateway/v1alpha1\nkind: Endpoint\nmetadata: {{name: {name}, labels: {{app: m1}}}}\nspec: {{address: 127.0.0.1, port: {}}}",
                server.address().port()
            ));
        }
        config
    };
    let gateway = Gateway::start(&with(&["old"]));
    let shown = |gateway: &Gateway| -> Vec<(String, String, u64)> {
        let pool = gateway.admin.pool("m1");
        let list = pool["endpoints"].as_array().unwrap().iter();
        list.map(|e| {
            (
                e["name"].as_str().unwrap().into(),
                e["state"].as_str().unwrap().into(),
                e["in_flight"]["requests"].as_u64().unwrap(),
            )
        })
        .collect()
    };
    soon("it is ready", || shown(&gateway) == [("old".into(), "ready".into(), 0)]);
    server.close();
    let held: Vec<_> = (0..3)
        .map(|n| {
            let data = gateway.data;
            thread::spawn(move || post(data, "/v1/chat/completions", chat_body("m1", &format!("held {n}"))))
        })
        .collect();
    soon("three are held", || server.inside() == 3);
    // Renamed at the same address: the old one keeps its three until they end, the new one starts with none.
    gateway.apply(&with(&["new"]));
    soon("both are shown", || {
        shown(&gateway) == [("old".into(), "draining".into(), 3), ("new".into(), "ready".into(), 0)]
    });
    let fourth = thread::spawn({
        let data = gateway.data;
        move || post(data, "/v1/chat/completions", chat_body("m1", "fourth"))
    });
    soon("the fourth is with the new one", || {
        shown(&gateway) == [("old".into(), "draining".into(), 3), ("new".into(), "ready".into(), 1)]
    });
    let metric =
        |name: &str| gateway.admin.metric("inference_gateway_in_flight_requests", &[&format!("endpoint=\"{name}\"")]);
    assert_eq!((metric("old"), metric("new")), (Some(3.0), Some(1.0)));
    // The old name comes back: a third life, with none of the first one's work.
    gateway.apply(&with(&["old"]));
    soon("three lives", || {
        let lives = shown(&gateway);
        lives
            == [
                ("old".into(), "draining".into(), 3),
                ("new".into(), "draining".into(), 1),
                ("old".into(), "ready".into(), 0),
            ]
    });
    assert_eq!(gateway.admin.in_flight("m1"), 4);
    server.open();
    for answer in held.into_iter().chain([fourth]) {
        assert_eq!(answer.join().unwrap().status, 200);
    }
    soon("one life is left, with nothing to do", || shown(&gateway) == [("old".into(), "ready".into(), 0)]);
    assert_eq!(gateway.admin.metric("inference_gateway_requests_total", &[r#"outcome="ok""#]), Some(4.0));
}

#[test]
fn a_metrics_page_can_be_moved_without_a_new_life() {
    let server = ModelServer::start(MetricsPage::vllm(0, 7, 0.0));
    let elsewhere = ModelServer::start(MetricsPage::vllm(0, 3, 0.0));
    let at = |port: u16| {
        let scheduler = Scheduler::new("m1", [server.address()]).endpoint_line(&format!("metricsPort: {port}"));
        Config::new([scheduler]).line("signals: {scrapeInterval: 50ms, staleAfter: 1s}")
    };
    let gateway = Gateway::start(&at(server.address().port()));
    let running = || gateway.admin.endpoint("m1", "m1-0")["signals"]["running"]["value"].as_f64();
    soon("its own page is read", || running() == Some(7.0));
    assert_eq!(ask(&gateway, "m1"), 200);
    gateway.apply(&at(elsewhere.address().port()));
    soon("the other page is read", || running() == Some(3.0));
    assert_eq!(gateway.admin.endpoint("m1", "m1-0")["picks"], 1, "the same life");
}
