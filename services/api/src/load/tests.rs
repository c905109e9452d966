//! What operators write, and what they are told.

use std::{collections::BTreeSet, time::Duration};

use proptest::prelude::*;

use super::*;
use crate::{
    ApiKeySource, AppProtocol, Band, Bands, Config, EndpointFull, EndpointTls, EngineType, Eviction, Fairness,
    FlowControl, Ordering, PickerProfile, Signals, Timeouts, Weights,
};

mod cluster;
mod flow_control;
mod rewrites;
mod secrets;

const MINIMAL: &str = "\
apiVersion: inference.sagemaker.aws.amazon.com/v1alpha1
kind: InferenceGatewayConfig
metadata: {name: chat}
spec:
  bbr: {enabled: true}
  schedulers:
  - name: llama
    modelName: llama
    modelSelector: {matchLabels: {app: llama}}
";

const ENDPOINT: &str = "\
---
apiVersion: inference-gateway/v1alpha1
kind: Endpoint
metadata: {name: llama-0, labels: {app: llama}}
spec: {address: 10.0.0.7}
";

const EVERY_FIELD: &str = include_str!("../../fixtures/every-field.yaml");
const OPERATOR: &str = include_str!("../../fixtures/operator.yaml");

fn load_texts(texts: &[&str]) -> Result<Loaded, Violations> {
    let sources: Vec<Source> = texts
        .iter()
        .enumerate()
        .map(|(index, text)| Source { name: format!("{index}.yaml"), text: (*text).into() })
        .collect();
    load(&sources)
}

fn config(text: &str) -> Config {
    load_texts(&[text]).unwrap_or_else(|violations| panic!("{violations}")).config
}

fn violations(text: &str) -> Vec<String> {
    match load_texts(&[text]) {
        Ok(loaded) => panic!("accepted: {loaded:?}\n{text}"),
        Err(violations) => violations.0.iter().map(ToString::to_string).collect(),
    }
}

/// A configuration with these lines in `spec`.
fn with_spec(lines: &str) -> String {
    format!("{MINIMAL}{}", lines.lines().map(|line| format!("  {line}\n")).collect::<String>())
}

/// A configuration with these lines in its scheduler.
fn with_scheduler(lines: &str) -> String {
    format!("{MINIMAL}{}", lines.lines().map(|line| format!("    {line}\n")).collect::<String>())
}

// === What is right ===

#[test]
fn every_default_is_the_contracts() {
    let config = config(&format!("{MINIMAL}{ENDPOINT}"));
    let selector = config.schedulers[0].selector.clone();
    let expected = Config {
        name: "chat".into(),
        namespace: "default".into(),
        bbr: crate::Bbr {
            enabled: true,
            default_backend: None,
            default_backend_port: 8000,
            max_request_body_bytes: 268_435_456,
        },
        schedulers: vec![crate::Scheduler {
            name: "llama".into(),
            selector,
            model_name: "llama".into(),
            target_port: 8000,
            protocol: AppProtocol::Http,
            engine: EngineType::Vllm,
            picker: PickerProfile::LlmD,
            weights: Weights {
                queue: 2,
                kv_cache: 2,
                prefix: 6,
                lora_affinity: 3,
                running_requests: 0,
                lru: 0,
                predicted_latency: 8,
            },
            lora_adapters: vec![],
            route_timeout: None,
            log_level: None,
            flow_control: flow_control_by_default(),
            band_claim: None,
            limits: vec![],
        }],
        endpoints: vec![crate::EndpointSpec {
            name: "llama-0".into(),
            labels: BTreeMap::from([("app".into(), "llama".into())]),
            address: "10.0.0.7".into(),
            port: None,
            metrics_path: None,
            metrics_port: None,
            tls: None,
            api_key: None,
        }],
        adapters: BTreeMap::new(),
        extra_paths: vec![],
        stream_keep_alive: None,
        signals: Signals { scrape_interval: Duration::from_millis(200), stale_after: Duration::from_secs(2) },
        timeouts: Timeouts {
            connect: Some(Duration::from_secs(1)),
            first_byte: Some(Duration::from_secs(600)),
            stream_idle: Some(Duration::from_secs(600)),
        },
        flow_control: flow_control_by_default(),
        objectives: vec![],
        rewrites: vec![],
        metrics_enabled: true,
        limits: vec![],
        usage: crate::Usage::AsAsked,
        tls: None,
        auth: None,
        band_claim: None,
    };
    assert_eq!(config, expected);
}

fn flow_control_by_default() -> FlowControl {
    let band = |max_saturation, max_wait_s| Band {
        max_saturation,
        max_wait: Duration::from_secs(max_wait_s),
        max_queued_requests: 1000,
        max_queued_bytes: 64 << 20,
    };
    FlowControl {
        enabled: true,
        endpoint_full: EndpointFull { waiting: 5, kv_cache: 0.8 },
        max_in_flight_per_endpoint: None,
        bands: Bands { critical: band(1.0, 30), standard: band(0.9, 10), sheddable: band(0.8, 0) },
        fairness: Fairness::RoundRobin,
        ordering: Ordering::Fcfs,
        eviction: Eviction::Never,
    }
}

