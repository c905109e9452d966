//! What a config's status says: made of the picture alone, so it never tells of something that is gone.
//!
//! Ready means that pods of the data plane of this very configuration serve; nothing says so before. A condition keeps its
//! time for as long as its status is the same, so that a status which says nothing new is not written again.

mod plane;
#[cfg(test)]
mod tests;

use api::{
    cluster::{Condition, ObjectKey},
    document::{InferenceGatewayConfigSpec, LabelSelector, SchedulerSpec},
    names,
};
use serde_json::{Value, json};

use self::plane::{PlaneState, Rollout};
use crate::{
    events::{Notice, Tone},
    judge::{Judged, Verdict},
    kind::{Id, Kind},
    picture::{Picture, inside},
    wanted::{Settings, config::Tls},
};

/// Longest message of a condition that Kubernetes takes is 32 kB; people stop reading long before.
const MESSAGE_MAX: usize = 4096;

/// What a status is made of.
#[derive(Clone, Copy, Debug)]
pub struct Known<'a> {
    pub picture: &'a Picture,
    pub settings: &'a Settings,
    /// What could not be written for the config, and why.
    pub trouble: &'a [String],
    /// What became of a certificate that is issued and imported.
    pub certificate: Option<&'a Certificate>,
    /// RFC 3339.
    pub now: &'a str,
}

/// A certificate that is issued for a config.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Certificate {
    /// In ACM, once it is there.
    pub arn: Option<String>,
    /// RFC 3339.
    pub issued_at: Option<String>,
    pub dns_names: Vec<String>,
    /// Why it is not there.
    pub trouble: Option<String>,
}

/// The status that a config should have.
#[must_use]
pub fn of(judged: &Judged, known: Known<'_>) -> Value {
    let old = judged.object.status.clone().unwrap_or(Value::Null);
    let generation = judged.object.metadata.generation;
    let mut says = Says { generation, now: known.now };
    let (conditions, schedulers, tls) = match &judged.verdict {
        Verdict::InForce(spec) => in_force(&judged.object.key(), spec, known),
        Verdict::Refused { reason, message } => (refused(reason, message), Vec::new(), Value::Null),
    };
    let schedulers: Vec<Value> = schedulers
        .into_iter()
        .map(|it| {
            let before = scheduler_before(&old, &it.name);
            json!({
                "name": it.name,
                "conditions": says.dated(it.conditions, before),
                "currentScheduler": it.current,
                "rolloutState": it.rollout.name(),
            })
        })
        .collect();
    json!({
        "conditions": says.dated(conditions, old.get("conditions")),
        "schedulers": schedulers,
        "observedGeneration": generation,
        "tls": tls,
    })
}

/// Whether writing `wanted` would change anything.
#[must_use]
pub fn differs(old: Option<&Value>, wanted: &Value) -> bool {
    let nothing = Value::Null;
    let old = old.unwrap_or(&nothing);
    let said = |status: &Value, key: &str| status.get(key).filter(|it| !it.is_null()).cloned();
    ["conditions", "schedulers", "observedGeneration", "tls"].into_iter().any(|key| said(old, key) != said(wanted, key))
}

/// What has turned in a status, for events.
#[must_use]
pub fn turns(old: Option<&Value>, new: &Value) -> Vec<Notice> {
    let mut notices = Vec::new();
    for condition in conditions(new.get("conditions")) {
        let before =
            old.and_then(|old| conditions(old.get("conditions")).into_iter().find(|it| it.kind == condition.kind));
        let is_news =
            before.is_none_or(|it| (it.status, it.reason) != (condition.status.clone(), condition.reason.clone()));
        if !is_news {
            continue;
        }
        let holds = condition.status == "True";
        match (condition.kind.as_str(), holds) {
            ("Ready", true) => notices.push(notice(Tone::Normal, "Ready", &condition.message)),
            ("Accepted", true) => notices.push(notice(Tone::Normal, "Accepted", &condition.message)),
            ("Accepted", false) => notices.push(notice(Tone::Warning, "NotAccepted", &condition.message)),
            ("GatewayProgrammed", true) => notices.push(notice(Tone::Normal, "GatewayProgrammed", &condition.message)),
            ("GatewayProgrammed", false) => notices.push(notice(Tone::Normal, "RolloutStarted", &condition.message)),
            ("AdmissionBlocked", true) => notices.push(notice(Tone::Warning, "AdmissionBlocked", &condition.message)),
            ("CertificateImported", true) => {
                notices.push(notice(Tone::Normal, "CertificateImported", &condition.message))
            }
            ("CertificateImported", false) if condition.reason != "Pending" => {
                notices.push(notice(Tone::Warning, "CertificateNotImported", &condition.message));
            }
            _ => {}
        }
    }
    notices
}

