//! Rules of `spec.schedulers[]`.

use super::{
    texts::{LRU_ONLY_LLM_D, WEIGHTS_OR_CONFIG_MAP},
    unique,
};
use crate::{place::Findings, yaml::Cursor};

pub(super) fn check(spec: &Cursor<'_>, findings: &mut Findings) {
    let Some(schedulers) = spec.get("schedulers") else { return };
    unique(&schedulers, "name", findings);
    unique(&schedulers, "modelName", findings);
    for scheduler in schedulers.items() {
        weights_or_config_map(&scheduler, findings);
        lru_only_with_llm_d(&scheduler, findings);
        for expression in scheduler.find(&["modelSelector", "matchExpressions"]).iter().flat_map(Cursor::items) {
            values_fit_operator(&expression, findings);
        }
    }
}

fn weights_or_config_map(scheduler: &Cursor<'_>, findings: &mut Findings) {
    if let Some(reference) = scheduler.get("configMapRef").filter(|_| scheduler.get("weights").is_some()) {
        findings.report(reference.place(), WEIGHTS_OR_CONFIG_MAP);
    }
}

fn lru_only_with_llm_d(scheduler: &Cursor<'_>, findings: &mut Findings) {
    let Some(lru) = scheduler.find(&["weights", "lru"]) else { return };
    if scheduler.get("scheduler").and_then(|picker| picker.text()).is_some_and(|picker| picker == "epp") {
        findings.report(lru.place(), LRU_ONLY_LLM_D);
    }
}

fn values_fit_operator(expression: &Cursor<'_>, findings: &mut Findings) {
    let values = expression.get("values").iter().flat_map(Cursor::items).count();
    match expression.get("operator").and_then(|operator| operator.text()) {
        Some(operator @ ("In" | "NotIn")) if values == 0 => {
            findings.report(expression.place(), format!("operator {operator} needs `values`"));
        }
        Some(operator @ ("Exists" | "DoesNotExist")) if values > 0 => {
            findings.report(expression.place(), format!("operator {operator} takes no `values`"));
        }
        Some(_) | None => {}
    }
}