#[test]
fn an_operators_manifest_means_what_it_says() {
    let config = config(OPERATOR);
    assert_eq!((config.name.as_str(), config.namespace.as_str()), ("chat", "ml"));
    assert_eq!(config.bbr.default_backend.as_deref(), Some("hosted"));
    assert_eq!(config.bbr.max_request_body_bytes, 1_048_576);
    assert_eq!(config.extra_paths, ["/v1/mine"]);
    assert_eq!(config.stream_keep_alive, Some(Duration::from_secs(15)));
    assert_eq!(config.signals.stale_after, Duration::from_secs(1));
    assert_eq!(config.timeouts.first_byte, None);
    assert_eq!(config.timeouts.stream_idle, Some(Duration::from_secs(90)));
    assert!(!config.metrics_enabled);

    let [llama, qwen] = config.schedulers.as_slice() else { panic!("two schedulers") };
    assert_eq!(
        llama.weights,
        Weights {
            queue: 3,
            kv_cache: 2,
            prefix: 0,
            lora_affinity: 3,
            running_requests: 0,
            lru: 1,
            predicted_latency: 0
        }
    );
    assert_eq!(
        qwen.weights,
        Weights {
            queue: 0,
            kv_cache: 2,
            prefix: 0,
            lora_affinity: 3,
            running_requests: 0,
            lru: 0,
            predicted_latency: 0
        }
    );
    assert_eq!(
        (llama.protocol, llama.engine, llama.picker),
        (AppProtocol::H2c, EngineType::Trtllm, PickerProfile::LlmD)
    );
    assert_eq!((qwen.protocol, qwen.engine, qwen.picker), (AppProtocol::Http, EngineType::None, PickerProfile::Epp));
    assert_eq!((llama.target_port, llama.log_level), (8080, Some(4)));
    assert_eq!((llama.route_timeout, qwen.route_timeout), (Some(Duration::from_secs(300)), None));
    // Field by field: its own `waiting`, the shared `kvCache`.
    assert_eq!(llama.flow_control.endpoint_full, EndpointFull { waiting: 9, kv_cache: 0.7 });
    assert_eq!(qwen.flow_control.endpoint_full, EndpointFull { waiting: 5, kv_cache: 0.7 });

    assert_eq!(llama.lora_adapters, ["chat-lora", "sql-lora", "third-lora"]);
    assert_eq!(qwen.lora_adapters, ["other-lora", "qwen-lora"]);
    assert_eq!(config.adapters.len(), 5);
    assert_eq!(config.adapters["third-lora"], "meta-llama/Llama-3.1-8B");

    let names: Vec<&str> = config.endpoints.iter().map(|endpoint| endpoint.name.as_str()).collect();
    assert_eq!(names, ["hosted", "llama-0", "llama-1", "llama-test", "qwen-0"]);
    let selected = |scheduler: &crate::Scheduler| {
        let chosen = config.endpoints.iter().filter(|endpoint| scheduler.selector.matches(&endpoint.labels));
        chosen.map(|endpoint| endpoint.name.clone()).collect::<Vec<_>>()
    };
    assert_eq!(selected(llama), ["llama-0", "llama-1"]);
    assert_eq!(selected(qwen), ["qwen-0"]);
}

#[test]
fn endpoints_keep_what_they_were_given() {
    let endpoints = config(OPERATOR).endpoints;
    let [hosted, llama_0, llama_1, ..] = endpoints.as_slice() else { panic!("endpoints") };
    assert_eq!(
        (llama_0.address.as_str(), llama_0.port, llama_0.metrics_port),
        ("llama.example", Some(8000), Some(9100))
    );
    assert_eq!(llama_0.metrics_path.as_deref(), Some("/m"));
    assert_eq!(llama_1.address, "fd00::1");
    assert_eq!(llama_1.api_key, Some(ApiKeySource::Env("LLAMA_KEY".into())));
    let tls = llama_1.tls.as_ref().unwrap();
    assert_eq!((tls.ca_file.as_deref(), tls.server_name.as_deref()), (Some("ca.pem".as_ref()), Some("llama.example")));
    assert_eq!(hosted.tls, Some(EndpointTls::default()));
    assert_eq!(hosted.api_key, Some(ApiKeySource::File("/run/key".into())));
}

#[test]
fn what_has_no_effect_is_said() {
    assert_eq!(
        load_texts(&[OPERATOR]).unwrap().notices,
        [
            "0.yaml:55: items[2]: Endpoint gets no requests: no scheduler selects its labels",
            "0.yaml:65: items[4].metadata.namespace: Endpoint is left out: its namespace is not the configuration's, \"ml\"",
        ]
    );
    let pods = "\
status: {}
---
apiVersion: v1
kind: Secret
metadata: {name: s}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: c}
---
apiVersion: inference-gateway/v1alpha1
kind: Endpoint
metadata: {name: e, labels: {app: llama}}
spec: {address: a, tls: {insecureSkipVerify: true}}
";
    let text = with_scheduler("replicas: 2\nenv: []\nenvFrom: []\n").replace("true}", "true, replicas: 1}");
    let text = format!("{text}  podDefaults: {{}}\n{pods}");
    let only_pods = "shapes pods only, and has no effect on a process that reads files";
    assert_eq!(
        load_texts(&[&text]).unwrap().notices,
        [
            format!("0.yaml:5: spec.bbr.replicas: {only_pods}"),
            format!("0.yaml:10: spec.schedulers[0].replicas: {only_pods}"),
            format!("0.yaml:11: spec.schedulers[0].env: {only_pods}"),
            format!("0.yaml:12: spec.schedulers[0].envFrom: {only_pods}"),
            format!("0.yaml:13: spec.podDefaults: {only_pods}"),
            "0.yaml:14: status: ignored: written by a controller, not read from a file".into(),
            "0.yaml:16: Secret is not used: no field refers to it".into(),
            "0.yaml:20: ConfigMap is not used: it lacks the label `inference.networking.k8s.io/bbr-managed: \"true\"`"
                .into(),
            "0.yaml:24: Endpoint's certificate is not checked: anyone on the way can read and change requests".into(),
        ]
    );
    assert_eq!(
        load_texts(&[MINIMAL]).unwrap().notices,
        ["0.yaml:7: spec.schedulers[0]: selects no Endpoint: its requests get a 503"]
    );
}

