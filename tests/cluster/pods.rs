//! What the simulated kubelet promises: pods run, are probed, restarted and ended as on a real node.

use std::time::{Duration, Instant};

use harness::{Cluster, request};
use serde_json::Value;

/// An echo server that is ready when it answers.
const ECHO: &str = r#"
apiVersion: apps/v1
kind: Deployment
metadata: {name: echo}
spec:
  replicas: 2
  selector: {matchLabels: {app: echo}}
  template:
    metadata: {labels: {app: echo}}
    spec:
      containers:
      - name: echo
        image: gcr.io/k8s-staging-gateway-api/echo-basic:v1
        env:
        - {name: POD_NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
        - {name: NAMESPACE, valueFrom: {fieldRef: {fieldPath: metadata.namespace}}}
        ports: [{name: http, containerPort: 3000}]
        readinessProbe: {httpGet: {path: /health, port: http}, periodSeconds: 1}
"#;

fn pod(name: &str, command: &str, more: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec:\n  containers:\n  - name: main\n    image: busybox\n    \
         command: [sh, -c, {}]\n{more}",
        Value::from(command)
    )
}

fn first(pod: &Value) -> &Value {
    &pod["status"]["containerStatuses"][0]
}

#[test]
fn a_deployment_runs_with_an_address_for_each_pod_and_its_own_fields() {
    let space = Cluster::shared().namespace("echo");
    space.apply(ECHO);
    space.wait_for("deploy/echo", "Available");
    let pods = space.list("pods", "app=echo");
    assert_eq!(pods.len(), 2);
    for pod in &pods {
        let name = pod["metadata"]["name"].as_str().unwrap();
        let answer = request(space.pod(name, 3000), "GET", "/x?y=1", &[("x-a", "b")], "");
        let told: Value = serde_json::from_slice(&answer.body).unwrap();
        assert_eq!((told["pod"].as_str(), told["path"].as_str()), (Some(name), Some("/x?y=1")), "{told}");
        assert_eq!(told["namespace"], space.name.as_str());
        assert_eq!(told["headers"]["X-A"][0], "b");
    }
    assert_ne!(pods[0]["status"]["podIP"], pods[1]["status"]["podIP"]);
}

#[test]
fn replicas_go_to_none_and_come_back() {
    let space = Cluster::shared().namespace("scale");
    space.apply(ECHO);
    space.wait_for("deploy/echo", "Available");
    space.kubectl(&["scale", "deploy/echo", "--replicas=0"]);
    Cluster::shared().eventually("no pod is left", || space.list("pods", "").is_empty().then_some(()));
    space.kubectl(&["scale", "deploy/echo", "--replicas=1"]);
    space.until("deploy/echo", |deployment| deployment["status"]["readyReplicas"] == 1);
}

#[test]
fn readiness_follows_the_probe() {
    let space = Cluster::shared().namespace("ready");
    let probe = "    readinessProbe: {exec: {command: [test, -e, ready]}, periodSeconds: 1, failureThreshold: 1}\n";
    space.apply(&pod("p", "while :; do sleep 0.1; done", probe));
    let is = |status: &'static str| {
        space.until("pod/p", |pod| {
            let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
            conditions.iter().any(|condition| condition["type"] == "Ready" && condition["status"] == status)
        })
    };
    let seen = is("False");
    let folder = format!("pods/{}_p_{}", space.name, seen["metadata"]["uid"].as_str().unwrap());
    let file = Cluster::shared().folder().join(folder).join("ready");
    space.until("pod/p", |pod| pod["status"]["phase"] == "Running");
    std::fs::write(&file, "").unwrap();
    is("True");
    std::fs::remove_file(&file).unwrap();
    is("False");
}

#[test]
fn a_container_that_ends_is_restarted_with_a_growing_pause() {
    let space = Cluster::shared().namespace("crash");
    space.apply(&pod("p", "exit 3", ""));
    let seen = space.until("pod/p", |pod| first(pod)["restartCount"].as_i64() >= Some(2));
    assert_eq!(first(&seen)["lastState"]["terminated"]["exitCode"], 3, "{seen}");
    let waiting = space.until("pod/p", |pod| first(pod)["state"]["waiting"]["reason"] == "CrashLoopBackOff");
    assert_eq!(first(&waiting)["ready"], false);
}

#[test]
fn a_killed_process_is_seen_and_replaced() {
    let space = Cluster::shared().namespace("kill");
    space.apply(&pod("p", "while :; do sleep 0.1; done", ""));
    space.until("pod/p", |pod| first(pod)["ready"] == true);
    space.signal("p", "KILL");
    let seen = space.until("pod/p", |pod| first(pod)["restartCount"] == 1 && first(pod)["ready"] == true);
    assert_eq!(first(&seen)["lastState"]["terminated"]["exitCode"], 137, "{seen}");
}

