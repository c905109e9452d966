//! Which requests go where, by the contract's *Routing*, and what those that go nowhere are told.

use harness::{Config, Connection, Gateway, Peer, Scheduler, post, request, soon};
use serde_json::{Value, json};

use crate::two_models::{CHAT, TwoModels};

const PATH: &str = "/v1/chat/completions";
/// To the letter, by the contract.
const NO_MATCHING_MODEL: &str =
    "no matching model: set the model in the request body or the x-gateway-model-name header";
const ADVICE: &str = "set the model in the request body or the x-gateway-model-name header";

#[test]
fn an_unknown_model_is_404_with_the_text_that_operators_know() {
    let scene = TwoModels::start();
    // A header of the client's cannot stand in for the body.
    let steering = [("x-gateway-model-name", "m1"), ("x-gateway-base-model-name", "m1")];
    for (path, headers) in [(PATH, &[][..]), (PATH, &steering[..])] {
        let answer = request(scene.gateway.data, "POST", path, headers, r#"{"model":"bogus","messages":[]}"#);
        scene.refused(&answer, 404, "model_not_found", Some("model"));
        let object = json!({"error": {"message": NO_MATCHING_MODEL, "type": "not_found_error", "param": "model", "code": "model_not_found"}});
        assert_eq!(answer.json(), object);
    }
    let labels = [r#"pool="""#, r#"model="other""#, r#"outcome="model_not_found""#];
    assert_eq!(scene.gateway.admin.metric("inference_gateway_requests_total", &labels), Some(2.0));
}

#[test]
fn a_missing_empty_or_odd_model_is_400_that_gives_the_same_advice() {
    let scene = TwoModels::start();
    for model in [
        r#""a":1"#,
        r#""model":"""#,
        r#""model":7"#,
        r#""model":null"#,
        r#""model":["m1"]"#,
        r#""model":{"m1":1}"#,
        r#""model":true"#,
        r#""Model":"m1""#,
    ] {
        let answer = post(scene.gateway.data, PATH, format!(r#"{{{model},"messages":[]}}"#));
        scene.refused(&answer, 400, "model_required", Some("model"));
        assert!(answer.text().contains(ADVICE), "{}", answer.text());
    }
}

#[test]
fn a17_every_path_has_the_same_rule() {
    let scene = TwoModels::start();
    let row = |path: &str| -> Vec<(u16, usize, usize)> {
        let bodies = [
            r#"{"model":"m1"}"#,
            r#"{"model":"m2"}"#,
            r#"{"model":"bogus"}"#,
            r#"{"model":""}"#,
            "{}",
            r#"{"model":"m1 "}"#,
            r#"{"model":"M1"}"#,
        ];
        let ask = |body: &str| {
            scene.m1.forget();
            scene.m2.forget();
            let status = post(scene.gateway.data, path, body).status;
            (status, scene.m1.seen().len(), scene.m2.seen().len())
        };
        bodies.into_iter().map(ask).collect()
    };
    let wanted = [(200, 1, 0), (200, 0, 1), (404, 0, 0), (400, 0, 0), (400, 0, 0), (404, 0, 0), (404, 0, 0)];
    for path in [
        PATH,
        "/v1/completions",
        "/v1/messages",
        "/v1/responses",
        "/v1/embeddings",
        "/v1/messages/count_tokens",
        "/v1/rerank",
        "/v1/score",
        "/v1/images/generations",
        "/v1/audio/speech",
        "/pooling",
        "/classify",
    ] {
        assert_eq!(row(path), wanted, "{path}");
    }
}

#[test]
fn a07_paths_without_a_typed_prompt_are_served_like_any_other() {
    let scene = TwoModels::with(|config| config.line("dataPlane: {extraPaths: [/v9/unheard/of]}"));
    let chat = r#"{"model":"m1","messages":[{"role":"user","content":"hi"}]}"#;
    for path in [
        "/v1/messages/count_tokens",
        "/v1/embeddings",
        "/tokenize",
        "/v1/rerank",
        "/v1/responses",
        "/v9/unheard/of",
        "/detokenize",
        "/generate",
        "/invocations",
        "/inference/v1/generate",
    ] {
        for body in [chat, r#"{"model":"m1"}"#] {
            let answer = post(scene.gateway.data, path, body);
            assert_eq!(answer.status, 200, "{path} {body}: {}", answer.text());
        }
    }
    assert_eq!(scene.m1.seen().len(), 20);
}

#[test]
fn paths_whose_body_need_not_name_a_model_go_to_the_only_pool_or_are_404() {
    let scene = TwoModels::start();
    for path in ["/tokenize", "/detokenize", "/generate", "/invocations"] {
        let answer = post(scene.gateway.data, path, r#"{"inputs":"x"}"#);
        scene.refused(&answer, 404, "model_not_found", Some("model"));
        assert!(answer.text().contains("more than one pool"), "{}", answer.text());
    }
    let stored = request(scene.gateway.data, "GET", "/v1/responses/resp_1", &[], "");
    scene.refused(&stored, 404, "model_not_found", Some("model"));
    let peer = Peer::plain();
    let gateway = Gateway::start(&Config::plain("m1", [peer.address]));
    assert_eq!(post(gateway.data, "/generate", r#"{"inputs":"x"}"#).status, 200);
    assert_eq!(request(gateway.data, "POST", "/v1/responses/resp_1/cancel", &[], "").status, 200);
    request(gateway.data, "GET", "/v1/responses/resp_1?include=x", &[], "");
    let lines: Vec<_> = peer.seen().into_iter().map(|seen| seen.line).collect();
    assert_eq!(lines, ["POST /generate", "POST /v1/responses/resp_1/cancel", "GET /v1/responses/resp_1?include=x"]);
    assert_eq!(peer.seen()[0].header("x-gateway-model-name"), None, "no model was read");
}

#[test]
fn one_scheduler_without_body_based_routing_takes_every_model_and_sets_no_header() {
    let peer = Peer::plain();
    let gateway =
        Gateway::start(&Config::plain("m1", [peer.address]).bbr("{enabled: false, maxRequestBodyBytes: 1000}"));
    let bodies = [CHAT, r#"{"model":"bogus"}"#, r#"{"model":""}"#, r#"{"model":7}"#, "{}"];
    for body in bodies {
        assert_eq!(post(gateway.data, PATH, body).status, 200, "{body}");
    }
    let seen = peer.seen();
    assert_eq!(seen.iter().map(|seen| &seen.body[..]).collect::<Vec<_>>(), bodies.map(str::as_bytes));
    let is_model_header = |name: &str| name.starts_with("x-gateway-");
    assert!(!seen.iter().any(|seen| seen.headers.iter().any(|(name, _)| is_model_header(name))), "{seen:?}");
    // The body is still read: limits and ambiguity count.
    assert_eq!(post(gateway.data, PATH, r#"{"model":"m1","model":"m2"}"#).code(), "invalid_request");
    assert_eq!(post(gateway.data, PATH, "{").code(), "invalid_request");
    assert_eq!(post(gateway.data, PATH, vec![b' '; 1001]).code(), "body_too_large");
    assert_eq!(peer.seen().len(), 5);
}

#[test]
fn the_default_backend_takes_what_would_have_been_a_404_and_no_more() {
    let other = Peer::plain();
    let document = format!(
        "apiVersion: inference-gateway/v1alpha1\nkind: Endpoint\nmetadata: {{name: other}}\nspec: {{address: {}}}",
        other.address.ip()
    );
    let backend = format!("{{enabled: true, defaultBackend: {{name: other, port: {}}}}}", other.address.port());
    let scene = TwoModels::with(|config| config.bbr(&backend).document(&document));
    soon("the default backend is known", || {
        scene.gateway.admin.pool("default-backend")["endpoints"][0]["state"] == "ready"
    });
    assert_eq!(post(scene.gateway.data, PATH, r#"{"model":"bogus"}"#).status, 200);
    assert_eq!(post(scene.gateway.data, "/generate", r#"{"inputs":"x"}"#).status, 200, "a path that names no model");
    let seen = other.seen();
    assert_eq!(seen[0].header("x-gateway-model-name"), Some("bogus"));
    assert_eq!(seen[0].header("x-gateway-base-model-name"), Some("bogus"));
    assert_eq!(seen[1].header("x-gateway-model-name"), None);
    assert!(scene.untouched());
    // A missing model is a mistake, and a path that is not served is not served by anybody.
    scene.refused(&post(scene.gateway.data, PATH, "{}"), 400, "model_required", Some("model"));
    scene.refused(&post(scene.gateway.data, "/sleep", CHAT), 404, "path_not_found", None);
    assert_eq!(post(scene.gateway.data, PATH, CHAT).status, 200);
    assert_eq!((scene.m1.seen().len(), other.seen().len()), (1, 2), "what has a pool goes there");
}

#[test]
fn only_inference_paths_are_forwarded_and_no_trick_reaches_another() {
    let scene = TwoModels::with(|config| config.line("dataPlane: {extraPaths: [/custom/run]}"));
    let forbidden = [
        "/sleep",
        "/wake_up",
        "/pause",
        "/resume",
        "/v1/load_lora_adapter",
        "/v1/unload_lora_adapter",
        "/update_weights_from_disk",
        "/flush_cache",
        "/metrics",
        "/health",
        "/docs",
        "/server_info",
        "/get_server_info",
        "/shutdown",
        "/collective_rpc",
        "/",
        "/v1",
        "/v1/",
        // Other spellings of a forbidden path, and of a served one that an endpoint could resolve to a forbidden one.
        "/v1/chat/completions/../../../sleep",
        "/v1/chat/completions/%2e%2e/%2e%2e/%2e%2e/sleep",
        "/v1/responses/../../sleep",
        "/v1/responses/%2e%2e/%2e%2e/sleep",
        "/v1/responses/..",
        "/v1/responses/.",
        "/v1/responses/a%2f..%2f..%2fsleep",
        "//sleep",
        "/v1//chat/completions",
        "//v1/chat/completions",
        "/v1/./chat/completions",
        "/V1/chat/completions",
        "/v1/chat/Completions",
        "/v1/chat/completions/",
        "/v1/chat%2fcompletions",
        "/%76%31/chat/completions",
        "/v1/chat/completions;x",
        "/v1/chat/completions%00",
        "/v1/chat/completions%20",
        "/custom/run/",
        "/custom/run/../../sleep",
        "/custom",
        "/Custom/run",
        "\\sleep",
        "/v1/models/../../sleep",
        "http://m1/sleep",
        "/v1/responses/resp_1/../../../sleep",
        "/v1/responses/resp_1/cancel/",
        "/v1/responses/resp_1/delete",
    ];
    // With an only pool, what names no model has somewhere to go, too.
    let only = Peer::plain();
    let one_pool = Gateway::start(&Config::plain("m1", [only.address]));
    for (path, gateway) in forbidden.into_iter().flat_map(|path| [(path, &scene.gateway), (path, &one_pool)]) {
        for method in ["POST", "GET"] {
            let answer = request(gateway.data, method, path, &[("content-type", "application/json")], CHAT);
            // Our own list answers below its path, and so knows no such model.
            let known = ["path_not_found", "model_not_found", "invalid_request"].contains(&answer.code().as_str());
            assert!(
                matches!(answer.status, 400 | 404) && known,
                "{method} {path}: {} {}",
                answer.status,
                answer.text()
            );
        }
        assert!(scene.untouched() && only.seen().is_empty(), "{path}: {:?} {:?}", scene.m1.seen(), only.seen());
    }
    let refused = post(scene.gateway.data, "/sleep", CHAT);
    scene.refused(&refused, 404, "path_not_found", None);
    for (method, path, allow) in [
        ("GET", PATH, "POST"),
        ("DELETE", PATH, "POST"),
        ("POST", "/v1/models", "GET, HEAD"),
        ("DELETE", "/v1/models/m1", "GET, HEAD"),
        ("OPTIONS", PATH, "POST"),
        ("PUT", "/v1/responses/r1", "GET, HEAD"),
    ] {
        let answer = request(scene.gateway.data, method, path, &[], "");
        scene.refused(&answer, 404, "path_not_found", None);
        assert_eq!(answer.header("allow"), Some(allow), "{method} {path}");
    }
    for method in ["POST", "PUT", "DELETE"] {
        let answer = request(scene.gateway.data, method, "/custom/run?a=%2e%2e", &[], r#"{"model":"m1"}"#);
        assert_eq!(answer.status, 200, "{method}");
    }
    let absolute = request(scene.gateway.data, "POST", "http://elsewhere/v1/chat/completions?x=1", &[], CHAT);
    assert_eq!(absolute.status, 200, "the absolute form is the same request");
    let lines: Vec<_> = scene.m1.seen().into_iter().map(|seen| seen.line).collect();
    let custom = ["POST", "PUT", "DELETE"].map(|method| format!("{method} /custom/run?a=%2e%2e"));
    assert_eq!(lines[..3], custom);
    assert_eq!(lines[3], "POST /v1/chat/completions?x=1", "and goes on in origin form");
}

#[test]
fn every_inference_path_of_the_contract_is_forwarded_as_it_came() {
    let scene = TwoModels::start();
    let paths = [
        "/v1/chat/completions",
        "/v1/completions",
        "/v1/responses",
        "/v1/embeddings",
        "/pooling",
        "/classify",
        "/rerank",
        "/v1/rerank",
        "/v2/rerank",
        "/score",
        "/v1/score",
        "/tokenize",
        "/detokenize",
        "/v1/images/generations",
        "/v1/audio/speech",
        "/v1/messages",
        "/v1/messages/count_tokens",
        "/generate",
        "/generate_stream",
        "/inference/v1/generate",
        "/invocations",
    ];
    for path in paths {
        let line = format!("{path}?b=2&a=%20x");
        assert_eq!(post(scene.gateway.data, &line, r#"{"model":"m2"}"#).status, 200, "{path}");
    }
    let lines: Vec<_> = scene.m2.seen().into_iter().map(|seen| seen.line).collect();
    assert_eq!(lines, paths.map(|path| format!("POST {path}?b=2&a=%20x")));
}

#[test]
fn errors_on_anthropics_paths_have_anthropics_shape() {
    let scene = TwoModels::start();
    for (path, body, status, kind, code) in [
        ("/v1/messages", r#"{"model":"bogus"}"#, 404, "not_found_error", "model_not_found"),
        ("/v1/messages/count_tokens", r#"{"model":"bogus"}"#, 404, "not_found_error", "model_not_found"),
        ("/v1/messages", "{", 400, "invalid_request_error", "invalid_request"),
        ("/v1/messages", "{}", 400, "invalid_request_error", "model_required"),
    ] {
        let answer = post(scene.gateway.data, path, body);
        let object = answer.json();
        assert_eq!(
            (answer.status, &object["type"], &object["error"]["type"]),
            (status, &json!("error"), &json!(kind)),
            "{object}"
        );
        assert_eq!(scene.gateway.request(answer.header("x-request-id").unwrap())["outcome"], code);
    }
    assert!(scene.untouched());
}

fn ids(list: &Value) -> Vec<String> {
    let cards = list["data"].as_array().expect("a list");
    cards.iter().map(|card| card["id"].as_str().expect("an id").to_owned()).collect()
}

#[test]
fn a12_ids_with_slashes_colons_and_escapes_are_listed_fetched_and_routed() {
    let peers = [Peer::plain(), Peer::plain(), Peer::plain()];
    let names = ["org/name", "org/name:7b", "/mnt/models/x"];
    let pools =
        names.iter().zip(&peers).map(|(name, peer)| Scheduler::new(name, [peer.address]).line("engineType: none"));
    let mut config = Config::new(pools);
    config.schedulers[0] = config.schedulers[0].clone().line("loraAdapters: [team/sql]");
    let gateway = Gateway::start(&config);
    let get = |path: &str| request(gateway.data, "GET", path, &[], "");
    let list = get("/v1/models");
    assert_eq!((list.status, list.json()["object"].as_str()), (200, Some("list")));
    let mut listed = ids(&list.json());
    listed.sort();
    assert_eq!(listed, ["/mnt/models/x", "org/name", "org/name:7b", "team/sql"]);
    for (path, id) in [
        ("/v1/models/org/name", "org/name"),
        ("/v1/models/org%2Fname", "org/name"),
        ("/v1/models/org%2fname%3A7b", "org/name:7b"),
        ("/v1/models/org/name:7b", "org/name:7b"),
        ("/v1/models//mnt/models/x", "/mnt/models/x"),
        ("/v1/models/%2Fmnt%2Fmodels%2Fx", "/mnt/models/x"),
        ("/v1/models/team/sql", "team/sql"),
    ] {
        let answer = get(path);
        assert_eq!((answer.status, answer.json()["id"].as_str()), (200, Some(id)), "{path}: {}", answer.text());
    }
    assert_eq!(get("/v1/models/team/sql").json()["parent"], "org/name");
    for path in [
        "/v1/models/org%252Fname",
        "/v1/models/org",
        "/v1/models/org%2",
        "/v1/models/%ff",
        "/v1/models/ORG/name",
        "/v1/models/org/name/",
    ] {
        let answer = get(path);
        assert_eq!((answer.status, answer.code().as_str()), (404, "model_not_found"), "{path}: {}", answer.text());
    }
    for (index, name) in names.iter().enumerate() {
        assert_eq!(post(gateway.data, PATH, format!(r#"{{"model":"{name}"}}"#)).status, 200, "{name}");
        let seen = peers[index].seen();
        assert_eq!((seen.len(), seen[0].header("x-gateway-model-name")), (1, Some(*name)));
    }
    assert_eq!(post(gateway.data, PATH, r#"{"model":"org\/name:7b"}"#).status, 200, "an escape of JSON names the same");
    assert_eq!(peers[1].seen().len(), 2);
    let adapter = post(gateway.data, PATH, r#"{"model":"team/sql"}"#);
    assert_eq!(adapter.status, 200);
    let seen = &peers[0].seen()[1];
    assert_eq!(
        (seen.header("x-gateway-model-name"), seen.header("x-gateway-base-model-name")),
        (Some("team/sql"), Some("org/name"))
    );
    let head = request(gateway.data, "HEAD", "/v1/models", &[], "");
    assert_eq!((head.status, head.body.len()), (200, 0));
}

#[test]
fn the_list_holds_models_of_pools_with_a_usable_endpoint_alone() {
    let (up, down) = (Peer::plain(), Peer::plain());
    let pools = [("up", &up), ("down", &down)]
        .map(|(name, peer)| Scheduler::new(name, [peer.address]).line("engineType: none"));
    let config = Config::new(pools);
    let gateway = Gateway::start(&config);
    let list = || ids(&request(gateway.data, "GET", "/v1/models", &[], "").json());
    soon("both are listed", || list() == ["down", "up"]);
    drop(down);
    soon("the one without a usable endpoint is not", || list() == ["up"]);
    let gone = request(gateway.data, "GET", "/v1/models/down", &[], "");
    assert_eq!((gone.status, gone.code().as_str()), (404, "model_not_found"));
    drop(up);
    soon("the list is empty, not an error", || list().is_empty());
    let refused = post(gateway.data, PATH, r#"{"model":"up"}"#);
    assert_eq!(refused.status, 503, "a known model without an endpoint is not unknown: {}", refused.text());
    assert!(["no_endpoint", "endpoint_unreachable"].contains(&refused.code().as_str()), "{}", refused.text());
    assert!(refused.header("retry-after").is_some_and(|after| after.parse::<u32>().unwrap() >= 1));
    assert_eq!(refused.json()["error"]["type"], "service_unavailable_error");
}

#[test]
fn health_is_answered_on_the_data_port_and_not_counted() {
    let scene = TwoModels::start();
    for path in ["/healthz", "/readyz"] {
        let answer = request(scene.gateway.data, "GET", path, &[], "");
        assert_eq!(answer.status, 200, "{path}");
        assert!(answer.header("content-type").unwrap().starts_with("text/plain"));
    }
    assert_eq!(
        scene.gateway.admin.metric("inference_gateway_requests_total", &[r#"outcome="ok""#]).unwrap_or(0.0),
        0.0
    );
    assert!(scene.gateway.requests().is_empty());
    assert!(scene.untouched());
}

#[test]
fn c10_an_upgrade_or_a_tunnel_is_refused_at_once() {
    let scene = TwoModels::start();
    let upgrade = "connection: Upgrade\r\nupgrade: websocket\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\nsec-websocket-version: 13\r\n";
    let heads = [
        format!("GET /v1/realtime?model=m1 HTTP/1.1\r\nhost: g\r\n{upgrade}\r\n"),
        "CONNECT m1:8000 HTTP/1.1\r\nhost: m1:8000\r\n\r\n".into(),
        "GET /v1/chat/completions HTTP/1.1\r\nhost: g\r\nconnection: upgrade\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABk\r\n\r\n".into(),
    ];
    for head in heads {
        let mut connection = Connection::open(scene.gateway.data);
        connection.send(&head).unwrap();
        let method = head.split(' ').next().unwrap();
        let answer = connection.answer_to(method).unwrap_or_else(|error| panic!("{error}: {head}"));
        scene.refused(&answer, 404, "path_not_found", None);
    }
    // On a path that is served the offer is ignored, as HTTP allows.
    let mut connection = Connection::open(scene.gateway.data);
    connection.send(format!("POST {PATH} HTTP/1.1\r\nhost: g\r\n{upgrade}content-length: 58\r\n\r\n{CHAT}")).unwrap();
    assert_eq!(connection.answer().unwrap().status, 200);
    let seen = &scene.m1.seen()[0];
    assert_eq!((seen.header("upgrade"), seen.header("connection")), (None, None));
    // An endpoint that switches all the same has broken the protocol.
    scene.m1.follow(|exchange| {
        if exchange.is_look() {
            return exchange.answer_plainly();
        }
        exchange.send("HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n");
        exchange.wait_for_close(std::time::Duration::from_secs(5));
        harness::Next::Close
    });
    let answer = post(scene.gateway.data, PATH, CHAT);
    assert_eq!((answer.status, answer.code().as_str()), (502, "endpoint_broke"), "{}", answer.text());
}

#[test]
fn adapters_of_the_scheduler_and_of_config_maps_go_to_their_base_model() {
    let map = |name: &str, managed: &str, base: &str, adapters: &str| {
        format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\n  labels: {{inference.networking.k8s.io/bbr-managed: \"{managed}\"}}\n\
             data:\n  baseModel: {base}\n  adapters: |\n{adapters}"
        )
    };
    let scene = TwoModels::with(|mut config| {
        config.schedulers[0] = config.schedulers[0].clone().line("loraAdapters: [sql]");
        config
            .document(&map("first", "true", "m1", "    - tweet\n    - poem\n"))
            .document(&map("second", "true", "m1", "    - haiku\n"))
            .document(&map("third", "true", "m2", "    - legal\n"))
            .document(&map("foreign", "false", "m1", "    - nobody\n"))
    });
    for (model, base) in [("sql", "m1"), ("tweet", "m1"), ("poem", "m1"), ("haiku", "m1"), ("legal", "m2")] {
        let (peer, other) = if base == "m1" { (&scene.m1, &scene.m2) } else { (&scene.m2, &scene.m1) };
        peer.forget();
        other.forget();
        let body = format!(r#"{{"model":"{model}","messages":[]}}"#);
        let answer = post(scene.gateway.data, PATH, &body);
        assert_eq!((answer.status, other.seen().len()), (200, 0), "{model}: {}", answer.text());
        let [seen] = &peer.seen()[..] else { panic!("{model}") };
        assert_eq!(seen.header("x-gateway-model-name"), Some(model));
        assert_eq!(seen.header("x-gateway-base-model-name"), Some(base));
        assert_eq!(seen.body, body.as_bytes(), "the engine is asked for the adapter");
        assert_eq!(scene.gateway.request(answer.header("x-request-id").unwrap())["modelName"], model);
    }
    scene.m2.forget();
    scene.m1.forget();
    let nobody = post(scene.gateway.data, PATH, r#"{"model":"nobody","messages":[]}"#);
    scene.refused(&nobody, 404, "model_not_found", Some("model"));
}