#[test]
fn one_endpoint_may_serve_two_names() {
    let second = "- name: alias\n  modelName: alias\n  modelSelector: {}\n";
    let text = format!("{MINIMAL}{}{ENDPOINT}", second.lines().map(|line| format!("  {line}\n")).collect::<String>());
    let notice = "0.yaml:14: Endpoint is in several pools (llama, alias): each counts only its own requests there";
    assert_eq!(load_texts(&[&text]).unwrap().notices, [notice]);
}

#[test]
fn one_server_written_twice_is_said() {
    let text = format!("{MINIMAL}{ENDPOINT}{}", ENDPOINT.replace("llama-0", "llama-1"));
    let notice =
        "0.yaml:16: Endpoint has the address and port of Endpoint llama-0: the work of one is not seen in the other";
    assert_eq!(load_texts(&[&text]).unwrap().notices, [notice]);
}

#[test]
fn documents_may_stand_in_several_files_in_any_order() {
    let apart = load_texts(&[ENDPOINT, "# nothing\n", MINIMAL]).unwrap().config;
    assert_eq!(apart, config(&format!("{MINIMAL}{ENDPOINT}")));
}

#[test]
fn h02_null_is_the_same_as_absent() {
    for field in
        ["appProtocol", "scheduler", "engineType", "routeTimeout", "logLevel", "flowControl", "configMapRef", "weights"]
    {
        assert_eq!(config(&with_scheduler(&format!("{field}: null"))), config(MINIMAL), "{field}");
    }
    for field in ["tls", "auth", "dataPlane", "signals", "limits", "observability", "podDefaults"] {
        assert_eq!(config(&with_spec(&format!("{field}: ~"))), config(MINIMAL), "{field}");
    }
    assert_eq!(
        violations(&MINIMAL.replace("modelName: llama", "modelName: null")),
        ["0.yaml:7: spec.schedulers[0].modelName: required field is missing"]
    );
}

#[test]
fn defaults_written_out_are_no_settings() {
    let bands = "\
flowControl:
  enabled: true
  endpointFull: {waiting: 5, kvCache: 0.8}
  maxInFlightPerEndpoint: 0
  bands:
    critical:  {maxSaturation: 1, maxWait: 30s, maxQueuedRequests: 1000, maxQueuedBytes: 64Mi}
    standard:  {maxSaturation: 0.9, maxWait: 10000ms, maxQueuedRequests: 1000, maxQueuedBytes: 67108864}
    sheddable: {maxSaturation: 0.8, maxWait: 0s}
  fairness: roundRobin
  ordering: fcfs
dataPlane: {mode: native, usage: asAsked}
limits: []
";
    assert_eq!(config(&with_spec(bands)), config(MINIMAL));
}

// === What is wrong ===