#[test]
fn pods_that_are_not_restarted_succeed_or_fail() {
    let space = Cluster::shared().namespace("once");
    space.apply(&pod("good", "true", "  restartPolicy: Never\n"));
    space.apply(&pod("bad", "exit 1", "  restartPolicy: Never\n"));
    space.until("pod/good", |pod| pod["status"]["phase"] == "Succeeded");
    space.until("pod/bad", |pod| pod["status"]["phase"] == "Failed");
}

#[test]
fn a_deleted_pod_gets_its_grace_and_then_is_killed() {
    let space = Cluster::shared().namespace("grace");
    let stubborn = "  terminationGracePeriodSeconds: 2\n";
    space.apply(&pod(
        "polite",
        "trap 'exit 0' TERM; while :; do sleep 0.1; done",
        "  terminationGracePeriodSeconds: 60\n",
    ));
    space.apply(&pod("stubborn", "trap '' TERM; while :; do sleep 0.1; done", stubborn));
    for name in ["pod/polite", "pod/stubborn"] {
        space.until(name, |pod| first(pod)["ready"] == true);
    }
    let started = Instant::now();
    space.kubectl(&["delete", "pod", "polite", "--timeout=50s"]);
    assert!(started.elapsed() < Duration::from_secs(30), "it ended when it was asked to");
    let started = Instant::now();
    space.kubectl(&["delete", "pod", "stubborn", "--timeout=50s"]);
    assert!(started.elapsed() >= Duration::from_secs(2), "it had its grace");
    assert!(space.try_get("pod/stubborn").is_none());
}

#[test]
fn variables_come_from_values_fields_and_objects() {
    let space = Cluster::shared().namespace("env");
    space.kubectl(&["create", "configmap", "c", "--from-literal=k=from-map"]);
    space.kubectl(&["create", "secret", "generic", "s", "--from-literal=k=from-secret"]);
    space.apply(&pod(
        "p",
        "echo $A $B $C $D; echo $0; cat /etc/c/k; echo; sleep 1000",
        "    args: [$(A)-arg]\n    env:\n    - {name: A, value: a}\n    - {name: B, value: $(A)b}\n    \
         - {name: C, valueFrom: {configMapKeyRef: {name: c, key: k}}}\n    \
         - {name: D, valueFrom: {secretKeyRef: {name: s, key: k}}}\n    \
         volumeMounts: [{name: c, mountPath: /etc/c}]\n  volumes: [{name: c, configMap: {name: c}}]\n",
    ));
    space.until("pod/p", |pod| first(pod)["ready"] == true);
    let log = Cluster::shared()
        .eventually("the log is whole", || Some(space.kubectl(&["logs", "p"])).filter(|log| log.lines().count() >= 3));
    assert_eq!(log.lines().collect::<Vec<_>>(), ["a ab from-map from-secret", "a-arg", "from-map"]);
}

#[test]
fn a_missing_secret_holds_a_pod_back_until_it_is_there() {
    let space = Cluster::shared().namespace("late");
    let env = "    env: [{name: A, valueFrom: {secretKeyRef: {name: late, key: k}}}]\n";
    space.apply(&pod("p", "sleep 1000", env));
    let held = space.until("pod/p", |pod| first(pod)["state"]["waiting"]["reason"] == "CreateContainerConfigError");
    assert_eq!(first(&held)["state"]["waiting"]["message"], "secret \"late\" not found");
    space.kubectl(&["create", "secret", "generic", "late", "--from-literal=k=v"]);
    space.until("pod/p", |pod| first(pod)["ready"] == true);
}

#[test]
fn a_pod_speaks_to_the_api_server_as_its_service_account() {
    let space = Cluster::shared().namespace("rbac");
    space.kubectl(&["create", "serviceaccount", "reader"]);
    space.kubectl(&["create", "role", "pods", "--verb=list", "--resource=pods"]);
    space.kubectl(&[
        "create",
        "rolebinding",
        "reader",
        "--role=pods",
        &format!("--serviceaccount={}:reader", space.name),
    ]);
    let script = "kubectl get pods -o name; kubectl get secrets; echo done; sleep 1000";
    space.apply(&pod("p", script, "  serviceAccountName: reader\n"));
    let log = Cluster::shared().eventually("both were asked", || {
        Some(space.try_get("pod/p").map(|_| space.kubectl(&["logs", "p"]))?).filter(|log| log.contains("done"))
    });
    assert!(log.contains("pod/p"), "{log}");
    assert!(log.contains("cannot list resource \"secrets\""), "{log}");
}