fn notice(tone: Tone, reason: &'static str, text: &str) -> Notice {
    Notice { tone, reason, text: text.to_owned() }
}

/// A condition before it has a time.
#[derive(Clone, Debug)]
struct Claim {
    kind: &'static str,
    holds: bool,
    reason: &'static str,
    message: String,
}

fn claim(kind: &'static str, holds: bool, reason: &'static str, message: impl Into<String>) -> Claim {
    Claim { kind, holds, reason, message: message.into() }
}

struct SchedulerSays {
    name: String,
    conditions: Vec<Claim>,
    current: Option<Value>,
    rollout: Rollout,
}

/// Of an earlier form of the config more may still serve; but nothing can be said of this one.
fn refused(reason: &'static str, message: &str) -> Vec<Claim> {
    let unheard = "the configuration is not accepted, so nothing is made of it";
    vec![
        claim("Accepted", false, reason, message),
        claim("AdmissionBlocked", false, "NothingRefused", "no object was refused"),
        claim("GatewayProgrammed", false, reason, unheard),
        claim("Ready", false, reason, unheard),
    ]
}

fn in_force(
    key: &ObjectKey,
    spec: &InferenceGatewayConfigSpec,
    known: Known<'_>,
) -> (Vec<Claim>, Vec<SchedulerSays>, Value) {
    let system = &known.settings.system_namespace;
    let name = names::data_plane(system, &key.name);
    let plane = PlaneState::of(known.picture, &Id::new(Kind::Deployment, system, &name));
    let mut conditions = vec![claim("Accepted", true, "Accepted", "the configuration is valid and in force")];
    conditions.push(blocked(&plane, known));
    conditions.push(match plane.serves() {
        true => claim("GatewayProgrammed", true, "Programmed", plane.message()),
        false => claim("GatewayProgrammed", false, plane.rollout().name(), plane.message()),
    });
    if spec.bbr.enabled {
        conditions.push(match plane.serves() {
            true => claim("BBRReady", true, "Ready", "requests are routed by the model in their body"),
            false => claim("BBRReady", false, plane.rollout().name(), "no pod of the data plane serves yet"),
        });
    }
    let tls = certificate(spec, known.certificate, &mut conditions);
    conditions.push(ready(&plane, known));
    conditions.sort_by_key(|claim| claim.kind);
    let schedulers = spec.schedulers.iter().map(|it| scheduler(key, it, &plane, known)).collect();
    (conditions, schedulers, tls)
}

fn blocked(plane: &PlaneState, known: Known<'_>) -> Claim {
    let mut trouble: Vec<&str> = known.trouble.iter().map(String::as_str).collect();
    trouble.extend(plane.refused.as_deref());
    let absent: Vec<String> =
        known.picture.absent.iter().filter(|it| is_needed(**it)).map(|it| it.name().to_owned()).collect();
    let missing =
        format!("this cluster has no {}: install the Gateway API and its inference extension", absent.join(", "));
    if !absent.is_empty() {
        trouble.push(&missing);
    }
    if trouble.is_empty() {
        return claim("AdmissionBlocked", false, "NothingRefused", "no object was refused");
    }
    claim("AdmissionBlocked", true, "ObjectsRefused", trouble.join("; "))
}

fn is_needed(kind: Kind) -> bool {
    matches!(kind, Kind::Gateway | Kind::HttpRoute | Kind::InferencePool)
}

fn ready(plane: &PlaneState, known: Known<'_>) -> Claim {
    if !known.trouble.is_empty() {
        return claim("Ready", false, "ObjectsRefused", "not every object could be made; see AdmissionBlocked");
    }
    if plane.is_ready() {
        return claim("Ready", true, "Ready", plane.message());
    }
    claim("Ready", false, plane.rollout().name(), plane.message())
}