/// Spec lines (or whole documents) and the violations that they lead to.
#[test]
fn each_fault_is_named_with_its_line_and_field() {
    let rows: &[(String, &[&str])] = &[
        (with_spec("bogus: 1"), &["0.yaml:10: spec.bogus: unknown field \"spec.bogus\""]),
        (
            with_spec("flowControl: {maxwait: 10s}"),
            &[
                "0.yaml:10: spec.flowControl.maxwait: unknown field \"spec.flowControl.maxwait\"; `maxWait` belongs in `bands.critical`, `bands.sheddable` or `bands.standard`",
            ],
        ),
        (
            with_spec("maxWait: 10s"),
            &[
                "0.yaml:10: spec.maxWait: unknown field \"spec.maxWait\"; `maxWait` belongs in `flowControl.bands.critical`, `flowControl.bands.sheddable` or `flowControl.bands.standard`",
            ],
        ),
        (
            with_spec("routeTimeout: 10s"),
            &[
                "0.yaml:10: spec.routeTimeout: unknown field \"spec.routeTimeout\"; `routeTimeout` belongs in `schedulers[]`",
            ],
        ),
        (
            with_spec("streamIdle: 5s"),
            &["0.yaml:10: spec.streamIdle: unknown field \"spec.streamIdle\"; `streamIdle` belongs in `timeouts`"],
        ),
        (
            with_scheduler("weights: {kvcache: 1}"),
            &[
                "0.yaml:10: spec.schedulers[0].weights.kvcache: unknown field \"spec.schedulers[0].weights.kvcache\"; did you mean `kvCache`?",
            ],
        ),
        (with_scheduler("targetPort: 0"), &["0.yaml:10: spec.schedulers[0].targetPort: must be at least 1, not 0"]),
        (
            with_scheduler("targetPort: 65536"),
            &["0.yaml:10: spec.schedulers[0].targetPort: must be at most 65535, not 65536"],
        ),
        (
            with_scheduler("targetPort: '80'"),
            &["0.yaml:10: spec.schedulers[0].targetPort: must be an integer, not \"80\""],
        ),
        (
            with_scheduler("targetPort: 80.5"),
            &["0.yaml:10: spec.schedulers[0].targetPort: must be an integer, not the number 80.5"],
        ),
        (with_scheduler("logLevel: 6"), &["0.yaml:10: spec.schedulers[0].logLevel: must be at most 5, not 6"]),
        (
            with_scheduler("weights: {queue: -1}"),
            &["0.yaml:10: spec.schedulers[0].weights.queue: must be at least 0, not -1"],
        ),
        (
            with_scheduler("routeTimeout: 1.5s"),
            &[
                "0.yaml:10: spec.schedulers[0].routeTimeout: must be a duration like `30s`, `5m` or `200ms` (units h, m, s, ms; `0s` for zero), not \"1.5s\"",
            ],
        ),
        (
            with_scheduler("routeTimeout: 30"),
            &[
                "0.yaml:10: spec.schedulers[0].routeTimeout: must be a duration like `30s`, `5m` or `200ms` (units h, m, s, ms; `0s` for zero), not the integer 30",
            ],
        ),
        (
            with_scheduler("engineType: vLLM"),
            &[
                "0.yaml:10: spec.schedulers[0].engineType: must be one of `vllm`, `sglang`, `tgi`, `trtllm`, `triton`, `llamacpp`, `auto`, `none`, not \"vLLM\"; did you mean `vllm`?",
            ],
        ),
        (
            with_scheduler("appProtocol: grpc"),
            &["0.yaml:10: spec.schedulers[0].appProtocol: must be one of `http`, `kubernetes.io/h2c`, not \"grpc\""],
        ),
        (
            with_scheduler("scheduler: epp\nweights: {lru: 1}"),
            &["0.yaml:11: spec.schedulers[0].weights.lru: weights.lru only with `scheduler: llm-d`"],
        ),
        (
            with_scheduler("weights: {}\nconfigMapRef: {name: a}"),
            &[
                "0.yaml:11: spec.schedulers[0].configMapRef: not enforced yet: this version would ignore it, so it is refused; remove it",
                "0.yaml:11: spec.schedulers[0].configMapRef: weights and configMapRef exclude each other",
            ],
        ),
        (
            with_scheduler("loraAdapters: [llama, a, a]"),
            &["0.yaml:10: spec.schedulers[0].loraAdapters[0]: adapter \"llama\" is called like a model"],
        ),
        (with_scheduler("loraAdapters: ['']"), &["0.yaml:10: spec.schedulers[0].loraAdapters[0]: must not be empty"]),
        (
            MINIMAL.replace("bbr: {enabled: true}", "bbr: {}"),
            &["0.yaml:5: spec.bbr.enabled: required field is missing"],
        ),
        (
            MINIMAL.replace("enabled: true", "enabled: 1"),
            &["0.yaml:5: spec.bbr.enabled: must be true or false, not the integer 1"],
        ),
        (
            MINIMAL.replace("enabled: true", "enabled: 'yes'"),
            &["0.yaml:5: spec.bbr.enabled: must be true or false, not \"yes\""],
        ),
        (
            MINIMAL.replace("enabled: true", "enabled: true, maxRequestBodyBytes: 268435457"),
            &["0.yaml:5: spec.bbr.maxRequestBodyBytes: must be at most 268435456, not 268435457"],
        ),
        (
            MINIMAL.replace("enabled: true", "enabled: true, defaultBackend: {name: lama-0}") + ENDPOINT,
            &["0.yaml:5: spec.bbr.defaultBackend.name: no Endpoint is called \"lama-0\"; did you mean `llama-0`?"],
        ),
        (
            MINIMAL.replace(
                "{matchLabels: {app: llama}}",
                "{matchExpressions: [{key: a, operator: In}, {key: a, operator: Exists, values: [b]}]}",
            ),
            &[
                "0.yaml:9: spec.schedulers[0].modelSelector.matchExpressions[0]: operator In needs `values`",
                "0.yaml:9: spec.schedulers[0].modelSelector.matchExpressions[1]: operator Exists takes no `values`",
            ],
        ),
        (
            MINIMAL.replace("name: llama\n    modelName", "name: Llama\n    modelName"),
            &[
                "0.yaml:7: spec.schedulers[0].name: must be lower-case letters, digits and `-`, beginning and ending with a letter or digit, not \"Llama\"",
            ],
        ),
        (
            MINIMAL.replace("name: chat", "name: 7"),
            &[
                "0.yaml:3: metadata.name: must be lower-case letters, digits, `-` and `.`, each part beginning and ending with a letter or digit, not the integer 7",
            ],
        ),
        (
            with_spec("signals: {scrapeInterval: 2s}"),
            &[
                "0.yaml:10: spec.signals.scrapeInterval: staleAfter (2s) must be longer than scrapeInterval (2s): else no reading ever counts",
            ],
        ),
        (
            with_spec("signals: {scrapeInterval: 1ms}"),
            &["0.yaml:10: spec.signals.scrapeInterval: must be at least 20ms, not 1ms"],
        ),
        (with_spec("timeouts: {connect: 11m}"), &["0.yaml:10: spec.timeouts.connect: must be at most 10m, not 11m"]),
        (
            with_spec("dataPlane: {extraPaths: [/v1/*]}"),
            &[
                "0.yaml:10: spec.dataPlane.extraPaths[0]: must be a path like `/v1/thing`, without query, fragment, spaces, `..` or `*` (paths match whole), not \"/v1/*\"",
            ],
        ),
        (
            with_spec("flowControl: {endpointFull: {kvCache: 0}}"),
            &["0.yaml:10: spec.flowControl.endpointFull.kvCache: must be more than 0, not 0"],
        ),
        (
            with_spec("flowControl: {endpointFull: {kvCache: .nan}}"),
            &["0.yaml:10: spec.flowControl.endpointFull.kvCache: must be a number, not the number NaN"],
        ),
    ];
    for (text, expected) in rows {
        assert_eq!(violations(text), *expected, "{text}");
    }
}

#[test]
fn rules_across_schedulers_have_the_texts_that_operators_know() {
    let second = "  - name: llama\n    modelName: llama\n    modelSelector: {}\n";
    assert_eq!(
        violations(&format!("{}{second}", MINIMAL.replace("true", "false"))),
        [
            "0.yaml:5: spec.bbr.enabled: bbr must be enabled when more than one scheduler is defined",
            "0.yaml:10: spec.schedulers[1].name: name must be unique: spec.schedulers[0] has \"llama\" too",
            "0.yaml:11: spec.schedulers[1].modelName: modelName must be unique: spec.schedulers[0] has \"llama\" too",
        ]
    );
    assert!(load_texts(&[&MINIMAL.replace("true", "false")]).is_ok(), "one scheduler needs no bbr");
    let none = MINIMAL.split("  - name").next().unwrap().replace("schedulers:", "schedulers: []");
    assert_eq!(violations(&none), ["0.yaml:6: spec.schedulers: must have at least 1 items, has 0"]);
    let many: String =
        (0..101).map(|i| format!("  - {{name: m{i}, modelName: m{i}, modelSelector: {{}}}}\n")).collect();
    assert_eq!(
        violations(&none.replace(" []", "\n").replace("\n\n", &format!("\n{many}"))),
        ["0.yaml:6: spec.schedulers: must have at most 100 items, has 101"]
    );
}

