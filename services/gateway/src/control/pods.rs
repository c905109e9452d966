//! Which pods may serve, and where.

use std::{collections::HashMap, net::IpAddr, sync::Arc};

use api::{
    EndpointSpec,
    cluster::{ObjectKey, Objects, Pod},
};

use super::staff::Candidate;

/// The pods of a namespace that new requests may go to.
pub(super) fn serving(objects: &Objects, namespace: &str) -> Vec<Candidate> {
    let holders = holders(objects);
    let inside = objects.pods.iter().filter(|(key, _)| key.namespace == namespace);
    inside
        .filter(|(key, pod)| pod.serves() && holds_its_address(key, pod, &holders))
        .map(|(_, pod)| candidate(pod))
        .collect()
}

/// Whose each address is now. The network gives the address of a pod that ended to a new one, at times before the API
/// server says that the former is gone: then it is the newer pod's. Pods on their node's network share its address.
fn holders(objects: &Objects) -> HashMap<IpAddr, (&ObjectKey, &Arc<Pod>)> {
    let mut holders: HashMap<IpAddr, (&ObjectKey, &Arc<Pod>)> = HashMap::new();
    let live = objects.pods.iter().filter(|(_, pod)| !pod.has_ended() && !is_on_node(pod));
    for (key, pod) in live {
        let Some(ip) = pod.ip() else { continue };
        let holder = holders.entry(ip).or_insert((key, pod));
        if age(pod) > age(holder.1) {
            *holder = (key, pod);
        }
    }
    holders
}

/// Later times are greater, as texts too.
fn age(pod: &Pod) -> (&Option<String>, &str) {
    (&pod.metadata.creation_timestamp, &pod.metadata.uid)
}

fn holds_its_address(key: &ObjectKey, pod: &Pod, holders: &HashMap<IpAddr, (&ObjectKey, &Arc<Pod>)>) -> bool {
    is_on_node(pod) || pod.ip().and_then(|ip| holders.get(&ip)).is_some_and(|(holder, _)| *holder == key)
}

fn is_on_node(pod: &Pod) -> bool {
    !pod.status.host_ip.is_empty() && pod.status.host_ip == pod.status.pod_ip
}

fn candidate(pod: &Pod) -> Candidate {
    let spec = EndpointSpec {
        name: pod.metadata.name.clone(),
        labels: pod.metadata.labels.clone(),
        address: pod.status.pod_ip.clone(),
        port: None,
        metrics_path: None,
        metrics_port: None,
        tls: None,
        api_key: None,
    };
    Candidate { spec, life: pod.metadata.uid.clone() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A ready pod, changed by `change`.
    fn pod(name: &str, ip: &str, created_s: u32, change: impl FnOnce(&mut Pod)) -> Pod {
        let mut pod: Pod = serde_json::from_value(json!({
            "metadata": {
                "name": name, "namespace": "ns", "uid": format!("uid-{name}"),
                "creationTimestamp": format!("2026-11-30T10:00:{created_s:02}Z"),
            },
            "status": {
                "phase": "Running", "podIP": ip, "hostIP": "10.1.0.1",
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        }))
        .unwrap();
        change(&mut pod);
        pod
    }

    fn names(pods: impl IntoIterator<Item = Pod>) -> Vec<String> {
        let mut objects = Objects::default();
        objects.pods.extend(pods.into_iter().map(|pod| (pod.metadata.key(), Arc::new(pod))));
        serving(&objects, "ns").into_iter().map(|candidate| candidate.spec.name).collect()
    }

    fn as_it_is(_: &mut Pod) {}

    #[test]
    fn g01_a_pod_that_is_to_go_gets_nothing_new_though_it_is_ready() {
        let going = |pod: &mut Pod| pod.metadata.deletion_timestamp = Some("2026-11-30T10:00:30Z".into());
        assert_eq!(names([pod("a", "10.0.0.1", 0, going), pod("b", "10.0.0.2", 0, as_it_is)]), ["b"]);
    }

    #[test]
    fn pods_that_are_not_ready_or_have_ended_or_lost_their_address_get_nothing() {
        let unready = |pod: &mut Pod| pod.status.conditions[0].status = "False".into();
        let evicted = |pod: &mut Pod| pod.status.phase = "Failed".into();
        let lost = |pod: &mut Pod| pod.status.pod_ip.clear();
        let elsewhere = |pod: &mut Pod| pod.metadata.namespace = "other".into();
        let pods = [
            pod("a", "10.0.0.1", 0, unready),
            pod("b", "10.0.0.2", 0, evicted),
            pod("c", "10.0.0.3", 0, lost),
            pod("d", "10.0.0.4", 0, elsewhere),
            pod("e", "fd00::5", 0, as_it_is),
        ];
        assert_eq!(names(pods), ["e"]);
    }

    #[test]
    fn g12_an_address_that_was_given_again_is_the_newer_pods() {
        let old = || pod("old", "10.0.0.1", 0, as_it_is);
        let new = |change: fn(&mut Pod)| pod("new", "10.0.0.1", 1, change);
        assert_eq!(names([old(), new(as_it_is)]), ["new"]);
        let unready: fn(&mut Pod) = |pod| pod.status.conditions[0].status = "False".into();
        assert!(names([old(), new(unready)]).is_empty(), "the former owner is not behind it any more");
        let ended: fn(&mut Pod) = |pod| pod.status.phase = "Succeeded".into();
        assert_eq!(names([old(), new(ended)]), ["old"], "what has ended holds no address");
        let elsewhere: fn(&mut Pod) = |pod| pod.metadata.namespace = "other".into();
        assert!(names([old(), new(elsewhere)]).is_empty());
    }

    #[test]
    fn pods_on_the_network_of_one_node_share_its_address() {
        let host = |pod: &mut Pod| pod.status.host_ip = pod.status.pod_ip.clone();
        assert_eq!(names([pod("a", "10.1.0.1", 0, host), pod("b", "10.1.0.1", 1, host)]), ["a", "b"]);
    }
}
