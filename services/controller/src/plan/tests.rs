//! The plan against a pretended API server: writes are done one by one, and every place to stop at is tried.

use std::{cell::RefCell, sync::Arc};

use api::cluster::{Namespace, Object, ObjectMeta, Objects, Pod};
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::{
    judge::Judge,
    picture::{label, text},
    seen::Seen,
    wanted::Owner,
};

pub(crate) fn settings() -> Settings {
    Settings {
        system_namespace: names::SYSTEM_NAMESPACE.into(),
        image: "igw:1".into(),
        pull_policy: "IfNotPresent".into(),
    }
}

/// A cluster that does what it is told, and counts.
#[derive(Clone, Default)]
pub(crate) struct Pretended {
    pub(crate) picture: Picture,
    bodies: BTreeMap<Id, Value>,
    planner: RefCell<Planner>,
    next: u64,
    pub(crate) writes: usize,
}

impl Pretended {
    pub(crate) fn with(configs: &[(&str, &str, Value)]) -> Self {
        let mut objects = Objects::default();
        for (namespace, name, spec) in configs {
            put(&mut objects, namespace, name, spec.clone());
        }
        Self { picture: Picture { objects: Arc::new(objects), ..Picture::default() }, next: 100, ..Self::default() }
    }

    /// One of the controller's objects, as it is.
    pub(crate) fn body(&self, id: &Id) -> Value {
        assert!(self.picture.owned.contains_key(id), "{id} is not there");
        self.bodies[id].clone()
    }

    pub(crate) fn put(&mut self, id: Id, mut body: Value) {
        self.next += 1;
        body["metadata"]["resourceVersion"] = json!(self.next.to_string());
        self.picture.owned.insert(id.clone(), Arc::new(Seen::new(id.kind, body.clone())));
        self.bodies.insert(id, body);
    }

    pub(crate) fn objects(&mut self) -> &mut Objects {
        Arc::make_mut(&mut self.picture.objects)
    }

    pub(crate) fn configs(&self) -> BTreeMap<ObjectKey, Judged> {
        Judge::default().judge(&self.picture.objects, &settings())
    }

    pub(crate) fn due(&self) -> Vec<Action> {
        let (configs, settings, imported) = (self.configs(), settings(), BTreeMap::new());
        let wishes = Wishes { settings: &settings, configs: &configs, imported: &imported };
        let fresh = Planner::default().plan(&self.picture, wishes, &Settled::new());
        // The second time it remembers.
        let mut planner = self.planner.borrow_mut();
        for _ in 0..2 {
            assert_eq!(
                planner.plan(&self.picture, wishes, &Settled::new()),
                fresh,
                "what is remembered changes no plan"
            );
        }
        fresh.into_values().flatten().collect()
    }

    fn act(&mut self, action: &Action) {
        self.writes += 1;
        self.next += 1;
        match action {
            Action::Create { id, body } => {
                let mut body = body.clone();
                body["metadata"]["uid"] = json!(format!("uid-{}", self.next));
                self.put(id.clone(), body);
            }
            Action::Change { id, uid, body } => {
                let mut body = body.clone();
                body["metadata"]["uid"] = json!(uid);
                self.put(id.clone(), body);
            }
            Action::LetGo { id, .. } => assert!(self.picture.owned.contains_key(id)),
            Action::Delete { id, uid } => {
                let gone = self.picture.owned.remove(id).expect("only what is there is deleted");
                assert_eq!(*gone.uid, **uid);
                self.collect(uid.clone());
            }
        }
    }

    /// As Kubernetes does: what belongs to what is gone goes too.
    fn collect(&mut self, uid: String) {
        let mut gone = vec![uid];
        while let Some(uid) = gone.pop() {
            let bodies = &self.bodies;
            self.picture.owned.retain(|id, object| {
                let owned = text(&bodies[id], "/metadata/ownerReferences/0/uid") == uid;
                if owned {
                    gone.push(object.uid.clone().into());
                }
                !owned
            });
        }
    }

