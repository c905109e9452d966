//! What the installed roles allow: all that the programs need, which every other test shows, and nothing beside it.

use std::collections::BTreeSet;

use harness::Cluster;
use serde_json::{Value, json};

use crate::product::{SYSTEM, config, first_chat, model, undisturbed};

/// Whoever nobody has given anything may do this much.
const NOBODY: &str = "system:serviceaccount:default:nobody";
const READ: &[&str] = &["get", "list", "watch"];
const ALL: &[&str] = &["create", "delete", "get", "list", "patch", "update", "watch"];
const STATUS: &[&str] = &["get", "patch", "update"];

/// What an account may do in a namespace: one line for each verb and resource, with names where it is for those alone.
fn rules(account: &str, namespace: &str) -> BTreeSet<String> {
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview", "spec": {"namespace": namespace},
    });
    // As an account of the system namespace is seen: with the groups that it has.
    let owner = account.split(':').nth(2).unwrap();
    let groups =
        ["system:serviceaccounts".to_owned(), format!("system:serviceaccounts:{owner}"), "system:authenticated".into()];
    let groups: Vec<String> = groups.iter().map(|group| format!("--as-group={group}")).collect();
    let (who, path) = (format!("--as={account}"), "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews");
    let mut words = vec!["create", "--raw", path, "-f", "-", &who];
    words.extend(groups.iter().map(String::as_str));
    let text = Cluster::shared().try_kubectl(&words, &review.to_string()).unwrap();
    let review: Value = serde_json::from_str(&text).unwrap();
    let list = |rule: &Value, member: &str| -> Vec<String> {
        rule[member].as_array().into_iter().flatten().map(|it| it.as_str().unwrap().to_owned()).collect()
    };
    let mut lines = BTreeSet::new();
    for rule in review["status"]["resourceRules"].as_array().unwrap() {
        let names = list(rule, "resourceNames");
        let names = if names.is_empty() { String::new() } else { format!(" {names:?}") };
        for verb in list(rule, "verbs") {
            for group in list(rule, "apiGroups") {
                for resource in list(rule, "resources") {
                    let dot = if group.is_empty() { "" } else { "." };
                    lines.insert(format!("{verb} {resource}{dot}{group}{names}"));
                }
            }
        }
    }
    lines
}

/// What an account may do in a namespace that not everybody may.
fn more_than_nobody(account: &str, namespace: &str) -> BTreeSet<String> {
    &rules(account, namespace) - &rules(NOBODY, namespace)
}

fn lines(grants: &[(&str, &[&str])]) -> BTreeSet<String> {
    let each = |(resources, verbs): &(&str, &[&str])| -> Vec<String> {
        let all = resources.split_whitespace();
        all.flat_map(|resource| verbs.iter().map(move |verb| format!("{verb} {resource}"))).collect()
    };
    grants.iter().flat_map(each).collect()
}

/// What every data plane reads in every namespace.
const OF_DATA_PLANES: &[(&str, &[&str])] = &[
    ("namespaces pods services endpointslices.discovery.k8s.io", READ),
    (
        "gatewayclasses.gateway.networking.k8s.io gateways.gateway.networking.k8s.io httproutes.gateway.networking.k8s.io \
         referencegrants.gateway.networking.k8s.io",
        READ,
    ),
    ("inferencepools.inference.networking.k8s.io", READ),
    ("inferenceobjectives.llm-d.ai inferencemodelrewrites.llm-d.ai", READ),
    ("inferenceobjectives.inference.networking.x-k8s.io inferencemodelrewrites.inference.networking.x-k8s.io", READ),
    ("inferencegatewayconfigs.inference.sagemaker.aws.amazon.com", READ),
];

