//! A data plane follows its cluster: pods that come and go, and an API server that does.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv4Addr},
    path::Path,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

use harness::{Cluster, Connection, Peer, Space, chat_body, eventually, post};
use serde_json::Value;

use crate::{
    plane::{Api, Between, Plane, Wire},
    product::{SYSTEM, undisturbed},
};

/// What is promised of a pod that becomes ready, or stops being so.
const IN_TIME: Duration = Duration::from_secs(1);
const CHATS: &str = "/v1/chat/completions";

/// A config, named like its namespace, with the model `m1` on pods of `app: m1`. The controller has made its Gateway.
fn site(name: &str, port: u16) -> Space {
    let (_controller, cluster) = (undisturbed(), Cluster::shared());
    let space = cluster.namespace(name);
    space.apply(&format!(
        "apiVersion: inference.sagemaker.aws.amazon.com/v1alpha1\nkind: InferenceGatewayConfig\nmetadata: {{name: {}}}\n\
         spec:\n  bbr: {{enabled: true}}\n  schedulers:\n  - name: m1\n    modelName: m1\n    engineType: none\n    \
         modelSelector: {{matchLabels: {{app: m1}}}}\n    targetPort: {port}\n",
        space.name
    ));
    let gateway = ["--namespace", SYSTEM, "get", "gateway", &space.name];
    cluster.eventually("the controller makes the Gateway", || cluster.try_kubectl(&gateway, "").ok());
    space
}

/// A model server at every address of the network, on one port. It knows which address a request came to by its `host`.
fn everywhere() -> Peer {
    Peer::start_at(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |exchange| exchange.answer_plainly())
}

fn own_kubeconfig() -> std::path::PathBuf {
    std::env::var_os("KUBECONFIG").expect("set inside").into()
}

/// How long until the pool's endpoints are these.
fn until_endpoints(plane: &Plane, expected: &[&str]) -> Duration {
    let began = Instant::now();
    eventually(&format!("endpoints are {expected:?}"), Duration::from_secs(30), || {
        (plane.endpoints("m1") == expected).then_some(())
    });
    began.elapsed()
}

fn chat(plane: &Plane, text: &str) -> u16 {
    post(plane.data, CHATS, chat_body("m1", text)).status
}

#[test]
fn a_pod_is_used_within_a_second_of_ready_and_left_within_a_second_of_anything_else() {
    let peer = everywhere();
    let space = site("lifecycle", peer.address.port());
    let api = Api::of(&space);
    let plane = Plane::launch(&space, &own_kubeconfig(), None);
    plane.ready();
    assert_eq!(chat(&plane, "nobody is there"), 503);
    let [first, second] = ["10.250.241.1", "10.250.241.2"];
    api.create("a", "m1");
    api.status("a", first, "True");
    let mut took = vec![("the first is used", until_endpoints(&plane, &["a"]))];
    assert_eq!(chat(&plane, "x"), 200);
    api.create("b", "m1");
    api.status("b", second, "False");
    api.status("b", second, "True");
    took.push(("ready", until_endpoints(&plane, &["a", "b"])));
    api.status("b", second, "False");
    took.push(("unready", until_endpoints(&plane, &["a"])));
    api.status("b", second, "True");
    took.push(("ready again", until_endpoints(&plane, &["a", "b"])));
    api.label("b", "other");
    took.push(("label changed", until_endpoints(&plane, &["a"])));
    api.label("b", "m1");
    took.push(("label back", until_endpoints(&plane, &["a", "b"])));
    api.status("b", "", "True");
    took.push(("address lost", until_endpoints(&plane, &["a"])));
    api.status("b", second, "True");
    took.push(("address back", until_endpoints(&plane, &["a", "b"])));
    api.delete("b", 600);
    took.push(("terminating", until_endpoints(&plane, &["a"])));
    api.delete("b", 0);
    api.create("b", "m1");
    api.status("b", second, "True");
    took.push(("another life", until_endpoints(&plane, &["a", "b"])));
    api.delete("a", 0);
    took.push(("deleted", until_endpoints(&plane, &["b"])));
    assert_eq!(chat(&plane, "y"), 200);
    println!("{took:?}");
    for (step, took) in took {
        assert!(took < IN_TIME, "{step}: {took:?}");
    }
}