#[test]
fn adapters_lead_to_one_base() {
    let adapters = |name: &str, data: &str| {
        format!(
            "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}, labels: {{inference.networking.k8s.io/bbr-managed: 'true'}}}}\ndata: {data}\n"
        )
    };
    let base = format!("{MINIMAL}    loraAdapters: [sql]\n  - {{name: qwen, modelName: qwen, modelSelector: {{}}}}\n");
    let claims = "adapter \"sql\" belongs to base model \"llama\" already";
    for (data, expected) in [
        ("{baseModel: qwen, adapters: '[sql]'}", format!("0.yaml:16: data.adapters[0]: {claims}")),
        ("{baseModel: qwen, adapters: '[llama]'}", "0.yaml:16: data.adapters[0]: adapter \"llama\" is called like a model".into()),
        ("{baseModel: qwem}", "0.yaml:16: data.baseModel: no scheduler has the modelName \"qwem\"; did you mean `qwen`?".into()),
        ("{adapters: '[a]'}", "0.yaml:13: data.baseModel: required field is missing in a ConfigMap of adapters".into()),
        ("{baseModel: qwen, adapters: sql}", "0.yaml:16: data.adapters: must be a YAML list in a text, not a text".into()),
        ("{baseModel: qwen, adapters: [sql]}", "0.yaml:16: data.adapters: must be a text, not a list".into()),
        ("{baseModel: qwen, adapters: '[1]'}", "0.yaml:16: data.adapters[0]: must be an adapter's name: text without control characters, and without spaces at its ends".into()),
    ] {
        assert_eq!(violations(&format!("{base}{}", adapters("a", data))), [expected], "{data}");
    }
    let broken = violations(&format!("{base}{}", adapters("a", "{baseModel: qwen, adapters: '[a'}")));
    assert!(
        broken.len() == 1
            && broken[0].starts_with("0.yaml:16: data.adapters: must be a YAML list in a text: not valid YAML"),
        "{broken:?}"
    );
    let same_base_twice = format!("{base}{}", adapters("a", "{baseModel: llama, adapters: '[sql, b]'}"));
    assert_eq!(config(&same_base_twice).schedulers[0].lora_adapters, ["b", "sql"]);
    let base_only = format!("{base}{}", adapters("a", "{baseModel: llama}"));
    assert_eq!(config(&base_only).schedulers[0].lora_adapters, ["sql"]);
}

#[test]
fn endpoints_are_checked_like_everything_else() {
    for (spec, expected) in [
        ("{}", "0.yaml:14: spec.address: required field is missing"),
        (
            "{address: 'http://a'}",
            "0.yaml:14: spec.address: must be an IP address or a DNS name, without scheme, port or path, not \"http://a\"",
        ),
        ("{address: a, apiKey: {}}", "0.yaml:14: spec.apiKey: must have exactly one of `env`, `file`, has 0"),
        (
            "{address: a, apiKey: {env: A, file: b}}",
            "0.yaml:14: spec.apiKey: must have exactly one of `env`, `file`, has 2",
        ),
        (
            "{address: a, tls: {caFile: a, insecureSkipVerify: true}}",
            "0.yaml:14: spec.tls.caFile: has no effect with `insecureSkipVerify: true`; remove one of them",
        ),
        (
            "{address: a, tls: {insecure: true}}",
            "0.yaml:14: spec.tls.insecure: unknown field \"spec.tls.insecure\"; did you mean `insecureSkipVerify`?",
        ),
    ] {
        assert_eq!(violations(&format!("{MINIMAL}{}", ENDPOINT.replace("{address: 10.0.0.7}", spec))), [expected]);
    }
    assert_eq!(
        violations(&format!("{MINIMAL}{ENDPOINT}{ENDPOINT}")),
        ["0.yaml:18: metadata.name: another Endpoint has this name, in 0.yaml:11"]
    );
}

#[test]
fn documents_that_are_not_ours_are_refused_by_name() {
    let known =
        "known are InferenceGatewayConfig, Endpoint, ConfigMap, Secret, InferenceObjective, InferenceModelRewrite";
    for (document, expected) in [
        ("apiVersion: v1\nkind: Pod\n", format!("0.yaml:12: kind: unknown kind \"Pod\": {known}")),
        (
            "apiVersion: inference-gateway/v1alpha1\nkind: EndPoint\n",
            format!("0.yaml:12: kind: unknown kind \"EndPoint\": {known}; did you mean `Endpoint`?"),
        ),
        (
            "apiVersion: v1\nkind: Endpoint\n",
            "0.yaml:11: apiVersion: must be `inference-gateway/v1alpha1` for kind Endpoint, not \"v1\"".into(),
        ),
        ("apiVersion: v1\n", "0.yaml:11: kind: required field is missing, or no text".into()),
        ("[]\n", "0.yaml:11: a document must be a map with `apiVersion` and `kind`, not a list".into()),
        ("kind: [\n", "0.yaml:12: not valid YAML: while parsing a node, did not find expected node content".into()),
    ] {
        assert_eq!(violations(&format!("{MINIMAL}---\n{document}")), [expected]);
    }
    let none = "no InferenceGatewayConfig: exactly one document of this kind is needed";
    assert_eq!(violations(""), [none]);
    assert_eq!(load(&[]).unwrap_err().to_string(), none);
    let two = violations(&format!("{MINIMAL}---\n{MINIMAL}"));
    assert_eq!(two, ["0.yaml:11: a second InferenceGatewayConfig: exactly one is allowed"]);
}

