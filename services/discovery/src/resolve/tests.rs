//! Names that change, fail and come back, on paused time.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::atomic::{AtomicUsize, Ordering},
};

use parking_lot::Mutex;
use pool::EndpointId;
use tokio::sync::mpsc;

use super::{dns::Family, *};

/// Answers from a table that a test changes.
#[derive(Default)]
struct FakeDns {
    answers: Mutex<HashMap<(String, Family), Result<Answer, Failure>>>,
    asked: AtomicUsize,
}

impl FakeDns {
    fn set(&self, name: &str, family: Family, addresses: &[&str], ttl_s: u64) {
        let addresses = addresses.iter().map(|ip| ip.parse::<IpAddr>().unwrap()).collect();
        let answer = Answer { addresses, ttl: Duration::from_secs(ttl_s) };
        self.answers.lock().insert((name.into(), family), Ok(answer));
    }

    fn fail(&self, name: &str, family: Family) {
        self.answers.lock().insert((name.into(), family), Err(Failure("server failure".into())));
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::Relaxed)
    }
}

impl Dns for FakeDns {
    fn look_up(&self, name: Arc<str>, family: Family) -> dns::Asked<'_> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let empty = || Ok(Answer { addresses: Vec::new(), ttl: Duration::from_secs(3600) });
        let answer = self.answers.lock().get(&(name.to_string(), family)).cloned().unwrap_or_else(empty);
        Box::pin(async move { answer })
    }
}

fn want(name: &str, host: &str) -> Want {
    Want {
        name: name.into(),
        host: host.parse().unwrap(),
        port: 8000,
        metrics: MetricsAt { port: 8000, path: "/metrics".into() },
        tls: None,
        authorization: None,
        engine: Engine::Vllm,
        identity: 1,
    }
}

/// A resolver at work, and what it told.
struct Rig {
    dns: Arc<FakeDns>,
    wants: watch::Sender<Arc<[Want]>>,
    told: mpsc::UnboundedReceiver<Arc<[Found]>>,
}

impl Rig {
    fn start(dns: Arc<FakeDns>, wants: Vec<Want>) -> Self {
        let (wants, receiver) = watch::channel(wants.into());
        let (sender, told) = mpsc::unbounded_channel();
        tokio::spawn(Resolver::new(dns.clone()).run(receiver, move |found| {
            sender.send(found).unwrap();
        }));
        Self { dns, wants, told }
    }

    async fn next(&mut self) -> Vec<(String, String, EndpointId)> {
        let found = tokio::time::timeout(Duration::from_secs(3600), self.told.recv()).await.expect("a change").unwrap();
        let row = |f: &Found| (f.endpoint.name.to_string(), f.endpoint.address.to_string(), f.endpoint.id);
        found.iter().map(row).collect()
    }

    async fn next_names(&mut self) -> Vec<String> {
        self.next().await.into_iter().map(|(name, ..)| name).collect()
    }

    /// Nothing is told in this time.
    async fn quiet(&mut self, time: Duration) {
        assert!(tokio::time::timeout(time, self.told.recv()).await.is_err());
    }
}

#[tokio::test(start_paused = true)]
async fn literal_addresses_are_there_at_once() {
    let mut rig = Rig::start(Arc::default(), vec![want("b", "10.0.0.2"), want("a", "fd00::1")]);
    let found = rig.next().await;
    assert_eq!((&*found[0].0, &*found[0].1), ("a", "[fd00::1]:8000"), "d11: with brackets");
    assert_eq!((&*found[1].0, &*found[1].1), ("b", "10.0.0.2:8000"));
    assert_eq!(rig.dns.asked(), 0);
}