#[test]
fn g01_a_pod_that_is_to_go_finishes_what_it_has_and_gets_nothing_new() {
    let (hold, held) = std::sync::mpsc::channel::<()>();
    let held = std::sync::Mutex::new(Some(held));
    let peer = Peer::start_at(IpAddr::V4(Ipv4Addr::UNSPECIFIED), move |exchange| {
        if exchange.request.body.windows(4).any(|at| at == b"held") {
            let held = held.lock().unwrap().take().expect("one request is held");
            // Its sender is dropped where the test fails.
            let _ = held.recv_timeout(Duration::from_secs(60));
        }
        exchange.answer_plainly()
    });
    let space = site("leaving", peer.address.port());
    let api = Api::of(&space);
    api.create("a", "m1");
    api.status("a", "10.250.242.1", "True");
    let plane = Plane::launch(&space, &own_kubeconfig(), None);
    plane.ready();
    until_endpoints(&plane, &["a"]);
    let body = chat_body("m1", "held");
    let mut running = Connection::open(plane.data);
    running.send(format!("POST {CHATS} HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n{body}", body.len())).unwrap();
    eventually("it runs", Duration::from_secs(10), || (peer.seen().len() == 1).then_some(()));
    api.create("b", "m1");
    api.status("b", "10.250.242.2", "True");
    api.delete("a", 600);
    until_endpoints(&plane, &["b"]);
    for turn in 0..20 {
        assert_eq!(chat(&plane, &format!("new {turn}")), 200);
    }
    let at = |ip: &str| {
        peer.seen().iter().filter(|seen| seen.header("host").is_some_and(|host| host.starts_with(ip))).count()
    };
    assert_eq!((at("10.250.242.1:"), at("10.250.242.2:")), (1, 20));
    // Also once its object is gone.
    api.delete("a", 0);
    hold.send(()).unwrap();
    assert_eq!(running.answer().unwrap().status, 200);
}

#[test]
fn an_api_server_that_is_away_costs_no_request_and_no_start_that_knows_something() {
    let peer = everywhere();
    let space = site("away", peer.address.port());
    let api = Api::of(&space);
    api.create("a", "m1");
    api.status("a", "10.250.243.1", "True");
    let between = Between::new();
    let state = tempfile::tempdir().unwrap();
    let start = |state: Option<&Path>| Plane::launch(&space, &between.kubeconfig, state);
    let plane = start(Some(state.path()));
    plane.ready();
    until_endpoints(&plane, &["a"]);
    for wire in [Wire::Cut, Wire::Hole] {
        between.set(wire);
        let began = Instant::now();
        while began.elapsed() < Duration::from_secs(3) {
            assert_eq!(chat(&plane, "away"), 200, "{wire:?}");
        }
        assert!(plane.is_ready(), "{wire:?}");
    }
    let kept = state.path().join("objects.json");
    eventually("the state is kept", Duration::from_secs(10), || {
        std::fs::read_to_string(&kept).is_ok_and(|text| text.contains("10.250.243.1")).then_some(())
    });
    drop(plane);
    // A start from what was known, and one from nothing, both without an API server.
    let (knowing, ignorant) = (start(Some(state.path())), start(None));
    knowing.ready();
    until_endpoints(&knowing, &["a"]);
    assert_eq!(chat(&knowing, "from what was known"), 200);
    assert!(!ignorant.is_ready(), "it knows nothing");
    // What changed meanwhile is found out by both.
    api.create("b", "m1");
    api.status("b", "10.250.243.2", "True");
    api.delete("a", 0);
    between.set(Wire::Whole);
    for plane in [&knowing, &ignorant] {
        until_endpoints(plane, &["b"]);
        plane.ready();
        assert_eq!(chat(plane, "there again"), 200);
    }
}

#[test]
fn h11_a_bad_part_of_a_configuration_harms_only_itself() {
    let peer = everywhere();
    let space = site("bad", peer.address.port());
    let api = Api::of(&space);
    api.create("a", "m1");
    api.status("a", "10.250.244.1", "True");
    let plane = Plane::launch(&space, &own_kubeconfig(), None);
    plane.ready();
    until_endpoints(&plane, &["a"]);
    let adapters = |name: &str, adapters: &str| {
        format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}, labels: {{inference.networking.k8s.io/bbr-managed: \
             \"true\"}}}}\ndata: {{baseModel: m1, adapters: {adapters:?}}}\n"
        )
    };
    let serves = |model: &str| post(plane.data, CHATS, chat_body(model, "x")).status == 200;
    let error = || plane.admin.json("/api/v1/config")["error"].clone();
    space.apply(&adapters("good", "- one\n"));
    space.apply(&adapters("bad", "- two\n"));
    eventually("adapters are served", Duration::from_secs(10), || (serves("one") && serves("two")).then_some(()));
    assert!(error().is_null());
    // One team's mistake changes nothing, and another team's change comes through.
    space.apply(&adapters("bad", "{not: a list}"));
    let told = |error: &Value| error.to_string().contains("/bad");
    eventually("the mistake is told", Duration::from_secs(10), || told(&error()).then_some(()));
    space.apply(&adapters("good", "- one\n- three\n"));
    eventually("the change comes through", Duration::from_secs(10), || serves("three").then_some(()));
    assert!(serves("one") && serves("two"), "the last good version counts");
    assert!(told(&error()), "{}", error());
    space.apply(&adapters("bad", "- four\n"));
    eventually("it is mended", Duration::from_secs(10), || (serves("four") && error().is_null()).then_some(()));
    assert!(!serves("two"));
    assert!(plane.log().contains("ConfigMap"), "what is left out is said");
}

