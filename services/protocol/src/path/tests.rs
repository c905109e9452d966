use super::*;

fn post(path: &str) -> Result<Api, PathError> {
    Api::classify(&Method::POST, path, &[])
}

#[test]
fn every_row_is_reached_by_its_method_alone() {
    for (path, methods, api) in PATHS {
        for method in [Method::GET, Method::HEAD, Method::POST, Method::PUT, Method::DELETE, Method::OPTIONS] {
            let want =
                if methods.allows(&method) { Ok(*api) } else { Err(PathError::Method { allowed: methods.allow() }) };
            assert_eq!(Api::classify(&method, path, &[]), want, "{method} {path}");
        }
    }
}

#[test]
fn engine_control_paths_are_unknown() {
    for path in [
        "/sleep",
        "/wake_up",
        "/pause",
        "/resume",
        "/v1/load_lora_adapter",
        "/v1/unload_lora_adapter",
        "/load_lora_adapter",
        "/update_weights_from_disk",
        "/flush_cache",
        "/abort_request",
        "/reset_prefix_cache",
        "/collective_rpc",
        "/scale_elastic_ep",
        "/server_info",
        "/metrics",
        "/health",
        "/",
        "",
        "*",
    ] {
        assert_eq!(post(path), Err(PathError::Unknown), "{path}");
        assert_eq!(Api::classify(&Method::GET, path, &[]), Err(PathError::Unknown), "{path}");
    }
}

#[test]
fn no_spelling_reaches_what_is_not_listed() {
    for path in [
        "/v1/chat/completions/",
        "//v1/chat/completions",
        "/v1//chat/completions",
        "/v1/chat/completions/../../../sleep",
        "/v1/chat/%63ompletions",
        "/v1/chat%2Fcompletions",
        "/V1/chat/completions",
        "/v1/chat/completions;x=1",
        "/v1/chat/completions\\",
        "/v1/./chat/completions",
        "/v1/responses/",
        "/v1/responses/..",
        "/v1/responses/../load_lora_adapter",
        "/v1/responses/%2e%2e/load_lora_adapter",
        "/v1/responses/resp_1/../../sleep",
        "/v1/responses/resp_1/",
        "/v1/responses/resp_1/cancel/",
        "/v1/responses//cancel",
        "/v1/responses/a.b",
        "/v1/responses/a;b",
        "/v1/models/",
    ] {
        assert_eq!(post(path), Err(PathError::Unknown), "{path}");
        assert_eq!(Api::classify(&Method::GET, path, &[]), Err(PathError::Unknown), "{path}");
    }
    let long = format!("/v1/responses/{}", "a".repeat(RESPONSE_ID_BYTES_MAX + 1));
    assert_eq!(Api::classify(&Method::GET, &long, &[]), Err(PathError::Unknown));
}

#[test]
fn stored_responses_and_models_have_identifiers() {
    let get = |path| Api::classify(&Method::GET, path, &[]);
    assert_eq!(get("/v1/responses/resp_0f-A"), Ok(Api::ResponseById));
    assert_eq!(get("/v1/responses/resp_1/input_items"), Ok(Api::ResponseById));
    assert_eq!(get("/v1/responses/resp_1/cancel"), Err(PathError::Method { allowed: "POST" }));
    assert_eq!(post("/v1/responses/resp_1/cancel"), Ok(Api::ResponseById));
    assert_eq!(get("/v1/models/org/name"), Ok(Api::Model));
    assert_eq!(get("/v1/models/org%2Fname%3A7b"), Ok(Api::Model));
    assert_eq!(post("/v1/models/x"), Err(PathError::Method { allowed: "GET, HEAD" }));
}

#[test]
fn extra_paths_are_compared_byte_for_byte_and_take_any_method() {
    let extra = ["/v1/moderations".to_owned(), "/v1/chat/completions".to_owned()];
    for method in [Method::GET, Method::POST, Method::DELETE] {
        assert_eq!(Api::classify(&method, "/v1/moderations", &extra), Ok(Api::Extra));
    }
    for path in ["/v1/moderations/", "/v1/%6doderations", "/v1/moderations/x", "//v1/moderations"] {
        assert_eq!(Api::classify(&Method::POST, path, &extra), Err(PathError::Unknown), "{path}");
    }
    // The table goes first: an addition does not take a path's meaning away.
    assert_eq!(Api::classify(&Method::POST, "/v1/chat/completions", &extra), Ok(Api::ChatCompletions));
    assert_eq!(Api::classify(&Method::DELETE, "/v1/chat/completions", &extra), Ok(Api::Extra));
}

#[test]
fn a17_every_generating_path_has_the_same_rule_for_its_model() {
    for path in ["/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/responses", "/v1/embeddings"] {
        let api = post(path).unwrap();
        assert_eq!((api.model_in(), api.body()), (ModelIn::Body, BodyShape::Json), "{path}");
    }
}