#[tokio::test(start_paused = true)]
async fn each_record_of_a_name_is_an_endpoint_and_keeps_its_id() {
    let dns = Arc::new(FakeDns::default());
    dns.set("llama", Family::V4, &["10.0.0.2", "10.0.0.1", "10.0.0.1"], 5);
    dns.set("llama", Family::V6, &["fd00::1"], 300);
    let mut rig = Rig::start(dns, vec![want("m", "llama")]);
    assert!(rig.next().await.is_empty(), "nothing is known at first");
    let mut found = rig.next().await;
    while found.len() < 3 {
        found = rig.next().await;
    }
    let names: Vec<_> = found.iter().map(|(name, ..)| name.as_str()).collect();
    assert_eq!(names, ["m/10.0.0.1", "m/10.0.0.2", "m/fd00::1"]);

    rig.dns.set("llama", Family::V4, &["10.0.0.2", "10.0.0.3"], 5);
    let later = rig.next().await;
    let names: Vec<_> = later.iter().map(|(name, ..)| name.as_str()).collect();
    assert_eq!(names, ["m/10.0.0.2", "m/10.0.0.3", "m/fd00::1"]);
    assert_eq!((later[0].2, later[2].2), (found[1].2, found[2].2));

    // Gone and back is another life.
    rig.dns.set("llama", Family::V4, &["10.0.0.1", "10.0.0.2"], 5);
    let back = rig.next().await;
    assert_eq!(back[1].2, found[1].2);
    assert!(back[0].2 > later[1].2, "{back:?}");
}