#[test]
fn h11_a_bad_change_is_refused_and_says_why() {
    for (change, word) in [
        (with_spec("loadBalancer: {}"), "unknown field"),
        (with_scheduler("targetPortNumber: 8000"), "unknown field"),
        (with_scheduler("targetPort: http"), "must be an integer"),
        (String::new(), "no InferenceGatewayConfig"),
        (MINIMAL[..MINIMAL.len() / 2].to_owned(), "spec"),
        (MINIMAL[..MINIMAL.len() - 12].to_owned(), "not valid YAML"),
    ] {
        let found = violations(&change);
        assert!(found.iter().any(|violation| violation.contains(word)), "{found:?}");
    }
}

#[test]
fn a_config_that_cannot_be_read_is_not_also_missing() {
    let misspelt = MINIMAL.replace("InferenceGatewayConfig", "InferenceGateway");
    assert_eq!(violations(&misspelt).len(), 1);
    assert_eq!(violations(&format!("{MINIMAL}: :\n")).len(), 1);
}

#[test]
fn duplicate_keys_are_refused() {
    assert_eq!(
        violations(&with_scheduler("modelName: other")),
        ["0.yaml:10: spec.schedulers[0].modelName: duplicate key, first in line 8"]
    );
}

// === What is not built yet ===

#[test]
fn a_setting_that_would_be_ignored_is_refused() {
    let refused = "not enforced yet: this version would ignore it, so it is refused; remove it";
    for (text, line, path, default) in [
        (with_spec("dataPlane: {mode: envoy}"), 10, "spec.dataPlane.mode", " or leave its default, native"),
        (with_scheduler("configMapRef: {name: a}"), 10, "spec.schedulers[0].configMapRef", ""),
    ] {
        assert_eq!(violations(&text), [format!("0.yaml:{line}: {path}: {refused}{default}")], "{text}");
    }
    assert_eq!(
        violations(&with_spec("flowControl: {bandClaim: {name: tier, values: {gold: critical}}}")),
        ["0.yaml:10: spec.flowControl.bandClaim: needs `spec.auth`: without it no token is read"]
    );
}

#[test]
fn limits_are_kept_as_they_are_written() {
    let limits = "\
limits:
- name: per-team
  key: {header: X-Team}
  models: [llama]
  requestsPerMinute: 600
  tokensPerMinute: 200000
- {name: per-caller, key: {authorization: true}, inputTokensPerMinute: 1, outputTokensPerMinute: 2, concurrentRequests: 3}
dataPlane: {usage: always}";
    let of_pool = "limits: [{name: per-team, key: {header: x-team}, requestsPerMinute: 5}]";
    let text = with_scheduler(of_pool);
    let loaded = config(&format!("{text}{}", with_spec(limits).strip_prefix(MINIMAL).unwrap()));
    let number = std::num::NonZeroU64::new;
    let none = crate::Limit {
        name: "per-team".into(),
        key: crate::LimitKey::Header("x-team".into()),
        models: None,
        requests_per_minute: None,
        tokens_per_minute: None,
        input_tokens_per_minute: None,
        output_tokens_per_minute: None,
        concurrent_requests: None,
    };
    let per_team = crate::Limit {
        models: Some(vec!["llama".into()]),
        requests_per_minute: number(600),
        tokens_per_minute: number(200_000),
        ..none.clone()
    };
    let per_caller = crate::Limit {
        name: "per-caller".into(),
        key: crate::LimitKey::Authorization,
        input_tokens_per_minute: number(1),
        output_tokens_per_minute: number(2),
        concurrent_requests: number(3),
        ..none.clone()
    };
    assert_eq!(loaded.limits, [per_team, per_caller]);
    assert_eq!(loaded.schedulers[0].limits, [crate::Limit { requests_per_minute: number(5), ..none }]);
    assert_eq!(loaded.usage, crate::Usage::Always);
}

#[test]
fn tokens_their_claims_and_the_skew_of_clocks_are_kept() {
    let provider = "provider: {name: a, issuer: https://a, remoteJWKS: {uri: https://a/k}, audiences: [x]}";
    let text = with_spec(&format!(
        "auth: {{jwt: {{{provider}}}}}\nlimits: [{{name: a, key: {{claim: sub}}, requestsPerMinute: 1}}]\n\
         flowControl: {{bandClaim: {{name: tier, values: {{gold: critical}}}}}}"
    ));
    let loaded = config(&text);
    let jwt = loaded.auth.unwrap().jwt.unwrap();
    assert_eq!((jwt.issuer.as_str(), jwt.jwks_uri.as_str()), ("https://a", "https://a/k"));
    assert_eq!((jwt.audiences, jwt.clock_skew), (vec!["x".to_owned()], std::time::Duration::from_secs(60)));
    assert_eq!(loaded.limits[0].key, crate::LimitKey::Claim("sub".into()));
    assert_eq!(loaded.schedulers[0].band_claim.as_ref().unwrap().values["gold"], crate::FlowBand::Critical);
    let exact = with_spec(&format!("auth: {{jwt: {{{provider}, clockSkew: 0s}}}}"));
    assert_eq!(config(&exact).auth.unwrap().jwt.unwrap().clock_skew, std::time::Duration::ZERO);
    let far = with_spec(&format!("auth: {{jwt: {{{provider}, clockSkew: 6m}}}}"));
    assert_eq!(violations(&far), ["0.yaml:10: spec.auth.jwt.clockSkew: must be at most 5m, not 6m"]);
}

