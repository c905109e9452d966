//! Notices about a configuration that is valid and may not be what was meant.

use std::collections::BTreeMap;

use crate::{
    Config, EndpointSpec, Scheduler,
    load::Item,
    place::{Findings, Place, quoted},
    yaml::Cursor,
};

/// `places` are those of the configuration's endpoints, in their order.
pub(super) fn check(config: &Config, item: &Item<'_>, places: &[Place], notices: &mut Findings) {
    let mut addresses: BTreeMap<(&str, Option<u16>), &str> = BTreeMap::new();
    for (endpoint, place) in config.endpoints.iter().zip(places) {
        if let Some(other) = addresses.insert((&endpoint.address, endpoint.port), &endpoint.name) {
            let message = format!(
                "Endpoint has the address and port of Endpoint {other}: the work of one is not seen in the other"
            );
            notices.report(place.clone(), message);
        }
        endpoint_in_pools(config, endpoint, place, notices);
        if endpoint.tls.as_ref().is_some_and(|tls| tls.insecure_skip_verify) {
            let message = "Endpoint's certificate is not checked: anyone on the way can read and change requests";
            notices.report(place.clone(), message);
        }
        let port_at = item.at.find(&["spec", "bbr", "defaultBackend", "port"]);
        if let (true, Some(at), Some(port)) = (is_default(config, endpoint), port_at, endpoint.port)
            && port != config.bbr.default_backend_port
        {
            notices.report(at.place(), format!("not used: the Endpoint names its own port, {port}"));
        }
    }
    let schedulers = item.at.find(&["spec", "schedulers"]);
    for (scheduler, at) in config.schedulers.iter().zip(schedulers.iter().flat_map(|list| list.items())) {
        if !config.endpoints.iter().any(|endpoint| scheduler.selector.matches(&endpoint.labels)) {
            notices.report(at.place(), "selects no Endpoint: its requests get a 503");
        }
    }
    check_limits(config, item, notices);
}

/// A misspelt model leaves a limit without effect. It is only said, since the default backend serves any name.
pub(super) fn check_limits(config: &Config, item: &Item<'_>, notices: &mut Findings) {
    let serves = |name: &str, scheduler: &Scheduler| {
        scheduler.model_name == name || scheduler.lora_adapters.iter().any(|adapter| adapter == name)
    };
    let Some(spec) = item.at.get("spec") else { return };
    let anybody = |name: &str| config.schedulers.iter().any(|scheduler| serves(name, scheduler));
    if config.bbr.default_backend.is_none() {
        models_of_nothing(&spec, &anybody, notices);
    }
    let schedulers = spec.get("schedulers");
    for (scheduler, at) in config.schedulers.iter().zip(schedulers.iter().flat_map(|list| list.items())) {
        models_of_nothing(&at, &|name| serves(name, scheduler), notices);
    }
}

fn models_of_nothing(holder: &Cursor<'_>, serves: &dyn Fn(&str) -> bool, notices: &mut Findings) {
    for limit in holder.get("limits").iter().flat_map(|list| list.items()) {
        for model in limit.get("models").iter().flat_map(|list| list.items()) {
            if let Some(name) = model.text().filter(|name| !serves(name)) {
                notices.report(model.place(), format!("{} is not served here: the limit never counts", quoted(name)));
            }
        }
    }
}

/// Two schedulers may select one endpoint: a server that answers to two names is a common thing, and a cluster allows
/// it. It is only said, because each pool then counts its own work there and sees the other's in the metrics alone.
fn endpoint_in_pools(config: &Config, endpoint: &EndpointSpec, place: &Place, notices: &mut Findings) {
    let selecting = config.schedulers.iter().filter(|scheduler| scheduler.selector.matches(&endpoint.labels));
    let pools: Vec<&str> = selecting.map(|scheduler| scheduler.name.as_str()).collect();
    if pools.is_empty() && !is_default(config, endpoint) {
        notices.report(place.clone(), "Endpoint gets no requests: no scheduler selects its labels");
    }
    if pools.len() > 1 {
        let pools = pools.join(", ");
        let message = format!("Endpoint is in several pools ({pools}): each counts only its own requests there");
        notices.report(place.clone(), message);
    }
}

fn is_default(config: &Config, endpoint: &EndpointSpec) -> bool {
    config.bbr.default_backend.as_ref() == Some(&endpoint.name)
}
