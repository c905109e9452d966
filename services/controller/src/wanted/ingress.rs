//! The load balancer of AWS in front of a config's gateway.

use api::names;
use serde_json::{Value, json};

use super::{Marks, Owner, object};
use crate::kind::{Id, Kind};

/// Longest silence of a stream that the load balancer bears: its own largest value.
const IDLE_MAX_S: u32 = 4000;

/// How clients reach the load balancer, and how it reaches the gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Front<'a> {
    /// Plain HTTP all the way.
    Plain,
    /// TLS ends at the load balancer, with this certificate of ACM.
    Ends { arn: &'a str },
    /// TLS ends at the load balancer with this certificate, and the gateway has one of its own.
    Both { arn: &'a str },
}

/// `alb-<config>`.
#[must_use]
pub fn ingress(namespace: &str, config: &str, service: &str, front: &Front<'_>, marks: &Marks, owner: &Owner) -> Value {
    let id = Id::new(Kind::Ingress, namespace, names::fitted(&format!("alb-{config}")));
    let (listen, backend, port, arn) = match front {
        Front::Plain => (r#"[{"HTTP":80}]"#, "HTTP", 80, None),
        Front::Ends { arn } => (r#"[{"HTTPS":443}]"#, "HTTP", 80, Some(*arn)),
        Front::Both { arn } => (r#"[{"HTTPS":443}]"#, "HTTPS", 443, Some(*arn)),
    };
    let mut ingress = object(&id, marks, Some(owner));
    ingress["metadata"]["annotations"] = json!({
        "alb.ingress.kubernetes.io/scheme": "internal",
        "alb.ingress.kubernetes.io/target-type": "ip",
        "alb.ingress.kubernetes.io/listen-ports": listen,
        "alb.ingress.kubernetes.io/backend-protocol": backend,
        "alb.ingress.kubernetes.io/healthcheck-path": "/readyz",
        "alb.ingress.kubernetes.io/healthcheck-protocol": backend,
        "alb.ingress.kubernetes.io/load-balancer-attributes": format!("idle_timeout.timeout_seconds={IDLE_MAX_S}"),
        "alb.ingress.kubernetes.io/tags": "CreatedBy=HyperPodInference",
    });
    if let Some(arn) = arn {
        ingress["metadata"]["annotations"]["alb.ingress.kubernetes.io/certificate-arn"] = json!(arn);
    }
    ingress["spec"] = json!({
        "ingressClassName": "alb",
        "rules": [{"http": {"paths": [{
            "path": "/", "pathType": "Prefix",
            "backend": {"service": {"name": service, "port": {"number": port}}},
        }]}}],
    });
    ingress
}
