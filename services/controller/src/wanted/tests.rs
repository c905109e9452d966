//! Sample configs and the objects that they make, word for word: what changes in them changes in somebody's cluster.
//!
//! `UPDATE_GOLDEN=1 cargo test -p controller` writes the files anew.

use std::{net::IpAddr, path::PathBuf};

use api::{cluster::ObjectKey, document::InferenceGatewayConfigSpec};
use serde_json::json;

use super::{config::Asked, *};
use crate::plan::tests::settings;

fn spec(value: Value) -> InferenceGatewayConfigSpec {
    serde_json::from_value(value).unwrap()
}

fn made(spec: &InferenceGatewayConfigSpec, imported: Option<&str>, autoscaled: bool) -> Vec<Value> {
    let (settings, key) = (settings(), ObjectKey::new("team", "gw"));
    let pods: [(IpAddr, bool); 2] = [("10.0.0.1".parse().unwrap(), true), ("10.0.0.2".parse().unwrap(), false)];
    let asked = Asked { settings: &settings, key: &key, uid: "config-uid", spec, pods: &pods, autoscaled, imported };
    let mut made = vec![Plane::anchor(&settings, &asked.gateway(), &asked.marks())];
    made.extend(asked.objects("anchor-uid"));
    made
}

fn find(made: &[Value], kind: Kind) -> Vec<&Value> {
    made.iter().filter(|object| id_of(object).kind == kind).collect()
}

fn golden(name: &str, made: &[Value]) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src/wanted/golden").join(name);
    let text: String = made.iter().map(|object| format!("---\n{}", yaml_serde::to_string(object).unwrap())).collect();
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, &text).unwrap();
    }
    let known = std::fs::read_to_string(&path).unwrap_or_default();
    // The order of members depends on what else is built with this test.
    let known: Vec<Value> = known.split("---\n").skip(1).map(|object| yaml_serde::from_str(object).unwrap()).collect();
    assert!(known == made, "{} differs from what is made now:\n{text}", path.display());
}

#[test]
fn one_model_in_plain_http() {
    let plain = spec(json!({
        "bbr": {"enabled": false},
        "schedulers": [{"name": "llama", "modelName": "meta/llama", "modelSelector": {"matchLabels": {"app": "llama"}}}],
    }));
    golden("plain.yaml", &made(&plain, None, false));
}

#[test]
fn everything_that_shapes_pods() {
    let shaped = spec(json!({
        "bbr": {"enabled": true, "replicas": 2},
        "tls": {"secretRef": {"name": "own-certificate"}},
        "auth": {"apiKeys": {"secretRef": {"name": "keys"}}},
        "podDefaults": {
            "resources": {"requests": {"cpu": "2"}}, "nodeSelector": {"pool": "cpu"},
            "tolerations": [{"key": "a", "operator": "Exists"}], "labels": {"cost": "x"},
            "annotations": {"note": "y"}, "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}],
            "envFrom": [{"secretRef": {"name": "s"}}],
        },
        "schedulers": [
            {
                "name": "llama", "modelName": "llama", "modelSelector": {"matchLabels": {"app": "llama"}},
                "replicas": 3, "routeTimeout": "30s", "env": [{"name": "B", "value": "3"}],
                "envFrom": [{"secretRef": {"name": "s"}}, {"configMapRef": {"name": "c"}}],
            },
            {
                "name": "qwen", "modelName": "qwen", "targetPort": 9000, "appProtocol": "kubernetes.io/h2c",
                "modelSelector": {"matchExpressions": [{"key": "app", "operator": "In", "values": ["qwen"]}]},
            },
        ],
    }));
    golden("shaped.yaml", &made(&shaped, None, false));
}