    pub(crate) fn remove_config(&mut self, namespace: &str, name: &str) {
        let key = ObjectKey::new(namespace, name);
        let gone = self.objects().configs.remove(&key).expect("it was there");
        self.collect(gone.metadata.uid.clone());
    }

    /// Until nothing is due.
    pub(crate) fn settle(&mut self) {
        for _ in 0..10 {
            let due = self.due();
            if due.is_empty() {
                return;
            }
            due.iter().for_each(|action| self.act(action));
        }
        panic!("still due: {:?}", self.due().iter().map(|it| it.id().to_string()).collect::<Vec<_>>());
    }

    fn names(&self, kind: Kind) -> Vec<String> {
        let of_kind = self.picture.owned.keys().filter(|id| id.kind == kind);
        of_kind.map(|id| format!("{}/{}", id.namespace, id.name)).collect()
    }
}

pub(crate) fn put(objects: &mut Objects, namespace: &str, name: &str, spec: Value) {
    let created = format!("2026-01-01T00:00:{:02}Z", objects.configs.len());
    let metadata = ObjectMeta {
        name: name.into(),
        namespace: namespace.into(),
        uid: format!("uid-{namespace}-{name}"),
        generation: 1,
        creation_timestamp: Some(created),
        ..ObjectMeta::default()
    };
    let config = Object { metadata, spec, status: None };
    objects.configs.insert(config.key(), Arc::new(config));
}

pub(crate) fn spec(models: &[&str]) -> Value {
    let schedulers: Vec<Value> = models
        .iter()
        .map(|model| json!({"name": model, "modelName": model, "modelSelector": {"matchLabels": {"app": model}}}))
        .collect();
    json!({"bbr": {"enabled": true}, "schedulers": schedulers})
}

const SYSTEM: &str = names::SYSTEM_NAMESPACE;

#[test]
fn one_config_makes_the_objects_that_operators_look_for() {
    let mut cluster = Pretended::with(&[("team", "gw", spec(&["llama", "qwen"]))]);
    cluster.settle();
    assert_eq!(cluster.names(Kind::Gateway), [format!("{SYSTEM}/gw")]);
    assert_eq!(cluster.names(Kind::HttpRoute), ["team/gw-health", "team/llama", "team/qwen"]);
    assert_eq!(cluster.names(Kind::InferencePool), ["team/llama", "team/qwen"]);
    assert_eq!(cluster.names(Kind::Ingress), [format!("{SYSTEM}/alb-gw")]);
    let plane = names::data_plane(SYSTEM, "gw");
    assert_eq!(
        cluster.names(Kind::Service),
        [format!("{SYSTEM}/{plane}"), "team/llama-epp".into(), "team/qwen-epp".into()]
    );
    let service = cluster.body(&Id::new(Kind::Service, SYSTEM, &plane));
    assert_eq!(label(&service, names::GATEWAY_NAME_LABEL), "gw");
}

#[test]
fn everything_has_an_owner_but_the_anchor() {
    let mut cluster = Pretended::with(&[("team", "gw", spec(&["llama"]))]);
    cluster.settle();
    for id in cluster.picture.owned.keys() {
        let object = cluster.body(id);
        let owner = text(&object, "/metadata/ownerReferences/0/kind");
        let expected = match (id.kind, id.namespace.as_str()) {
            (Kind::ConfigMap, _) => "",
            (_, SYSTEM) => "ConfigMap",
            _ => "InferenceGatewayConfig",
        };
        assert_eq!(owner, expected, "{id}");
    }
}

