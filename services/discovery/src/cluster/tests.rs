//! The watches against an API server that does what real ones do on bad days.

mod fake;

use std::{sync::Arc, time::Duration};

use api::cluster::{ObjectKey, Objects};
use serde_json::{Value, json};
use tokio::{
    sync::{mpsc, watch},
    task::AbortHandle,
    time::timeout,
};

use super::{Kind, Limits, Range, Scope, follow};
use fake::{Fake, Fault};

/// Far beyond anything that is waited for, also on a machine with much else to do.
const LONG: Duration = Duration::from_secs(30);

const LIMITS: Limits = Limits {
    answer_max: Duration::from_millis(800),
    watch_min: Duration::from_secs(1),
    watch_max: Duration::from_secs(2),
    overdue_max: Duration::from_millis(200),
    retry_min: Duration::from_millis(10),
    retry_max: Duration::from_millis(100),
    pods_settle: Duration::from_millis(5),
    settle: Duration::from_millis(20),
    pending_max: Duration::from_millis(500),
    absent_after: Duration::from_millis(500),
    page_objects: 2,
};

/// A follower, and what it tells.
struct Follower {
    scope: watch::Sender<Scope>,
    told: mpsc::UnboundedReceiver<Arc<Objects>>,
    task: AbortHandle,
}

impl Follower {
    fn start(fake: &Fake, limits: Limits, kinds: &[Kind], seed: Objects) -> Self {
        let scope = kinds.iter().fold(Scope::default(), |mut scope, kind| {
            scope.add(*kind, Range::All);
            scope
        });
        let (scope, scoped) = watch::channel(scope);
        let (tell, told) = mpsc::unbounded_channel();
        let tell = move |objects| _ = tell.send(objects);
        let task = tokio::spawn(follow(fake.client(), limits, scoped, Arc::new(seed), tell)).abort_handle();
        Self { scope, told, task }
    }

    /// The first that is told of which this holds.
    async fn until(&mut self, holds: impl Fn(&Objects) -> bool) -> Arc<Objects> {
        let found = async {
            loop {
                let objects = self.told.recv().await.expect("the follower goes on");
                if holds(&objects) {
                    return objects;
                }
            }
        };
        timeout(LONG, found).await.expect("told in time")
    }