#[test]
fn replicas_are_the_most_that_anything_asks_for_and_none_under_an_autoscaler() {
    let wish = spec(json!({
        "bbr": {"enabled": true, "replicas": 4},
        "schedulers": [{"name": "a", "modelName": "a", "modelSelector": {"matchLabels": {"a": "b"}}, "replicas": 7}],
    }));
    assert_eq!(find(&made(&wish, None, false), Kind::Deployment)[0]["spec"]["replicas"], 7);
    assert!(find(&made(&wish, None, true), Kind::Deployment)[0]["spec"].get("replicas").is_none());
}

#[test]
fn tls_decides_where_the_load_balancer_ends_it() {
    let with = |tls: Value| {
        spec(json!({
            "bbr": {"enabled": false}, "tls": tls,
            "schedulers": [{"name": "a", "modelName": "a", "modelSelector": {"matchLabels": {"a": "b"}}}],
        }))
    };
    let note = |made: &[Value], key: &str| {
        let key = format!("alb.ingress.kubernetes.io/{key}");
        find(made, Kind::Ingress).first().map(|it| it["metadata"]["annotations"][&key].clone())
    };
    let at_load_balancer = made(&with(json!({"acmArn": "arn:aws:acm:x"})), None, false);
    assert_eq!(note(&at_load_balancer, "certificate-arn"), Some(json!("arn:aws:acm:x")));
    assert_eq!(note(&at_load_balancer, "backend-protocol"), Some(json!("HTTP")));
    assert_eq!(find(&at_load_balancer, Kind::Gateway)[0]["spec"]["listeners"][0]["port"], 80);
    assert!(find(&at_load_balancer, Kind::Certificate).is_empty());

    // Nothing listens in the clear while the certificate is on its way.
    let waiting = made(&with(json!({})), None, false);
    assert!(find(&waiting, Kind::Ingress).is_empty());
    let listener = &find(&waiting, Kind::Gateway)[0]["spec"]["listeners"][0];
    assert_eq!((&listener["port"], &listener["protocol"]), (&json!(443), &json!("HTTPS")));
    let secret = &find(&waiting, Kind::Certificate)[0]["spec"]["secretName"];
    assert_eq!(&listener["tls"]["certificateRefs"][0]["name"], secret);
    let imported = made(&with(json!({})), Some("arn:imported"), false);
    assert_eq!(note(&imported, "certificate-arn"), Some(json!("arn:imported")));
    assert_eq!(note(&imported, "backend-protocol"), Some(json!("HTTPS")));

    let own = made(&with(json!({"secretRef": {"name": "s"}})), None, false);
    assert!(find(&own, Kind::Ingress).is_empty());
    assert_eq!(find(&own, Kind::ReferenceGrant)[0]["spec"]["to"][0]["name"], "s");
}

#[test]
fn secrets_are_granted_by_name_only() {
    let wish = spec(json!({
        "bbr": {"enabled": false}, "tls": {"secretRef": {"name": "s"}},
        "schedulers": [{"name": "a", "modelName": "a", "modelSelector": {"matchLabels": {"a": "b"}}}],
    }));
    for role in find(&made(&wish, None, false), Kind::Role) {
        for rule in role["rules"].as_array().unwrap() {
            let of_secrets = rule["resources"] == json!(["secrets"]);
            assert_eq!(of_secrets, rule["resourceNames"] == json!(["s"]), "{rule}");
        }
    }
}

#[test]
fn pods_outlive_their_drain_and_run_as_nobody() {
    let wish = spec(json!({
        "bbr": {"enabled": false},
        "schedulers": [{"name": "a", "modelName": "a", "modelSelector": {"matchLabels": {"a": "b"}}}],
    }));
    let made = made(&wish, None, false);
    let pod = &find(&made, Kind::Deployment)[0]["spec"]["template"]["spec"];
    assert_eq!(pod["terminationGracePeriodSeconds"], 330);
    assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
    assert_eq!(pod["containers"][0]["securityContext"]["readOnlyRootFilesystem"], true);
    assert_eq!(pod["containers"][0]["args"][1], "--gateway=hyperpod-inference-system/gw");
}