#[test]
fn h01_h06_nothing_is_made_for_a_config_that_is_going_and_its_anchor_goes() {
    let mut cluster = Pretended::with(&[("team", "gw", spec(&["llama"]))]);
    cluster.settle();
    let key = ObjectKey::new("team", "gw");
    let mut config = (*cluster.objects().configs[&key]).clone();
    config.metadata.deletion_timestamp = Some("2026-01-02T00:00:00Z".into());
    cluster.objects().configs.insert(key, Arc::new(config));
    let due = cluster.due();
    assert!(matches!(&due[..], [Action::Delete { id, .. }] if id.kind == Kind::ConfigMap), "{due:?}");
    cluster.settle();
    cluster.remove_config("team", "gw");
    cluster.settle();
    assert!(cluster.picture.owned.is_empty());
}

#[test]
fn a_scheduler_that_is_taken_out_takes_its_objects_along_and_no_others() {
    let mut cluster = Pretended::with(&[("team", "gw", spec(&["llama", "qwen"]))]);
    cluster.settle();
    put(cluster.objects(), "team", "gw", spec(&["qwen"]));
    let due = cluster.due();
    let deleted = due.iter().filter(|it| matches!(it, Action::Delete { .. })).map(|it| it.id().name.as_str());
    assert_eq!(deleted.collect::<Vec<_>>(), ["llama-epp", "llama-epp-ipv4", "llama", "llama"]);
    cluster.settle();
    assert_eq!(cluster.names(Kind::InferencePool), ["team/qwen"]);
}

#[test]
fn of_two_configs_of_one_name_the_older_keeps_it() {
    let mut cluster = Pretended::with(&[("b", "gw", spec(&["llama"])), ("a", "gw", spec(&["llama"]))]);
    let configs = cluster.configs();
    let reason = |namespace| match &configs[&ObjectKey::new(namespace, "gw")].verdict {
        Verdict::Refused { reason, .. } => *reason,
        Verdict::InForce(_) => "",
    };
    assert_eq!((reason("b"), reason("a")), ("", "NameConflict"));
    cluster.settle();
    assert_eq!(cluster.names(Kind::InferencePool), ["b/llama"]);
    // The name is free again without anybody touching the other config.
    cluster.remove_config("b", "gw");
    cluster.settle();
    assert_eq!(cluster.names(Kind::InferencePool), ["a/llama"]);
}

#[test]
fn a_config_that_became_invalid_keeps_what_it_had() {
    let mut cluster = Pretended::with(&[("team", "gw", spec(&["llama"]))]);
    cluster.settle();
    let mut bad = spec(&["llama", "qwen"]);
    bad["bbr"]["enabled"] = json!(false);
    put(cluster.objects(), "team", "gw", bad);
    assert_eq!(cluster.due(), []);
    assert!(matches!(
        &cluster.configs()[&ObjectKey::new("team", "gw")].verdict,
        Verdict::Refused { reason: "Invalid", message } if message.contains("bbr must be enabled")
    ));
}

#[test]
fn an_autoscaled_data_plane_keeps_its_replicas_while_they_are_let_go() {
    let mut cluster = Pretended::with(&[("team", "gw", spec(&["llama"]))]);
    cluster.settle();
    let plane = names::data_plane(SYSTEM, "gw");
    let id = Id::new(Kind::Deployment, SYSTEM, &plane);
    assert_eq!(number(&cluster.body(&id), "/spec/replicas"), 2);
    cluster.picture.autoscaled.insert(plane);
    let due = cluster.due();
    assert!(
        matches!(&due[..], [Action::LetGo { replicas: 2, .. }, Action::Change { body, .. }] if body["spec"]["replicas"].is_null())
    );
    cluster.settle();
    cluster.picture.autoscaled.clear();
    cluster.settle();
    assert_eq!(number(&cluster.body(&id), "/spec/replicas"), 2);
}

#[test]
fn a_cluster_without_the_gateway_api_gets_the_rest() {
    let mut cluster = Pretended::with(&[("team", "gw", spec(&["llama"]))]);
    cluster.picture.absent.extend([Kind::Gateway, Kind::HttpRoute, Kind::InferencePool]);
    cluster.settle();
    assert_eq!(cluster.names(Kind::Deployment).len(), 1);
    cluster.picture.absent.clear();
    cluster.settle();
    assert_eq!(cluster.names(Kind::Gateway).len(), 1);
}

