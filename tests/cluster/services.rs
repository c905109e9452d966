//! What the stand-in for kube-proxy promises: ClusterIPs lead to ready endpoints, at once.

use std::{collections::BTreeSet, net::TcpStream};

use harness::{Cluster, request, soon};
use serde_json::Value;

const SERVED: &str = r#"
apiVersion: v1
kind: Service
metadata: {name: echo}
spec: {selector: {app: echo}, ports: [{name: http, port: 80, targetPort: 3000}]}
---
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
        image: echo-basic
        env: [{name: POD_NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]
        ports: [{name: http, containerPort: 3000}]
        readinessProbe: {httpGet: {path: /health, port: http}, periodSeconds: 1}
"#;

#[test]
fn a_cluster_ip_reaches_every_ready_pod_and_refuses_when_there_is_none() {
    let space = Cluster::shared().namespace("service");
    space.apply(SERVED);
    space.wait_for("deploy/echo", "Available");
    let service = space.service("echo", 80);
    soon("the Service answers", || TcpStream::connect(service).is_ok());
    let mut seen = BTreeSet::new();
    soon("both pods have answered", || {
        let told: Value = serde_json::from_slice(&request(service, "GET", "/", &[], "").body).unwrap();
        seen.insert(told["pod"].as_str().unwrap().to_owned());
        seen.len() == 2
    });
    space.kubectl(&["scale", "deploy/echo", "--replicas=0"]);
    soon("without an endpoint it refuses", || TcpStream::connect(service).is_err());
}

#[test]
fn the_api_server_is_reached_by_its_service() {
    let cluster = Cluster::shared();
    let token = cluster.kubectl(&["create", "token", "default", "--namespace", "default"]);
    let words = [
        "--server=https://10.96.0.1",
        "--token",
        token.trim(),
        "auth",
        "whoami",
        "-o",
        "jsonpath={.status.userInfo.username}",
    ];
    assert_eq!(cluster.kubectl(&words), "system:serviceaccount:default:default");
}
