//! Rewrites of models.

use super::{MINIMAL, config, load_texts, violations};
use crate::{Rewrite, RewriteTarget};

fn document(group: &str, metadata: &str, spec: &str) -> String {
    format!("---\napiVersion: {group}/v1alpha2\nkind: InferenceModelRewrite\nmetadata: {{{metadata}}}\nspec: {spec}\n")
}

const GROUP: &str = "llm-d.ai";
const OLDER_GROUP: &str = "inference.networking.x-k8s.io";

fn rules(documents: &[String]) -> Vec<Rewrite> {
    config(&format!("{MINIMAL}{}", documents.concat())).rewrites
}

fn rule(models: &[&str], targets: &[(&str, u32)]) -> Rewrite {
    Rewrite {
        pool: "llama".into(),
        models: models.iter().map(|model| (*model).into()).collect(),
        targets: targets
            .iter()
            .map(|(model, weight)| RewriteTarget { model: (*model).into(), weight: *weight })
            .collect(),
    }
}

#[test]
fn rules_stand_in_the_order_in_which_they_count() {
    let generic = "{poolRef: {name: llama}, rules: [{targets: [{modelRewrite: any}]}]}";
    let exact = "{poolRef: {name: llama}, rules: [{matches: [{model: {value: a}}, {model: {type: Exact, value: b}}], \
                 targets: [{weight: 9, modelRewrite: x}, {weight: 1, modelRewrite: y}]}]}";
    let expected = [rule(&["a", "b"], &[("x", 9), ("y", 1)]), rule(&[], &[("any", 1)])];
    assert_eq!(rules(&[document(GROUP, "name: g", generic), document(GROUP, "name: e", exact)]), expected);
    // The oldest first, whatever order they come in; without a time, as they come.
    let aged = |name: &str, day: u32, to: &str| {
        let spec = format!("{{poolRef: {{name: llama}}, rules: [{{targets: [{{modelRewrite: {to}}}]}}]}}");
        document(GROUP, &format!("name: {name}, creationTimestamp: '2026-11-{day}T00:00:00Z'"), &spec)
    };
    assert_eq!(
        rules(&[aged("a", 30, "new"), aged("b", 10, "old"), aged("c", 10, "as-old")]),
        [rule(&[], &[("old", 1)]), rule(&[], &[("as-old", 1)]), rule(&[], &[("new", 1)])]
    );
}

#[test]
fn of_two_rewrites_of_one_name_the_newer_groups_counts() {
    let to = |name: &str| format!("{{poolRef: {{name: llama}}, rules: [{{targets: [{{modelRewrite: {name}}}]}}]}}");
    let text = format!(
        "{MINIMAL}{}{}",
        document(OLDER_GROUP, "name: a", &to("older")),
        document(GROUP, "name: a", &to("newer"))
    );
    let loaded = load_texts(&[&text]).unwrap();
    assert_eq!(loaded.config.rewrites, [rule(&[], &[("newer", 1)])]);
    assert!(loaded.notices.iter().any(|notice| notice.contains("not used: there is an InferenceModelRewrite")));
}

#[test]
fn a_rewrite_of_another_pool_is_left_out_and_said() {
    let text = format!(
        "{MINIMAL}{}",
        document(GROUP, "name: a", "{poolRef: {name: lama}, rules: [{targets: [{modelRewrite: b}]}]}")
    );
    let loaded = load_texts(&[&text]).unwrap();
    assert_eq!(loaded.config.rewrites, []);
    assert!(
        loaded.notices.iter().any(|notice| notice.contains("no scheduler is called \"lama\"; did you mean `llama`?"))
    );
}

#[test]
fn all_targets_have_a_weight_or_none() {
    let mixed = document(
        GROUP,
        "name: a",
        "{poolRef: {name: llama}, rules: [{targets: [{modelRewrite: b, weight: 1}, {modelRewrite: c}]}]}",
    );
    assert_eq!(
        violations(&format!("{MINIMAL}{mixed}")),
        ["0.yaml:14: spec.rules[0].targets: all of them have a `weight`, or none: one without would get no request"]
    );
}