#[test]
fn picker_services_lead_to_the_pods_of_the_data_plane() {
    let mut cluster = Pretended::with(&[("team", "gw", spec(&["llama"]))]);
    let mut pod = Pod::default();
    pod.metadata.name = "p".into();
    pod.metadata.namespace = SYSTEM.into();
    pod.metadata.labels = BTreeMap::from([
        (names::GATEWAY_NAME_LABEL.to_owned(), "gw".to_owned()),
        (names::GATEWAY_NAMESPACE_LABEL.to_owned(), SYSTEM.to_owned()),
    ]);
    pod.status.pod_ip = "10.250.0.9".into();
    cluster.objects().pods.insert(pod.metadata.key(), Arc::new(pod));
    cluster.settle();
    let slice = cluster.body(&Id::new(Kind::EndpointSlice, "team", "llama-epp-ipv4"));
    assert_eq!(slice["endpoints"], json!([{"addresses": ["10.250.0.9"], "conditions": {"ready": false}}]));
    assert_eq!(label(&slice, "kubernetes.io/service-name"), "llama-epp");
}

#[test]
fn a_hand_written_gateway_gets_a_data_plane_and_loses_it_when_it_goes() {
    let mut cluster = Pretended::with(&[]);
    let class = json!({"metadata": {"name": "ours"}, "spec": {"controllerName": names::CONTROLLER_NAME}});
    let gateway = json!({
        "metadata": {"name": "web", "namespace": "team", "uid": "g1"},
        "spec": {"gatewayClassName": "ours", "listeners": [{"name": "a", "port": 8080, "protocol": "HTTP"}]},
    });
    let objects = cluster.objects();
    objects.gateway_classes.insert(ObjectKey::new("", "ours"), Arc::new(serde_json::from_value(class).unwrap()));
    let key = ObjectKey::new("team", "web");
    objects.gateways.insert(key.clone(), Arc::new(serde_json::from_value(gateway).unwrap()));
    objects.namespaces.insert(ObjectKey::new("", "team"), Arc::new(Namespace::default()));
    cluster.settle();
    let plane = names::data_plane("team", "web");
    let service = cluster.body(&Id::new(Kind::Service, SYSTEM, &plane));
    assert_eq!(service["spec"]["ports"][0]["targetPort"], 8080);
    cluster.objects().gateways.remove(&key);
    cluster.settle();
    assert!(cluster.picture.owned.is_empty());
}

#[test]
fn owners_of_anchored_objects_carry_the_uid_of_the_anchor() {
    let owner: Owner = crate::wanted::config::anchor_owner("a", "u");
    assert_eq!((owner.kind.as_str(), owner.uid.as_str()), ("ConfigMap", "u"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Killed after any number of writes, another controller ends where the first would have.
    #[test]
    fn a_controller_killed_at_any_step_converges(models in 1_usize..5, after in 0_usize..60, change in any::<bool>()) {
        let all = ["a", "b", "c", "d", "e"];
        let mut straight = Pretended::with(&[("team", "gw", spec(&all[..models]))]);
        let mut broken = straight.clone();
        let mut left = after;
        'killed: loop {
            let due = broken.due();
            if due.is_empty() { break }
            for action in due {
                if left == 0 { break 'killed }
                left -= 1;
                broken.act(&action);
            }
        }
        if change {
            for cluster in [&mut straight, &mut broken] {
                put(cluster.objects(), "team", "gw", spec(&all[1..=models]));
            }
        }
        straight.settle();
        broken.settle();
        let shape = |it: &Pretended| it.picture.owned.keys().cloned().collect::<Vec<_>>();
        prop_assert_eq!(shape(&straight), shape(&broken));
        let writes = broken.writes;
        broken.settle();
        prop_assert_eq!(broken.writes, writes);
    }
}
