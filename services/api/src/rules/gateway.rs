//! Rules of `spec` outside of schedulers and adapters.

use super::{
    exactly_one,
    texts::{
        ACM_OR_SECRET, AUTHORIZATION_IS_TRUE, BBR_FOR_SEVERAL, JWT_OR_KEYS, LIMIT_HAS_A_NUMBER, NEEDS_AUTH,
        TOKENS_RESTRICTED,
    },
    unique,
};
use crate::{
    document::Kind,
    duration::GatewayDuration,
    load::{Item, World},
    place::{Findings, quoted},
    schema::hint::nearest,
    yaml::{Cursor, Value},
};

/// The numbers of a limit, of which one must be there.
const LIMIT_NUMBERS: [&str; 5] =
    ["requestsPerMinute", "tokensPerMinute", "inputTokensPerMinute", "outputTokensPerMinute", "concurrentRequests"];

pub(super) fn check(spec: &Cursor<'_>, items: &[Item<'_>], world: World, findings: &mut Findings) {
    bbr_for_several_schedulers(spec, findings);
    match world {
        World::Files => default_backend_exists(spec, items, findings),
        // A Service, which comes and goes by itself.
        World::Cluster => {}
    }
    tokens_are_restricted(spec, findings);
    one_certificate(spec, world, findings);
    signals_outlive_the_interval(spec, findings);
    let schedulers: Vec<Cursor<'_>> = spec.get("schedulers").iter().flat_map(Cursor::items).collect();
    for at in [spec.clone()].iter().chain(&schedulers) {
        if let Some(limits) = at.get("limits") {
            check_limits(&limits, spec, findings);
        }
    }
}

fn bbr_for_several_schedulers(spec: &Cursor<'_>, findings: &mut Findings) {
    let Some(enabled) = spec.find(&["bbr", "enabled"]) else { return };
    let schedulers = spec.get("schedulers").iter().flat_map(Cursor::items).count();
    if enabled.bool() == Some(false) && schedulers > 1 {
        findings.report(enabled.place(), BBR_FOR_SEVERAL);
    }
}

fn default_backend_exists(spec: &Cursor<'_>, items: &[Item<'_>], findings: &mut Findings) {
    let Some(at) = spec.find(&["bbr", "defaultBackend", "name"]) else { return };
    let Some(name) = at.text() else { return };
    let endpoints = || items.iter().filter(|item| item.kind == Kind::Endpoint).filter_map(Item::name);
    if !endpoints().any(|endpoint| endpoint == name) {
        let hint = nearest(name, endpoints()).map(|name| format!("; did you mean `{name}`?")).unwrap_or_default();
        findings.report(at.place(), format!("no Endpoint is called {}{hint}", quoted(name)));
    }
}

fn tokens_are_restricted(spec: &Cursor<'_>, findings: &mut Findings) {
    if let Some(auth) = spec.get("auth").filter(|auth| auth.get("jwt").is_none() && auth.get("apiKeys").is_none()) {
        findings.report(auth.place(), JWT_OR_KEYS);
    }
    let Some(provider) = spec.find(&["auth", "jwt", "provider"]) else { return };
    let some = |field: &str| provider.get(field).is_some_and(|list| list.items().next().is_some());
    if !some("audiences") && !some("requiredClaims") {
        findings.report(provider.place(), TOKENS_RESTRICTED);
    }
}

fn one_certificate(spec: &Cursor<'_>, world: World, findings: &mut Findings) {
    let Some(tls) = spec.get("tls") else { return };
    let arn = tls.get("acmArn").and_then(|arn| arn.text()).is_some_and(|arn| !arn.is_empty());
    if let Some(secret) = tls.get("secretRef").filter(|_| arn) {
        findings.report(secret.place(), ACM_OR_SECRET);
    }
    if world == World::Files && matches!(tls.node.value, Value::Map(_)) && tls.get("secretRef").is_none() {
        let needs =
            "issuing a certificate, and using one of ACM, needs a cluster: in files, name a Secret in `secretRef`";
        findings.report(tls.place(), needs);
    }
}

fn signals_outlive_the_interval(spec: &Cursor<'_>, findings: &mut Findings) {
    let Some(signals) = spec.get("signals") else { return };
    let field = |name: &str| signals.get(name).map(|at| at.text().and_then(GatewayDuration::parse));
    // A field that is there and malformed was reported; an absent one has its default.
    let defaults = crate::document::SignalsSpec::default();
    let (Some(interval), Some(stale)) = (
        field("scrapeInterval").unwrap_or(Some(defaults.scrape_interval)),
        field("staleAfter").unwrap_or(Some(defaults.stale_after)),
    ) else {
        return;
    };
    if stale <= interval {
        let at = signals.get("staleAfter").or_else(|| signals.get("scrapeInterval")).unwrap_or_else(|| signals.clone());
        let message = format!(
            "staleAfter ({stale}) must be longer than scrapeInterval ({interval}): else no reading ever counts"
        );
        findings.report(at.place(), message);
    }
}

fn check_limits(limits: &Cursor<'_>, spec: &Cursor<'_>, findings: &mut Findings) {
    unique(limits, "name", findings);
    for limit in limits.items() {
        if !LIMIT_NUMBERS.iter().any(|number| limit.get(number).is_some()) {
            findings.report(limit.place(), LIMIT_HAS_A_NUMBER);
        }
        let Some(key) = limit.get("key") else { continue };
        exactly_one(&key, &["header", "claim", "authorization"], findings);
        if let Some(off) = key.get("authorization").filter(|at| at.bool() == Some(false)) {
            findings.report(off.place(), AUTHORIZATION_IS_TRUE);
        }
        if let Some(claim) = key.get("claim").filter(|_| spec.get("auth").is_none()) {
            findings.report(claim.place(), NEEDS_AUTH);
        }
    }
}
