//! The status of a pod, from what its containers do. Pure: times of transitions are kept by the caller.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod};
use serde_json::{Value, json};

use super::board::{Ended, State, View};
use crate::place::NODE_ADDRESS;

/// When each condition last changed.
pub(crate) type Transitions = BTreeMap<&'static str, (bool, Timestamp)>;

/// The status to report. `ip` is the pod's address.
pub(crate) fn of(
    pod: &Pod,
    views: &BTreeMap<String, View>,
    ip: &str,
    transitions: &mut Transitions,
    now: Timestamp,
) -> Value {
    let Some(spec) = &pod.spec else { return json!({}) };
    let init: Vec<_> = spec.init_containers.iter().flatten().collect();
    let main: Vec<_> = spec.containers.iter().collect();
    let view = |container: &Container| views.get(&container.name).cloned().unwrap_or_default();
    let initialized = init.iter().all(|container| {
        let view = view(container);
        if container.restart_policy.is_some() { view.started } else { view.done && succeeded(&view) }
    });
    let containers_ready = initialized && main.iter().all(|container| view(container).ready);
    let mut conditions = vec![
        condition("PodScheduled", true, transitions, now),
        condition("PodReadyToStartContainers", true, transitions, now),
        condition("Initialized", initialized, transitions, now),
        condition("ContainersReady", containers_ready, transitions, now),
    ];
    let ready = containers_ready && gates_open(pod);
    conditions.push(condition("Ready", ready, transitions, now));
    let list = |containers: &[&Container]| -> Vec<Value> {
        containers.iter().map(|container| container_status(container, &view(container))).collect()
    };
    let views: Vec<View> = main.iter().map(|container| view(container)).collect();
    let stopped = init.iter().any(|container| {
        let view = view(container);
        view.done && !succeeded(&view)
    });
    json!({
        "phase": phase(initialized, stopped, &views),
        "conditions": conditions,
        "hostIP": NODE_ADDRESS.to_string(),
        "hostIPs": [{"ip": NODE_ADDRESS.to_string()}],
        "podIP": ip,
        "podIPs": [{"ip": ip}],
        "startTime": pod.metadata.creation_timestamp,
        "initContainerStatuses": list(&init),
        "containerStatuses": list(&main),
    })
}

fn phase(initialized: bool, init_failed: bool, main: &[View]) -> &'static str {
    let done = !main.is_empty() && main.iter().all(|view| view.done);
    if init_failed {
        return "Failed";
    }
    if done {
        return if main.iter().all(succeeded) { "Succeeded" } else { "Failed" };
    }
    let begun = main.iter().all(|view| !matches!(view.state, State::Waiting { .. }) || view.last.is_some());
    if initialized && begun { "Running" } else { "Pending" }
}

fn succeeded(view: &View) -> bool {
    matches!(&view.state, State::Ended(Ended { code: 0, .. }))
}

/// Conditions that others promise to set.
fn gates_open(pod: &Pod) -> bool {
    let gates = pod.spec.iter().flat_map(|spec| spec.readiness_gates.iter().flatten());
    let conditions: Vec<_> = pod.status.iter().flat_map(|status| status.conditions.iter().flatten()).collect();
    gates.into_iter().all(|gate| {
        conditions.iter().any(|condition| condition.type_ == gate.condition_type && condition.status == "True")
    })
}

fn condition(kind: &'static str, holds: bool, transitions: &mut Transitions, now: Timestamp) -> Value {
    let entry = transitions.entry(kind).or_insert((holds, now));
    if entry.0 != holds {
        *entry = (holds, now);
    }
    let status = if holds { "True" } else { "False" };
    // The reason is always sent: the patch would leave one that no longer holds.
    let reason = (!holds && kind.ends_with("Ready")).then_some("ContainersNotReady");
    json!({"type": kind, "status": status, "lastTransitionTime": entry.1, "reason": reason})
}

fn container_status(container: &Container, view: &View) -> Value {
    let image = container.image.clone().unwrap_or_default();
    let id = match &view.state {
        State::Running { pid, .. } => format!("process://{pid}"),
        State::Waiting { .. } | State::Ended(_) => String::new(),
    };
    let last = view.last.as_ref().map_or(json!({}), |ended| json!({"terminated": terminated(ended)}));
    json!({
        "name": container.name,
        "image": image,
        "imageID": format!("rig://{image}"),
        "containerID": id,
        "ready": view.ready,
        "started": view.started,
        "restartCount": view.restarts,
        "state": state(&view.state),
        "lastState": last,
    })
}

fn state(state: &State) -> Value {
    match state {
        State::Waiting { reason, message } => json!({"waiting": {"reason": reason, "message": message}}),
        State::Running { since, .. } => json!({"running": {"startedAt": since}}),
        State::Ended(ended) => json!({"terminated": terminated(ended)}),
    }
}

fn terminated(ended: &Ended) -> Value {
    let reason = if ended.code == 0 { "Completed" } else { "Error" };
    json!({"exitCode": ended.code, "reason": reason, "startedAt": ended.started, "finishedAt": ended.finished})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod() -> Pod {
        serde_json::from_value(json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
            "spec": {"containers": [{"name": "a"}], "initContainers": [{"name": "i"}]}}))
        .unwrap()
    }

    fn reported(init: View, main: View) -> Value {
        let views = BTreeMap::from([("i".to_owned(), init), ("a".to_owned(), main)]);
        of(&pod(), &views, "10.250.1.1", &mut Transitions::new(), Timestamp::UNIX_EPOCH)
    }

    fn ended(code: i32) -> View {
        let ended = Ended { code, started: Timestamp::UNIX_EPOCH, finished: Timestamp::UNIX_EPOCH };
        View { state: State::Ended(ended), done: true, ..View::default() }
    }

    fn running(ready: bool) -> View {
        View { state: State::Running { since: Timestamp::UNIX_EPOCH, pid: 1 }, ready, started: true, ..View::default() }
    }

    fn ready(status: &Value) -> &str {
        let conditions = status["conditions"].as_array().unwrap();
        conditions.iter().find(|condition| condition["type"] == "Ready").unwrap()["status"].as_str().unwrap()
    }

    #[test]
    fn phases_follow_the_containers() {
        for (init, main, phase, is_ready) in [
            (View::default(), View::default(), "Pending", "False"),
            (ended(1), View::default(), "Failed", "False"),
            (ended(0), View::default(), "Pending", "False"),
            (ended(0), running(false), "Running", "False"),
            (ended(0), running(true), "Running", "True"),
            (ended(0), ended(0), "Succeeded", "False"),
            (ended(0), ended(137), "Failed", "False"),
        ] {
            let status = reported(init, main);
            assert_eq!((status["phase"].as_str().unwrap(), ready(&status)), (phase, is_ready), "{status}");
        }
    }

    #[test]
    fn times_of_transitions_are_kept_until_something_changes() {
        let mut transitions = Transitions::new();
        let later = Timestamp::from_second(9).unwrap();
        condition("Ready", false, &mut transitions, Timestamp::UNIX_EPOCH);
        assert_eq!(condition("Ready", false, &mut transitions, later)["lastTransitionTime"], "1970-01-01T00:00:00Z");
        assert_eq!(condition("Ready", true, &mut transitions, later)["lastTransitionTime"], "1970-01-01T00:00:09Z");
    }
}
