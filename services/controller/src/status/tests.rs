use std::sync::Arc;

use serde_json::json;

use super::*;
use crate::{
    judge::Judge,
    plan::tests::{Pretended, settings, spec},
    seen::Seen,
};

const SYSTEM: &str = names::SYSTEM_NAMESPACE;

fn deployment(picture: &mut Picture, wanted: i64, updated: i64, available: i64, total: i64) {
    let id = Id::new(Kind::Deployment, SYSTEM, names::data_plane(SYSTEM, "gw"));
    let object = json!({
        "metadata": {"generation": 3}, "spec": {"replicas": wanted},
        "status": {
            "observedGeneration": 3, "replicas": total, "updatedReplicas": updated, "availableReplicas": available,
        },
    });
    picture.owned.insert(id, Arc::new(Seen::new(Kind::Deployment, object)));
}

fn status(cluster: &Pretended, old: Option<Value>, now: &str, trouble: &[String]) -> Value {
    let mut judged = Judge::default().judge(&cluster.picture.objects, &settings());
    let mut judged = judged.remove(&ObjectKey::new("team", "gw")).unwrap();
    Arc::make_mut(&mut judged.object).status = old;
    let settings = settings();
    of(&judged, Known { picture: &cluster.picture, settings: &settings, trouble, certificate: None, now })
}

fn condition(status: &Value, kind: &str) -> (String, String) {
    let all = conditions(status.get("conditions"));
    let found = all.into_iter().find(|it| it.kind == kind).unwrap_or_else(|| panic!("no {kind} in {status}"));
    (found.status, found.reason)
}

fn said(kind: &str, reason: &str) -> (String, String) {
    (kind.to_owned(), reason.to_owned())
}

#[test]
fn h10_a_config_without_anything_behind_it_says_so_at_once() {
    let cluster = Pretended::with(&[("team", "gw", spec(&["llama"]))]);
    let status = status(&cluster, None, "t1", &[]);
    assert_eq!(condition(&status, "Accepted"), said("True", "Accepted"));
    assert_eq!(condition(&status, "Ready"), said("False", "Pending"));
    assert_eq!(condition(&status, "AdmissionBlocked"), said("False", "NothingRefused"));
    assert_eq!(status["schedulers"][0]["rolloutState"], "Pending");
    assert_eq!(status["schedulers"][0]["currentScheduler"], "llm-d");
    assert_eq!(status["schedulers"][0]["conditions"][0]["reason"], "NoMatchingPods");
    assert_eq!(status["observedGeneration"], 1);
}

#[test]
fn rollouts_are_told_apart() {
    let mut cluster = Pretended::with(&[("team", "gw", spec(&["llama"]))]);
    for (counts, state, ready) in [
        ((2, 0, 0, 0), "Pending", "False"),
        ((2, 1, 1, 2), "Progressing", "False"),
        ((2, 2, 2, 3), "Progressing", "False"),
        ((2, 2, 2, 2), "Available", "True"),
        ((2, 2, 1, 2), "Degraded", "True"),
    ] {
        deployment(&mut cluster.picture, counts.0, counts.1, counts.2, counts.3);
        let status = status(&cluster, None, "t1", &[]);
        assert_eq!(status["schedulers"][0]["rolloutState"], state, "{counts:?}");
        assert_eq!(condition(&status, "Ready").0, ready, "{counts:?}");
    }
}

#[test]
fn h04_a_status_that_says_nothing_new_is_the_same_status() {
    let mut cluster = Pretended::with(&[("team", "gw", spec(&["llama"]))]);
    let first = status(&cluster, None, "t1", &[]);
    let again = status(&cluster, Some(first.clone()), "t2", &[]);
    assert!(!differs(Some(&first), &again));
    assert!(turns(Some(&first), &again).is_empty());
    deployment(&mut cluster.picture, 2, 2, 2, 2);
    let ready = status(&cluster, Some(first.clone()), "t3", &[]);
    assert!(differs(Some(&first), &ready));
    let times = |status: &Value| {
        conditions(status.get("conditions"))
            .into_iter()
            .map(|it| (it.kind, it.last_transition_time))
            .collect::<Vec<_>>()
    };
    // Only what turned has a new time.
    for (kind, time) in times(&ready) {
        assert_eq!(
            time,
            if ["Ready", "GatewayProgrammed", "BBRReady"].contains(&kind.as_str()) { "t3" } else { "t1" },
            "{kind}"
        );
    }
    let reasons: Vec<_> = turns(Some(&first), &ready).into_iter().map(|it| it.reason).collect();
    assert_eq!(reasons, ["GatewayProgrammed", "Ready"]);
}

#[test]
fn h05_what_is_turned_off_is_not_in_the_status_any_more() {
    let mut without = spec(&["llama"]);
    without["bbr"]["enabled"] = json!(false);
    let cluster = Pretended::with(&[("team", "gw", without)]);
    let old =
        json!({"conditions": [{"type": "BBRReady", "status": "True", "reason": "Ready"}], "tls": {"acmArn": "x"}});
    let status = status(&cluster, Some(old.clone()), "t1", &[]);
    assert!(conditions(status.get("conditions")).iter().all(|it| it.kind != "BBRReady"));
    assert!(status["tls"].is_null() && differs(Some(&old), &status));
}

#[test]
fn what_could_not_be_made_is_told() {
    let cluster = Pretended::with(&[("team", "gw", spec(&["llama"]))]);
    let status = status(&cluster, None, "t1", &["InferencePool team/llama exists".into()]);
    assert_eq!(condition(&status, "AdmissionBlocked"), said("True", "ObjectsRefused"));
    assert_eq!(condition(&status, "Ready"), said("False", "ObjectsRefused"));
}

#[test]
fn a_refused_config_says_why_and_is_not_ready() {
    let cluster = Pretended::with(&[("other", "gw", spec(&["llama"])), ("team", "gw", spec(&["llama"]))]);
    let status = status(&cluster, None, "t1", &[]);
    assert_eq!(condition(&status, "Accepted"), said("False", "NameConflict"));
    assert_eq!(condition(&status, "Ready").0, "False");
    assert_eq!(status["schedulers"], json!([]));
}