#[tokio::test(start_paused = true)]
async fn names_are_looked_up_again_as_they_expire_within_bounds() {
    for (ttl_s, looks_in_10_min) in [(0, 600), (60, 10), (86_400, 2)] {
        let dns = Arc::new(FakeDns::default());
        dns.set("llama", Family::V4, &["10.0.0.1"], ttl_s);
        dns.set("llama", Family::V6, &["fd00::1"], ttl_s);
        let mut rig = Rig::start(dns, vec![want("m", "llama")]);
        while rig.next().await.len() < 2 {}
        rig.quiet(Duration::from_secs(600)).await;
        let looks = rig.dns.asked() / 2;
        assert!(looks.abs_diff(looks_in_10_min + 1) <= 2, "ttl {ttl_s}: {looks}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_lookup_keeps_the_last_good_answer_and_backs_off() {
    let dns = Arc::new(FakeDns::default());
    dns.set("llama", Family::V4, &["10.0.0.1"], 1);
    dns.set("llama", Family::V6, &[], 3600);
    let mut rig = Rig::start(dns, vec![want("m", "llama")]);
    rig.next().await;
    let before = rig.next().await;
    rig.dns.fail("llama", Family::V4);
    let asked = rig.dns.asked();
    rig.quiet(Duration::from_secs(600)).await;
    // 1, 2, 4, 8, 16 s, then every 30 s; the other family's "none" every 30 s.
    let looks = rig.dns.asked() - asked;
    assert!((40..=50).contains(&looks), "{looks}");
    rig.dns.set("llama", Family::V4, &["10.0.0.1", "10.0.0.2"], 60);
    let after = rig.next().await;
    assert_eq!((after.len(), after[0].2), (2, before[0].2));
}

#[tokio::test(start_paused = true)]
async fn a_family_that_never_answers_does_not_hold_up_the_other() {
    struct Half(FakeDns);
    impl Dns for Half {
        fn look_up(&self, name: Arc<str>, family: Family) -> dns::Asked<'_> {
            match family {
                Family::V4 => self.0.look_up(name, family),
                Family::V6 => Box::pin(std::future::pending()),
            }
        }
    }
    let fake = FakeDns::default();
    fake.set("llama", Family::V4, &["10.0.0.1"], 60);
    let (_wants, receiver) = watch::channel(Arc::from([want("m", "llama")]));
    let (sender, mut told) = mpsc::unbounded_channel();
    tokio::spawn(Resolver::new(Arc::new(Half(fake))).run(receiver, move |found| sender.send(found).unwrap()));
    assert_eq!(told.recv().await.unwrap().len(), 0);
    assert_eq!(told.recv().await.unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_lookup_that_panics_is_a_failed_one() {
    struct Broken;
    impl Dns for Broken {
        fn look_up(&self, _: Arc<str>, _: Family) -> dns::Asked<'_> {
            Box::pin(async { panic!("a bug in a resolver") })
        }
    }
    let (wants, receiver) = watch::channel(Arc::from([want("m", "llama")]));
    let (sender, mut told) = mpsc::unbounded_channel();
    let running = tokio::spawn(Resolver::new(Arc::new(Broken)).run(receiver, move |found| sender.send(found).unwrap()));
    assert!(told.recv().await.unwrap().is_empty());
    wants.send(Arc::from([want("m", "llama"), want("n", "10.0.0.1")])).unwrap();
    assert_eq!(told.recv().await.unwrap().len(), 1);
    assert!(!running.is_finished());
}

#[tokio::test(start_paused = true)]
async fn wants_come_and_go() {
    let dns = Arc::new(FakeDns::default());
    dns.set("llama", Family::V4, &["10.0.0.1"], 60);
    let mut rig = Rig::start(dns, vec![want("a", "10.0.0.9"), want("m", "llama")]);
    assert_eq!(rig.next_names().await, ["a"]);
    let first = rig.next().await;
    assert_eq!(first.len(), 2);

    // The same again, in another order and with another port to look at, is no other life.
    let mut moved = want("a", "10.0.0.9");
    moved.metrics.port = 9000;
    rig.wants.send(Arc::from([want("m", "llama"), moved.clone()])).unwrap();
    let second = rig.next().await;
    assert_eq!(first, second);

    let other = Want { identity: 2, ..moved };
    rig.wants.send(Arc::from([want("m", "llama"), other])).unwrap();
    let third = rig.next().await;
    assert_ne!(third[0].2, second[0].2);
    assert_eq!(third[1].2, second[1].2);

    rig.wants.send(Arc::from([want("n", "llama")])).unwrap();
    assert_eq!(rig.next_names().await, ["n/10.0.0.1"], "the name's addresses are known already");
    let asked = rig.dns.asked();
    rig.wants.send(Arc::from([])).unwrap();
    assert!(rig.next().await.is_empty());
    rig.quiet(Duration::from_secs(600)).await;
    assert_eq!(rig.dns.asked(), asked, "names no longer wanted are not asked for");
}

#[tokio::test(start_paused = true)]
async fn a_name_without_records_takes_its_endpoints_away() {
    let dns = Arc::new(FakeDns::default());
    dns.set("llama", Family::V4, &["10.0.0.1"], 5);
    let mut rig = Rig::start(dns, vec![want("m", "llama")]);
    assert_eq!(rig.next().await.len(), 0);
    assert_eq!(rig.next().await.len(), 1);
    rig.dns.set("llama", Family::V4, &[], 3600);
    assert_eq!(rig.next().await.len(), 0);
    rig.dns.set("llama", Family::V4, &["10.0.0.1"], 5);
    let emptied = Instant::now();
    assert_eq!(rig.next().await.len(), 1);
    assert!(emptied.elapsed() <= Duration::from_secs(31), "servers are expected back");
}

#[tokio::test]
async fn the_machines_own_names_are_known() {
    // `localhost` is in every hosts file, and needs no server where it is not.
    let answer = SystemDns.look_up("localhost".into(), Family::V4).await.unwrap();
    assert_eq!(answer.addresses, ["127.0.0.1".parse::<IpAddr>().unwrap()]);
}

#[test]
fn a_name_without_any_address_is_told_once_and_again_only_after_it_had_one() {
    let now = tokio::time::Instant::now();
    let mut plan = super::plan::Plan::default();
    plan.set_wants(&[want("m", "llama")], now);
    let answer = |plan: &mut super::plan::Plan, addresses: &[&str]| {
        let (ttl, later) = (Duration::from_secs(1), now + Duration::from_secs(3600));
        let queries: Vec<_> = std::iter::from_fn(|| plan.next_due(later)).collect();
        for query in queries {
            let mine = if query.family == Family::V4 { addresses } else { &[] };
            let addresses = mine.iter().map(|address| address.parse().unwrap()).collect();
            plan.answered(&query, Ok(Answer { addresses, ttl }), now);
        }
        plan.nowhere().count()
    };
    assert_eq!(answer(&mut plan, &[]), 1);
    assert_eq!(answer(&mut plan, &[]), 1);
    assert_eq!(answer(&mut plan, &["10.0.0.1"]), 0);
    assert_eq!(answer(&mut plan, &[]), 1);
    plan.set_wants(&[], now);
    assert_eq!(plan.nowhere().count(), 0, "what is not wanted is forgotten");
}
