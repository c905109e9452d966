//! Documents without fault to the [`Config`] that programs run on.

mod access;
mod advice;
mod flow_control;
mod rewrites;

use std::{collections::BTreeMap, num::NonZeroU64, path::PathBuf};

use serde::de::DeserializeOwned;
use serde_json::Value as Json;

use crate::{
    ApiKeySource, AppProtocol, Bbr, Config, EndpointSpec, EndpointTls, EngineType, Limit, LimitKey, PickerProfile,
    Scheduler, Signals, Timeouts, Usage, Weights,
    document::{
        self, AppProtocolName, BbrSpec, EngineName, InferenceGatewayConfig, Kind, PickerName, SchedulerSpec, ServerTls,
        SignalsSpec, TimeoutsSpec, UsageMode, WeightsSpec,
    },
    duration::GatewayDuration,
    load::{DEFAULT_NAMESPACE, Item, World},
    place::{Findings, Place},
};

/// Puts everything together. Nothing should be reported: it would mean that a schema and its struct disagree.
pub(crate) fn config(
    item: &Item<'_>,
    items: &[Item<'_>],
    adapters: BTreeMap<String, String>,
    world: World,
    findings: &mut Findings,
    notices: &mut Findings,
) -> Option<Config> {
    let document: InferenceGatewayConfig = typed(item, findings)?;
    let shared = item.json.pointer("/spec/flowControl");
    let shared_claim = access::band_claim(shared.unwrap_or(&Json::Null), item, findings)?;
    let mut endpoints = Vec::new();
    for item in items.iter().filter(|item| item.kind == Kind::Endpoint) {
        endpoints.push((endpoint(typed(item, findings)?), item.at.place()));
    }
    endpoints.sort_by(|(a, _), (b, _)| a.name.cmp(&b.name));
    let (endpoints, places): (Vec<EndpointSpec>, Vec<Place>) = endpoints.into_iter().unzip();
    let mut schedulers = Vec::new();
    for spec in document.spec.schedulers {
        let own = spec.flow_control.as_ref().unwrap_or(&Json::Null);
        let band_claim = access::band_claim(own, item, findings)?.or_else(|| shared_claim.clone());
        schedulers.push(Scheduler { band_claim, ..scheduler(spec, shared, &adapters, item, findings)? });
    }
    let objectives = flow_control::objectives(items, &schedulers, findings)?;
    let rewrites = rewrites::rewrites(items, &schedulers, findings)?;
    let config = Config {
        flow_control: flow_control::merged(shared, None, item, findings)?,
        objectives,
        rewrites,
        name: document.metadata.name,
        namespace: document.metadata.namespace.unwrap_or_else(|| DEFAULT_NAMESPACE.into()),
        bbr: bbr(document.spec.bbr),
        schedulers,
        endpoints,
        adapters,
        extra_paths: document.spec.data_plane.extra_paths,
        stream_keep_alive: document.spec.data_plane.stream_keep_alive.limit(),
        signals: signals(&document.spec.signals),
        timeouts: timeouts(&document.spec.timeouts),
        metrics_enabled: document.spec.observability.metrics.enabled,
        limits: document.spec.limits.into_iter().map(limit).collect(),
        usage: match document.spec.data_plane.usage {
            UsageMode::AsAsked => Usage::AsAsked,
            UsageMode::Always => Usage::Always,
        },
        tls: document.spec.tls.map(|tls| access::tls(tls, items)),
        auth: document.spec.auth.map(|auth| access::auth(auth, items)),
        band_claim: shared_claim,
    };
    match world {
        World::Files => advice::check(&config, item, &places, notices),
        World::Cluster => advice::check_limits(&config, item, notices),
    }
    Some(config)
}

fn typed<T: DeserializeOwned>(item: &Item<'_>, findings: &mut Findings) -> Option<T> {
    read(item.json.clone(), item, findings)
}

fn read<T: DeserializeOwned>(json: Json, item: &Item<'_>, findings: &mut Findings) -> Option<T> {
    serde_json::from_value(json)
        .map_err(|error| findings.report(item.at.place(), format!("cannot be read, a fault of the gateway: {error}")))
        .ok()
}

fn bbr(spec: BbrSpec) -> Bbr {
    let default_port = document::DefaultBackend::PORT;
    Bbr {
        enabled: spec.enabled,
        default_backend_port: spec.default_backend.as_ref().map_or(default_port, |backend| backend.port),
        default_backend: spec.default_backend.map(|backend| backend.name),
        max_request_body_bytes: spec.max_request_body_bytes,
    }
}

fn scheduler(
    spec: SchedulerSpec,
    shared: Option<&Json>,
    adapters: &BTreeMap<String, String>,
    item: &Item<'_>,
    findings: &mut Findings,
) -> Option<Scheduler> {
    let flow_control = flow_control::merged(shared, spec.flow_control, item, findings)?;
    let own = |(_, base): &(&String, &String)| **base == spec.model_name;
    Some(Scheduler {
        selector: spec.model_selector.into(),
        target_port: spec.target_port,
        protocol: protocol(spec.app_protocol),
        engine: engine(spec.engine_type),
        picker: picker(spec.scheduler),
        weights: weights(spec.weights.as_ref(), spec.scheduler),
        lora_adapters: adapters.iter().filter(own).map(|(adapter, _)| adapter.clone()).collect(),
        route_timeout: spec.route_timeout.and_then(GatewayDuration::limit),
        log_level: spec.log_level,
        flow_control,
        band_claim: None,
        limits: spec.limits.into_iter().map(limit).collect(),
        name: spec.name,
        model_name: spec.model_name,
    })
}

fn limit(spec: document::Limit) -> Limit {
    let number = |number: Option<u64>| number.and_then(NonZeroU64::new);
    Limit {
        name: spec.name,
        // Exactly one of the three.
        key: match (spec.key.header, spec.key.claim) {
            (Some(name), _) => LimitKey::Header(name.to_ascii_lowercase()),
            (None, Some(name)) => LimitKey::Claim(name),
            (None, None) => LimitKey::Authorization,
        },
        models: spec.models,
        requests_per_minute: number(spec.requests_per_minute),
        tokens_per_minute: number(spec.tokens_per_minute),
        input_tokens_per_minute: number(spec.input_tokens_per_minute),
        output_tokens_per_minute: number(spec.output_tokens_per_minute),
        concurrent_requests: number(spec.concurrent_requests),
    }
}

fn protocol(name: AppProtocolName) -> AppProtocol {
    match name {
        AppProtocolName::Http => AppProtocol::Http,
        AppProtocolName::H2c => AppProtocol::H2c,
    }
}

fn engine(name: EngineName) -> EngineType {
    match name {
        EngineName::Vllm => EngineType::Vllm,
        EngineName::Sglang => EngineType::Sglang,
        EngineName::Tgi => EngineType::Tgi,
        EngineName::Trtllm => EngineType::Trtllm,
        EngineName::Triton => EngineType::Triton,
        EngineName::Llamacpp => EngineType::Llamacpp,
        EngineName::Auto => EngineType::Auto,
        EngineName::None => EngineType::None,
    }
}

fn picker(name: PickerName) -> PickerProfile {
    match name {
        PickerName::LlmD => PickerProfile::LlmD,
        PickerName::Epp => PickerProfile::Epp,
    }
}

/// What is set means what the contract says, also for those weights of a set that are left out. Without any, the picker's
/// own profile.
fn weights(spec: Option<&WeightsSpec>, picker: PickerName) -> Weights {
    let by_default = WeightsSpec::of_profile(picker);
    let spec = spec.unwrap_or(&by_default);
    Weights {
        queue: spec.queue,
        kv_cache: spec.kv_cache,
        prefix: spec.prefix,
        lora_affinity: spec.lora_affinity,
        running_requests: spec.running_requests,
        lru: spec.lru.unwrap_or(0),
        predicted_latency: spec.predicted_latency,
    }
}

fn signals(spec: &SignalsSpec) -> Signals {
    Signals { scrape_interval: spec.scrape_interval.0, stale_after: spec.stale_after.0 }
}

fn timeouts(spec: &TimeoutsSpec) -> Timeouts {
    Timeouts {
        connect: spec.connect.limit(),
        first_byte: spec.first_byte.limit(),
        stream_idle: spec.stream_idle.limit(),
    }
}

fn endpoint(document: document::Endpoint) -> EndpointSpec {
    let spec = document.spec;
    let bare = spec.address.trim_start_matches('[').trim_end_matches(']').trim_end_matches('.');
    EndpointSpec {
        name: document.metadata.name,
        labels: document.metadata.labels,
        address: bare.to_ascii_lowercase(),
        port: spec.port,
        metrics_path: spec.metrics_path,
        metrics_port: spec.metrics_port,
        tls: spec.tls.map(endpoint_tls),
        api_key: spec.api_key.and_then(|key| match (key.env, key.file) {
            (Some(name), _) => Some(ApiKeySource::Env(name)),
            (None, Some(path)) => Some(ApiKeySource::File(PathBuf::from(path))),
            (None, None) => None,
        }),
    }
}

fn endpoint_tls(tls: ServerTls) -> EndpointTls {
    EndpointTls {
        ca_file: tls.ca_file.map(PathBuf::from),
        server_name: tls.server_name,
        insecure_skip_verify: tls.insecure_skip_verify,
    }
}