#[test]
fn a_limit_for_a_model_that_nobody_serves_is_pointed_at() {
    let text = with_spec("limits: [{name: a, key: {header: x}, models: [llama, lama], requestsPerMinute: 1}]");
    let loaded = load_texts(&[&text]).unwrap();
    let about: Vec<&String> = loaded.notices.iter().filter(|notice| notice.contains("limits")).collect();
    assert_eq!(about, ["0.yaml:10: spec.limits[0].models[1]: \"lama\" is not served here: the limit never counts"]);
}

#[test]
fn who_may_send_requests_and_whom_limits_tell_apart_is_checked() {
    let provider =
        "auth: {jwt: {provider: {name: a, issuer: http://a, remoteJWKS: {uri: https://a/k}, requiredClaims: []}}}\n";
    let limits = "limits:\n- {name: a, key: {header: x, claim: y}}\n- {name: a, key: {authorization: false}, requestsPerMinute: 0}\n";
    let text = with_spec(&format!(
        "{limits}flowControl: {{bandClaim: {{name: a, values: {{}}}}}}\ntls: {{acmArn: a, secretRef: {{name: b}}}}"
    ));
    let found: BTreeSet<String> =
        violations(&text).into_iter().filter(|violation| !violation.contains("not enforced yet")).collect();
    let expected = [
        "0.yaml:11: spec.limits[0]: must have at least one of requestsPerMinute, tokensPerMinute, inputTokensPerMinute, outputTokensPerMinute, concurrentRequests",
        "0.yaml:11: spec.limits[0].key: must have exactly one of `header`, `claim`, `authorization`, has 2",
        "0.yaml:11: spec.limits[0].key.claim: needs `spec.auth`: without it no token is read",
        "0.yaml:12: spec.limits[1].key.authorization: must be true, or not there",
        "0.yaml:12: spec.limits[1].name: name must be unique: spec.limits[0] has \"a\" too",
        "0.yaml:12: spec.limits[1].requestsPerMinute: must be at least 1, not 0",
        "0.yaml:13: spec.flowControl.bandClaim.values: must have at least 1 entries, has 0",
        "0.yaml:13: spec.flowControl.bandClaim: needs `spec.auth`: without it no token is read",
        "0.yaml:14: spec.tls.secretRef: acmArn and secretRef exclude each other",
        "0.yaml:14: spec.tls.secretRef.name: no Secret is called \"b\"",
    ];
    assert_eq!(found, expected.into_iter().map(String::from).collect());
    let found = violations(&with_spec(provider));
    assert!(
        found.iter().any(|violation| violation.contains("issuer: must be an `https://` URL, not \"http://a\"")),
        "{found:?}"
    );
    assert!(
        found.iter().any(|violation| violation.contains("provider: must have at least one of `audiences`")),
        "{found:?}"
    );
    assert_eq!(found.len(), 2);
}

#[test]
fn a_manifest_of_every_field_is_refused_only_for_what_is_not_built() {
    let found = violations(EVERY_FIELD);
    let mut paths: Vec<String> = Vec::new();
    for violation in &found {
        assert!(violation.contains("not enforced yet"), "{violation}");
        paths.push(violation.split(": ").nth(1).unwrap().to_owned());
    }
    let wanted = |path: &str| paths.iter().filter(|found| found.starts_with(path)).count();
    for (path, count) in [("spec.dataPlane.mode", 1), ("spec.schedulers[1].configMapRef", 1)] {
        assert_eq!(wanted(path), count, "{path}: {paths:#?}");
    }
    assert_eq!(found.len(), 2);
}