    async fn until_pods(&mut self, expected: &[&str]) -> Arc<Objects> {
        self.until(|objects| pods(objects) == expected).await
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn pods(objects: &Objects) -> Vec<&str> {
    objects.pods.keys().map(|key| key.name.as_str()).collect()
}

fn pod(name: &str) -> Value {
    json!({"metadata": {"namespace": "ns", "name": name, "uid": format!("uid-{name}")}, "status": {"podIP": "10.0.0.1"}})
}

async fn with_pods(limits: Limits, names: &[&str]) -> (Fake, Follower) {
    let fake = Fake::start().await;
    for name in names {
        fake.put("pods", pod(name));
    }
    let mut follower = Follower::start(&fake, limits, &[Kind::Pod], Objects::default());
    follower.until_pods(names).await;
    (fake, follower)
}

#[tokio::test]
async fn lists_come_in_pages_and_events_follow() {
    let (fake, mut follower) = with_pods(LIMITS, &["a", "b", "c", "d", "e"]).await;
    assert!(fake.asked().iter().filter(|path| path.contains("continue=")).count() >= 2, "five pods in pages of two");
    fake.put("pods", pod("f"));
    fake.remove("pods", "ns/b");
    follower.until_pods(&["a", "c", "d", "e", "f"]).await;
}

#[tokio::test]
async fn g02_what_went_while_no_watch_stood_is_gone_after_the_next_list() {
    let (fake, mut follower) = with_pods(LIMITS, &["a", "b"]).await;
    fake.forget("pods", "ns/b");
    fake.cut();
    follower.until_pods(&["a"]).await;
}

#[tokio::test]
async fn g02_a_version_that_is_too_old_is_listed_anew() {
    let (fake, mut follower) = with_pods(LIMITS, &["a", "b"]).await;
    // Told in the stream, as a watch that lags behind is.
    fake.forget("pods", "ns/b");
    fake.line(
        "pods",
        r#"{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired","message":"too old"}}"#,
    );
    follower.until_pods(&["a"]).await;
    // Told as the answer.
    fake.fault("pods", Fault::WatchStatus(410));
    fake.cut();
    fake.put("pods", pod("c"));
    follower.until_pods(&["a", "c"]).await;
}

#[tokio::test]
async fn g03_a_watch_that_says_nothing_is_given_up_within_the_bound() {
    let (fake, mut follower) = with_pods(LIMITS, &["a", "b"]).await;
    fake.fault("pods", Fault::SilentWatch);
    // A watch that had begun before must end first.
    fake.cut();
    fake.until_asked_again("pods", "watch=1").await;
    fake.put("pods", pod("c"));
    let began = std::time::Instant::now();
    follower.until_pods(&["a", "b", "c"]).await;
    // Ten times what is promised on an idle machine would be no bound; a second more is for a busy one.
    let bound = LIMITS.stale_max() + Duration::from_secs(1);
    assert!(began.elapsed() < bound, "{:?} is longer than {bound:?}", began.elapsed());
}

#[tokio::test]
async fn g05_a_pod_that_comes_back_under_its_name_is_another_one() {
    let (fake, mut follower) = with_pods(LIMITS, &["a"]).await;
    fake.remove("pods", "ns/a");
    let mut again = pod("a");
    again["metadata"]["uid"] = "another".into();
    fake.put("pods", again);
    let key = ObjectKey::new("ns", "a");
    follower.until(|objects| objects.pods.get(&key).is_some_and(|pod| pod.metadata.uid == "another")).await;
}

#[tokio::test]
async fn g06_a_kind_that_hangs_holds_no_other_up() {
    let fake = Fake::start().await;
    fake.fault("secrets", Fault::Hang);
    fake.put("pods", pod("a"));
    let mut follower = Follower::start(&fake, LIMITS, &[Kind::Pod, Kind::Secret], Objects::default());
    follower.until_pods(&["a"]).await;
    fake.remove("pods", "ns/a");
    follower.until_pods(&[]).await;
}

#[tokio::test]
async fn h03_a_black_hole_costs_nothing_that_is_known_and_ends_soon_after_it_closes() {
    let (fake, mut follower) = with_pods(LIMITS, &["a"]).await;
    fake.fault("pods", Fault::Hang);
    fake.cut();
    fake.until_asked_again("pods", "limit").await;
    fake.until_asked_again("pods", "limit").await;
    assert!(follower.told.try_recv().is_err(), "nothing has changed as far as anybody knows");
    fake.put("pods", pod("b"));
    fake.fault("pods", Fault::None);
    follower.until_pods(&["a", "b"]).await;
}

#[tokio::test]
async fn a_kind_that_is_not_installed_or_not_granted_is_absent_until_it_is() {
    for status in [403, 404] {
        let fake = Fake::start().await;
        fake.fault("gateways", Fault::Status(status));
        fake.put("pods", pod("a"));
        fake.put("gateways", json!({"metadata": {"namespace": "ns", "name": "gw"}, "spec": {}}));
        let mut follower = Follower::start(&fake, LIMITS, &[Kind::Pod, Kind::Gateway], Objects::default());
        let first = follower.until_pods(&["a"]).await;
        assert!(first.gateways.is_empty(), "{status}");
        fake.fault("gateways", Fault::None);
        follower.until(|objects| objects.gateways.len() == 1 && objects.pods.len() == 1).await;
    }
}

#[tokio::test]
async fn h05_what_an_api_server_suddenly_does_not_show_stays_for_a_while_and_then_goes() {
    let (fake, mut follower) = with_pods(LIMITS, &["a"]).await;
    fake.fault("pods", Fault::Status(404));
    fake.cut();
    fake.until_asked_again("pods", "limit").await;
    assert!(follower.told.try_recv().is_err(), "a server that starts says so for a moment");
    follower.until_pods(&[]).await;
    fake.fault("pods", Fault::None);
    follower.until_pods(&["a"]).await;
}

#[tokio::test]
async fn bytes_that_make_no_sense_end_in_a_new_list() {
    let (fake, mut follower) = with_pods(LIMITS, &["a", "b"]).await;
    for garbage in ["{\"type\":\"ADDED\"", "]", "{\"type\":\"INVENTED\",\"object\":{}}", "{\"type\":7,\"object\":{}}"] {
        fake.forget("pods", "ns/b");
        fake.line("pods", garbage);
        follower.until_pods(&["a"]).await;
        fake.put("pods", pod("b"));
        follower.until_pods(&["a", "b"]).await;
    }
}

#[tokio::test]
async fn an_object_that_cannot_be_read_is_left_out_and_harms_no_other() {
    let (fake, mut follower) = with_pods(LIMITS, &["a", "b"]).await;
    let mut bad = pod("b");
    bad["metadata"]["labels"] = json!(["no", "map"]);
    fake.put("pods", bad);
    follower.until_pods(&["a"]).await;
    fake.put("pods", pod("c"));
    follower.until_pods(&["a", "c"]).await;
    // A list finds it, too.
    fake.cut();
    fake.until_asked_again("pods", "watch=1").await;
    fake.put("pods", pod("b"));
    follower.until_pods(&["a", "b", "c"]).await;
}

#[tokio::test]
async fn of_two_groups_the_newer_wins_and_the_older_comes_back_when_it_is_gone() {
    const NEW: &str = "llm-d.ai/inferenceobjectives";
    const OLD: &str = "inference.networking.x-k8s.io/inferenceobjectives";
    let objective =
        |priority: i32| json!({"metadata": {"namespace": "ns", "name": "o"}, "spec": {"priority": priority}});
    let fake = Fake::start().await;
    fake.put(NEW, objective(2));
    fake.put(OLD, objective(1));
    let mut follower = Follower::start(&fake, LIMITS, &[Kind::Objective], Objects::default());
    let is = |priority: i32| {
        move |objects: &Objects| objects.objectives.values().map(|it| it.spec["priority"].clone()).eq([json!(priority)])
    };
    follower.until(is(2)).await;
    fake.remove(NEW, "ns/o");
    follower.until(is(1)).await;
    fake.put(OLD, objective(3));
    follower.until(is(3)).await;
    fake.put(NEW, objective(2));
    follower.until(is(2)).await;
}

#[tokio::test]
async fn what_has_not_changed_is_not_told() {
    let calm = Limits { watch_min: LONG, watch_max: LONG, ..LIMITS };
    let (fake, mut follower) = with_pods(calm, &["a"]).await;
    let mut same = pod("a");
    same["metadata"]["managedFields"] = json!([{"manager": "kubelet"}]);
    same["metadata"]["annotations"] = json!({"kubectl.kubernetes.io/last-applied-configuration": "{}"});
    same["spec"] = json!({"nodeName": "n"});
    fake.put("pods", same);
    fake.line("pods", r#"{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"99"}}}"#);
    fake.cut();
    fake.until_asked_again("pods", "watch=1").await;
    fake.put("pods", pod("b"));
    let next = timeout(LONG, follower.told.recv()).await.unwrap().unwrap();
    assert_eq!(pods(&next), ["a", "b"], "the first that is told is of the change");
}

#[tokio::test]
async fn a_burst_is_told_at_few_times() {
    let calm = Limits { pods_settle: Duration::from_millis(200), ..LIMITS };
    let (fake, mut follower) = with_pods(calm, &["a"]).await;
    for index in 0..200 {
        fake.put("pods", pod(&format!("b{index:03}")));
    }
    let mut times = 0;
    loop {
        times += 1;
        let objects = timeout(LONG, follower.told.recv()).await.unwrap().unwrap();
        if objects.pods.len() == 201 {
            break;
        }
    }
    assert!(times < 50, "{times} times for 200 pods");
}

#[tokio::test]
async fn a_scope_that_changes_is_answered_and_what_is_no_longer_in_it_goes() {
    let (fake, mut follower) = with_pods(LIMITS, &["a"]).await;
    let secret = |name: &str| json!({"metadata": {"namespace": "ns", "name": name}, "data": {"k": "dg=="}});
    fake.put("secrets", secret("mine"));
    fake.put("secrets", secret("other"));
    let mut map = secret("adapters");
    map["metadata"]["labels"] = json!({"x/y": "true"});
    fake.put("configmaps", map);
    fake.put("configmaps", secret("other"));
    follower.scope.send_modify(|scope| {
        scope.add(Kind::Secret, Range::Named(ObjectKey::new("ns", "mine")));
        let (key, value) = ("x/y".to_owned(), "true".to_owned());
        scope.add(Kind::ConfigMap, Range::Labelled { namespace: "ns".into(), key, value });
    });
    let told = timeout(LONG, follower.told.recv()).await.unwrap().unwrap();
    assert_eq!(told.secrets.keys().collect::<Vec<_>>(), [&ObjectKey::new("ns", "mine")], "all in one telling");
    assert_eq!(told.config_maps.len(), 1);
    let selected = |path: &&String| path.contains("/secrets?") && !path.contains("metadata.name%3Dmine");
    assert_eq!(fake.asked().iter().find(selected), None, "nobody else's secret is asked for");
    follower.scope.send_modify(|scope| *scope = scope.clone().without(Kind::Pod));
    follower.until(|objects| objects.pods.is_empty() && objects.secrets.len() == 1).await;
    // A scope that adds nothing new is answered too.
    follower.scope.send_modify(|_| ());
    timeout(LONG, follower.told.recv()).await.unwrap().unwrap();
}

#[tokio::test]
async fn an_earlier_snapshot_stands_in_while_the_api_server_is_away_and_for_no_longer() {
    let fake = Fake::start().await;
    fake.fault("pods", Fault::Hang);
    let mut seed = Objects::default();
    for namespace in ["ns", "elsewhere"] {
        let mut old = pod("old");
        old["metadata"]["namespace"] = namespace.into();
        seed.pods.insert(ObjectKey::new(namespace, "old"), Arc::new(serde_json::from_value(old).unwrap()));
    }
    let mut scope = Scope::default();
    scope.add(Kind::Pod, Range::Namespace("ns".into()));
    let mut follower = Follower::start(&fake, LIMITS, &[], seed);
    follower.scope.send_replace(scope);
    let told = follower.until_pods(&["old"]).await;
    assert_eq!(told.pods.len(), 1, "of the scope, and no more");
    fake.put("pods", pod("new"));
    fake.fault("pods", Fault::None);
    follower.until_pods(&["new"]).await;
}

#[tokio::test]
async fn nothing_is_told_before_something_is_known() {
    let fake = Fake::start().await;
    fake.fault("pods", Fault::Hang);
    let mut follower = Follower::start(&fake, LIMITS, &[Kind::Pod], Objects::default());
    fake.until_asked_again("pods", "limit").await;
    fake.until_asked_again("pods", "limit").await;
    assert!(follower.told.try_recv().is_err(), "an empty cluster would be believed");
    fake.fault("pods", Fault::None);
    follower.until_pods(&[]).await;
}

/// Whatever happens to the watches, in the end the truth is told.
#[tokio::test]
async fn after_any_series_of_faults_the_truth_is_told() {
    for seed in 0..4_u64 {
        let mut random = fastrand::Rng::with_seed(seed);
        let (fake, mut follower) = with_pods(LIMITS, &["p0"]).await;
        for _ in 0..60 {
            let name = format!("p{}", random.u8(0..8));
            match random.u8(0..10) {
                0..4 => fake.put("pods", pod(&name)),
                4..6 => fake.remove("pods", &format!("ns/{name}")),
                6 => fake.forget("pods", &format!("ns/{name}")),
                7 => fake.cut(),
                8 => fake.line("pods", "{\"type\":\"ADDED\",\"object\":{\"metadata\""),
                _ => {
                    let faults = [Fault::Status(500), Fault::Status(429), Fault::WatchStatus(410), Fault::SilentWatch];
                    fake.fault("pods", faults[random.usize(..faults.len())]);
                }
            }
            tokio::task::yield_now().await;
        }
        fake.fault("pods", Fault::None);
        // One more, so that there is something to tell whatever was told before.
        fake.put("pods", pod("last"));
        let truth = fake.names("pods");
        follower.until(|objects| pods(objects) == truth).await;
    }
}