fn certificate(spec: &InferenceGatewayConfigSpec, found: Option<&Certificate>, conditions: &mut Vec<Claim>) -> Value {
    let nothing = Certificate::default();
    if Tls::of(spec.tls.as_ref()) != Tls::Issued {
        return Value::Null;
    }
    let found = found.unwrap_or(&nothing);
    conditions.push(match (&found.arn, &found.trouble) {
        (_, Some(trouble)) => claim("CertificateImported", false, "Failed", trouble.clone()),
        (Some(arn), None) => claim("CertificateImported", true, "Imported", format!("imported as {arn}")),
        (None, None) => claim("CertificateImported", false, "Pending", "the certificate has not been issued yet"),
    });
    let mut tls = serde_json::Map::new();
    tls.extend(found.arn.clone().map(|arn| ("acmArn".to_owned(), Value::String(arn))));
    tls.extend(found.issued_at.clone().map(|at| ("issuedAt".to_owned(), Value::String(at))));
    if !found.dns_names.is_empty() {
        tls.insert("dnsNames".to_owned(), json!(found.dns_names));
    }
    if tls.is_empty() { Value::Null } else { Value::Object(tls) }
}

fn scheduler(key: &ObjectKey, scheduler: &SchedulerSpec, plane: &PlaneState, known: Known<'_>) -> SchedulerSays {
    let selector = &scheduler.model_selector;
    let pods = inside(&known.picture.objects.pods, &key.namespace)
        .filter(|pod| !pod.has_ended() && selects(selector, &pod.metadata.labels));
    let (all, serving) = pods.fold((0_u32, 0_u32), |(all, serving), pod| (all + 1, serving + u32::from(pod.serves())));
    let mut conditions = vec![match (all, serving) {
        (0, _) => claim("EndpointsReady", false, "NoMatchingPods", "modelSelector matches no pod of this namespace"),
        (all, 0) => claim("EndpointsReady", false, "NoReadyPods", format!("none of {all} matching pods is ready")),
        (all, serving) => {
            claim("EndpointsReady", true, "EndpointsReady", format!("{serving} of {all} matching pods are ready"))
        }
    }];
    let sayable = selector.match_expressions.is_empty() && !selector.match_labels.is_empty();
    if !sayable {
        let why = "modelSelector has matchExpressions, or no matchLabels, which an InferencePool cannot hold; \
                   requests are routed all the same";
        conditions.push(claim("PoolCreated", false, "SelectorNotExpressible", why));
    }
    conditions.push(match plane.serves() {
        true => claim("Ready", true, "Ready", "the data plane picks endpoints for this model"),
        false => claim("Ready", false, plane.rollout().name(), plane.message()),
    });
    SchedulerSays {
        name: scheduler.name.clone(),
        conditions,
        current: serde_json::to_value(scheduler.scheduler).ok(),
        rollout: plane.rollout(),
    }
}

/// With the meaning that Kubernetes gives to selectors.
fn selects(selector: &LabelSelector, labels: &std::collections::BTreeMap<String, String>) -> bool {
    use api::document::ExpressionOperator as Op;
    selector.match_labels.iter().all(|(key, value)| labels.get(key) == Some(value))
        && selector.match_expressions.iter().all(|it| match it.operator {
            Op::In => labels.get(&it.key).is_some_and(|value| it.values.contains(value)),
            Op::NotIn => labels.get(&it.key).is_none_or(|value| !it.values.contains(value)),
            Op::Exists => labels.contains_key(&it.key),
            Op::DoesNotExist => !labels.contains_key(&it.key),
        })
}

struct Says<'a> {
    generation: i64,
    now: &'a str,
}

impl Says<'_> {
    /// With the time of its last turn: that of before, if it has not turned.
    fn dated(&mut self, claims: Vec<Claim>, before: Option<&Value>) -> Vec<Condition> {
        let before = conditions(before);
        let dated = claims.into_iter().map(|claim| {
            let status = if claim.holds { "True" } else { "False" };
            let same = before.iter().find(|it| it.kind == claim.kind && it.status == status);
            let time = same.map_or(self.now, |it| it.last_transition_time.as_str());
            let mut message = claim.message;
            message.truncate(
                (0..=MESSAGE_MAX.min(message.len())).rev().find(|at| message.is_char_boundary(*at)).unwrap_or(0),
            );
            Condition {
                kind: claim.kind.to_owned(),
                status: status.to_owned(),
                reason: claim.reason.to_owned(),
                message,
                observed_generation: self.generation,
                last_transition_time: time.to_owned(),
            }
        });
        dated.collect()
    }
}

fn conditions(value: Option<&Value>) -> Vec<Condition> {
    value.and_then(|it| serde_json::from_value(it.clone()).ok()).unwrap_or_default()
}

fn scheduler_before<'a>(old: &'a Value, name: &str) -> Option<&'a Value> {
    let schedulers = old.get("schedulers")?.as_array()?;
    schedulers.iter().find(|it| it["name"] == name)?.get("conditions")
}