#[test]
fn the_manifest_of_every_field_leaves_none_out() {
    fn missing(shape: &Shape, at: &[Cursor<'_>], path: &str, out: &mut Vec<String>) {
        for field in shape.fields() {
            let path = format!("{path}.{}", field.name);
            let there: Vec<Cursor<'_>> = at.iter().filter_map(|cursor| cursor.get(&field.name)).collect();
            if there.is_empty() {
                out.push(path.clone());
            }
            if let Shape::List { items, .. } = &field.shape {
                let inner: Vec<Cursor<'_>> = there.iter().flat_map(Cursor::items).collect();
                missing(items, &inner, &path, out);
            } else {
                missing(&field.shape, &there, &path, out);
            }
        }
    }
    let documents = read(&[Source { name: "f".into(), text: EVERY_FIELD.into() }], &mut Findings::default());
    let mut known = Vec::new();
    documents.iter().for_each(|document| classify(&Cursor::root(document), &mut known, &mut Findings::default()));
    let mut out = Vec::new();
    for kind in Kind::ALL {
        let of_kind: Vec<Cursor<'_>> =
            known.iter().filter(|(known, _)| *known == kind).map(|(_, at)| at.clone()).collect();
        missing(&kind.shape(), &of_kind, kind.name(), &mut out);
    }
    // Written once for the shared settings, and told in metadata of the first document.
    out.retain(|path| {
        !path.contains("schedulers.flowControl.")
            && !path.contains("schedulers.limits.")
            && !path.contains(".metadata.")
    });
    assert_eq!(out, Vec::<String>::new());
}

// === Properties ===

/// Faults that touch nothing of each other: what to put for a marker line, and the field that is named.
const FAULTS: [(&str, &str, &str); 12] = [
    ("  bbr: {enabled: true}", "  bbr: {enabled: 3}", "spec.bbr.enabled"),
    ("    targetPort: 8000", "    targetPort: 0", "spec.schedulers[0].targetPort"),
    ("    engineType: vllm", "    engineType: vlm", "spec.schedulers[0].engineType"),
    ("    routeTimeout: 1s", "    routeTimeout: 1 s", "spec.schedulers[0].routeTimeout"),
    ("    weights: {queue: 1}", "    weights: {queu: 1}", "spec.schedulers[0].weights.queu"),
    ("    loraAdapters: [a]", "    loraAdapters: [llama]", "spec.schedulers[0].loraAdapters[0]"),
    ("    logLevel: 1", "    logLevel: [1]", "spec.schedulers[0].logLevel"),
    ("    modelName: qwen", "    modelName: llama", "spec.schedulers[1].modelName"),
    ("  dataPlane: {mode: native}", "  dataPlane: {mode: envoy}", "spec.dataPlane.mode"),
    ("  timeouts: {connect: 1s}", "  timeouts: {connect: 1s, connect: 2s}", "spec.timeouts.connect"),
    ("  signals: {staleAfter: 2s}", "  signals: {staleAfter: 100ms}", "spec.signals.staleAfter"),
    ("  address: 10.0.0.7", "  adress: 10.0.0.7", "spec.adress"),
];

const FAULTLESS: &str = "\
apiVersion: inference.sagemaker.aws.amazon.com/v1alpha1
kind: InferenceGatewayConfig
metadata: {name: chat}
spec:
  bbr: {enabled: true}
  schedulers:
  - name: llama
    modelName: llama
    modelSelector: {matchLabels: {app: llama}}
    targetPort: 8000
    engineType: vllm
    routeTimeout: 1s
    weights: {queue: 1}
    loraAdapters: [a]
    logLevel: 1
  - name: qwen
    modelSelector: {}
    modelName: qwen
  dataPlane: {mode: native}
  timeouts: {connect: 1s}
  signals: {staleAfter: 2s}
---
apiVersion: inference-gateway/v1alpha1
kind: Endpoint
metadata: {name: e, labels: {app: llama}}
spec:
  address: 10.0.0.7
  port: 1
";

proptest! {
    #[test]
    fn all_faults_are_found_at_once(chosen in proptest::collection::vec(any::<bool>(), FAULTS.len())) {
        let mut text = FAULTLESS.to_owned();
        let mut expected: Vec<(String, Option<u32>)> = Vec::new();
        for ((right, wrong, path), _) in FAULTS.iter().zip(&chosen).filter(|(_, chosen)| **chosen) {
            let line = 1 + FAULTLESS.lines().position(|line| line == *right).unwrap();
            text = text.replace(right, wrong);
            expected.push(((*path).to_owned(), u32::try_from(line).ok()));
            if *path == "spec.adress" {
                // A misspelt required field is also missing.
                expected.push(("spec.address".into(), u32::try_from(line - 1).ok()));
            }
        }
        let mut found: Vec<(String, Option<u32>)> = match load_texts(&[&text]) {
            Ok(_) => Vec::new(),
            Err(violations) => violations.0.into_iter().map(|violation| (violation.path, violation.line)).collect(),
        };
        expected.sort();
        found.sort();
        prop_assert_eq!(found, expected);
    }

    #[test]
    fn no_text_panics(text in any::<String>()) {
        let _ = load_texts(&[&text]);
    }

    /// Pieces of YAML and of the contract, thrown together.
    #[test]
    fn no_mutation_panics(
        source in prop_oneof![Just(OPERATOR), Just(EVERY_FIELD), Just(FAULTLESS)],
        cuts in proptest::collection::vec((any::<prop::sample::Index>(), 0..40_usize, prop::sample::select(vec![
            "", "\n", "  ", "- ", ": ", "{", "}", "[", "]", ",", "&a ", "*a", "<<: ", "!!str ", "!x ", "|\n", "'", "\"", "#", "---\n",
            "null", "0", "-1", "1e400", ".inf", "99999999999999999999999999999999999999999999", "yes", "30s", "64Mi", "\t", "\u{0}", "é", "?",
        ])), 1..6),
    ) {
        let mut text: Vec<char> = source.chars().collect();
        for (at, length, insert) in cuts {
            let start = at.index(text.len() + 1);
            let end = (start + length).min(text.len());
            text.splice(start..end, insert.chars());
        }
        let text: String = text.into_iter().collect();
        match load_texts(&[&text]) {
            Ok(loaded) => prop_assert!(!loaded.config.schedulers.is_empty()),
            Err(violations) => prop_assert!(!violations.0.is_empty() && violations.0.iter().all(|violation| !violation.message.contains("a fault of the gateway"))),
        }
    }
}

#[test]
fn each_violation_is_one_short_line() {
    let (long, key) = ("x\\n".repeat(10_000), "y\\n".repeat(300));
    let text = MINIMAL.replace(
        "name: llama\n",
        &format!("name: \"{long}\"\n    \"{key}\": \"{long}\"\n    engineType: \"{long}\"\n"),
    );
    let twice = text.replace("modelName: llama", &format!("modelName: \"{long}\""));
    let second = format!("{twice}  - {{name: b, modelSelector: {{}}, modelName: \"{long}\"}}\n");
    let found = violations(&second);
    assert_eq!(found.len(), 6, "{found:?}");
    for violation in found {
        assert!(!violation.contains('\n') && violation.len() < 700, "{violation}");
    }
}

#[test]
fn violations_are_bounded() {
    let text = with_spec(&(0..3_000).map(|i| format!("x{i}: 1\n")).collect::<String>());
    let found = load_texts(&[&text]).unwrap_err().0;
    assert_eq!(found.len(), 1_001);
    assert_eq!(found.last().unwrap().to_string(), "2000 more violations are not shown");
}

#[test]
fn ten_thousand_endpoints_load() {
    let endpoints: String = (1..10_000).map(|i| ENDPOINT.replace("llama-0", &format!("llama-{i}"))).collect();
    assert_eq!(config(&format!("{MINIMAL}{endpoints}")).endpoints.len(), 9_999);
}