/// What the controller may do in every namespace: the kinds of the contract's table that lie beside a config, and what it
/// judges by.
const OF_THE_CONTROLLER: &[(&str, &[&str])] = &[
    ("namespaces pods configmaps secrets gatewayclasses.gateway.networking.k8s.io", READ),
    ("roles.rbac.authorization.k8s.io rolebindings.rbac.authorization.k8s.io", ALL),
    ("services endpointslices.discovery.k8s.io", ALL),
    (
        "gateways.gateway.networking.k8s.io httproutes.gateway.networking.k8s.io referencegrants.gateway.networking.k8s.io",
        ALL,
    ),
    (
        "gatewayclasses/status.gateway.networking.k8s.io gateways/status.gateway.networking.k8s.io \
         httproutes/status.gateway.networking.k8s.io inferencepools/status.inference.networking.k8s.io",
        STATUS,
    ),
    ("inferencepools.inference.networking.k8s.io", ALL),
    ("inferenceobjectives.llm-d.ai inferencemodelrewrites.llm-d.ai", READ),
    ("inferenceobjectives.inference.networking.x-k8s.io inferencemodelrewrites.inference.networking.x-k8s.io", READ),
    ("inferencegatewayconfigs.inference.sagemaker.aws.amazon.com", ALL),
    (
        "inferenceendpointconfigs.inference.sagemaker.aws.amazon.com jumpstartmodels.inference.sagemaker.aws.amazon.com",
        READ,
    ),
    (
        "inferencegatewayconfigs/status.inference.sagemaker.aws.amazon.com \
         inferenceendpointconfigs/status.inference.sagemaker.aws.amazon.com \
         jumpstartmodels/status.inference.sagemaker.aws.amazon.com",
        STATUS,
    ),
    ("inferencegatewayconfigs/finalizers.inference.sagemaker.aws.amazon.com", &["update"]),
    ("events events.events.k8s.io", &["create", "patch"]),
];

/// And in its own.
const OF_THE_CONTROLLER_IN_SYSTEM: &[(&str, &[&str])] = &[
    ("configmaps serviceaccounts deployments.apps poddisruptionbudgets.policy", ALL),
    ("networkpolicies.networking.k8s.io ingresses.networking.k8s.io", ALL),
    ("issuers.cert-manager.io certificates.cert-manager.io", ALL),
    ("horizontalpodautoscalers.autoscaling", READ),
    ("leases.coordination.k8s.io", &["create", "get", "list", "patch", "update", "watch"]),
];

#[test]
fn a_data_plane_reads_what_it_routes_by_and_the_secrets_that_its_config_names() {
    let (_controller, cluster) = (undisturbed(), Cluster::shared());
    let (space, other) = (cluster.namespace("access"), cluster.namespace("other"));
    space.apply(&model("llama", 1));
    for name in ["keys", "theirs"] {
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": {"team": "0123456789abcdef"}});
        space.apply(&secret.to_string());
    }
    let account = format!("system:serviceaccount:{SYSTEM}:{}", api::names::data_plane(SYSTEM, &space.name));
    space.apply(&config(&space.name, &["llama"]).to_string());
    first_chat(cluster, &space.name, "llama");
    let everywhere = lines(OF_DATA_PLANES);
    let beside = lines(&[("configmaps", READ)]);
    assert_eq!(more_than_nobody(&account, &other.name), everywhere);
    assert_eq!(more_than_nobody(&account, SYSTEM), everywhere);
    assert_eq!(more_than_nobody(&account, &space.name), &everywhere | &beside);
    assert_eq!(more_than_nobody(&account, "kube-system"), everywhere);

    let mut guarded = config(&space.name, &["llama"]);
    guarded["spec"]["auth"] = json!({"apiKeys": {"secretRef": {"name": "keys"}}});
    space.apply(&guarded.to_string());
    let named = lines(&[("secrets", READ)]).iter().map(|line| format!("{line} [\"keys\"]")).collect();
    let wanted = &(&everywhere | &beside) | &named;
    cluster.eventually("the Secret that it names is granted, and no other", || {
        (more_than_nobody(&account, &space.name) == wanted).then_some(())
    });
    assert_eq!(more_than_nobody(&account, &other.name), everywhere);
    // No longer named, no longer granted.
    space.apply(&config(&space.name, &["llama"]).to_string());
    cluster.eventually("the grant goes", || {
        (more_than_nobody(&account, &space.name) == &everywhere | &beside).then_some(())
    });
}

#[test]
fn the_controller_may_do_what_its_objects_need_and_no_more() {
    let account = format!("system:serviceaccount:{SYSTEM}:inference-gateway-controller");
    let space = Cluster::shared().namespace("controlled");
    // It runs beside data planes, and what all accounts there may read is in its own list as well.
    let everywhere = lines(OF_THE_CONTROLLER);
    assert_eq!(more_than_nobody(&account, &space.name), everywhere);
    assert_eq!(more_than_nobody(&account, "kube-system"), everywhere);
    assert_eq!(more_than_nobody(&account, SYSTEM), &everywhere | &lines(OF_THE_CONTROLLER_IN_SYSTEM));
}