/// Pods come, go and flap while there is traffic. `CHURN_PODS` and `CHURN_SECONDS` make it larger.
#[test]
fn churn_loses_no_request_and_the_endpoints_are_the_truth_after_every_step() {
    let number = |name: &str, usual: u64| std::env::var(name).map_or(usual, |text| text.parse().unwrap());
    let (pods, seconds) = (number("CHURN_PODS", 40), number("CHURN_SECONDS", 20));
    let peer = everywhere();
    let space = site("churn", peer.address.port());
    let api = Api::of(&space);
    let mut churn = Churn::new(&api, pods);
    for pod in 0..pods {
        churn.create(pod);
    }
    let plane = Plane::launch(&space, &own_kubeconfig(), None);
    plane.ready();
    churn.check(&plane);
    let (stop, answered) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        for worker in 0..4 {
            let (plane, stop, answered) = (&plane, &stop, &answered);
            scope.spawn(move || {
                while !stop.load(Ordering::Acquire) {
                    let turn = answered.fetch_add(1, Ordering::AcqRel);
                    let answer = post(plane.data, CHATS, chat_body("m1", &format!("{worker} {turn}")));
                    assert_eq!(answer.status, 200, "request {turn}: {}", answer.text());
                    // A steady load, not a full one: the machine has the cluster to carry as well.
                    thread::sleep(Duration::from_millis(5));
                }
            });
        }
        let began = Instant::now();
        while began.elapsed() < Duration::from_secs(seconds) {
            churn.step(&plane);
        }
        stop.store(true, Ordering::Release);
    });
    let answered = answered.into_inner();
    let seen = peer.seen();
    assert_eq!(seen.len(), answered, "each was answered by one pod");
    let late = seen.iter().filter(|seen| churn.was_out(seen.header("host").unwrap(), seen.at)).count();
    println!("{} steps, {answered} requests, {late} late, slowest step {:?}", churn.steps, churn.slowest);
    assert_eq!(late, 0, "requests to pods that had been out for a second");
}

/// The pods of a churn as they should be seen.
struct Churn<'a> {
    api: &'a Api,
    pods: u64,
    random: fastrand::Rng,
    /// Ready ones.
    truth: BTreeSet<u64>,
    there: BTreeSet<u64>,
    /// By address: when it went out, and when it came back.
    out: BTreeMap<String, Vec<(Instant, Option<Instant>)>>,
    steps: usize,
    slowest: Duration,
}

impl<'a> Churn<'a> {
    fn new(api: &'a Api, pods: u64) -> Self {
        Self {
            api,
            pods,
            random: fastrand::Rng::with_seed(5),
            truth: BTreeSet::new(),
            there: BTreeSet::new(),
            out: BTreeMap::new(),
            steps: 0,
            slowest: Duration::ZERO,
        }
    }

    fn name(pod: u64) -> String {
        format!("p{pod:03}")
    }

    fn ip(pod: u64) -> String {
        format!("10.250.245.{}", pod + 1)
    }

    fn create(&mut self, pod: u64) {
        self.api.create(&Self::name(pod), "m1");
        self.there.insert(pod);
        self.ready(pod);
    }

    fn ready(&mut self, pod: u64) {
        if let Some((_, back)) = self.out.get_mut(&Self::ip(pod)).and_then(|times| times.last_mut()) {
            *back = Some(Instant::now());
        }
        self.api.status(&Self::name(pod), &Self::ip(pod), "True");
        self.truth.insert(pod);
    }

    fn leaves(&mut self, pod: u64) {
        if self.truth.remove(&pod) {
            self.out.entry(Self::ip(pod)).or_default().push((Instant::now(), None));
        }
    }

    /// Changes a few pods at once, then looks.
    fn step(&mut self, plane: &Plane) {
        for _ in 0..self.random.u64(1..=1 + self.pods / 10) {
            let pod = self.random.u64(0..self.pods);
            let what = self.random.u8(0..4);
            if !self.there.contains(&pod) {
                self.create(pod);
            } else if !self.truth.contains(&pod) && what < 2 {
                self.ready(pod);
            } else if self.truth.len() > 3 && what < 3 {
                self.api.status(&Self::name(pod), &Self::ip(pod), "False");
                self.leaves(pod);
            } else if self.truth.len() > 3 {
                self.api.delete(&Self::name(pod), 0);
                self.there.remove(&pod);
                self.leaves(pod);
            }
        }
        self.check(plane);
    }

    fn check(&mut self, plane: &Plane) {
        let names: Vec<String> = self.truth.iter().copied().map(Self::name).collect();
        let took = until_endpoints(plane, &names.iter().map(String::as_str).collect::<Vec<_>>());
        self.steps += 1;
        self.slowest = self.slowest.max(if self.steps > 1 { took } else { Duration::ZERO });
        assert!(self.steps == 1 || took < IN_TIME, "step {}: {took:?}", self.steps);
    }

    /// Whether the pod at this address and port had been out for a second by then, and was not back.
    fn was_out(&self, host: &str, at: Instant) -> bool {
        let ip = host.split(':').next().unwrap();
        let times = self.out.get(ip).map_or(&[][..], Vec::as_slice);
        times.iter().any(|(out, back)| at > *out + IN_TIME && back.is_none_or(|back| at < back))
    }
}
