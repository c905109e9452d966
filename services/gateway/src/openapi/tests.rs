use std::collections::BTreeSet;

use http::Method as HttpVerb;
use protocol::{Api, Reason};
use serde_json::Value;

use super::{
    document,
    routes::{Method, ROUTES},
    yaml,
};

fn json() -> Value {
    serde_json::to_value(document()).unwrap()
}

/// Every value in a document, with the name it stands under.
fn walk<'a>(value: &'a Value, visit: &mut impl FnMut(&str, &'a Value)) {
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                visit(name, member);
                walk(member, visit);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| walk(item, visit)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn operations(document: &Value) -> Vec<(String, &Value)> {
    let paths = document["paths"].as_object().unwrap();
    let of_path = |(path, item): (&String, &'static str)| (format!("{item} {path}"), &document["paths"][path][item]);
    paths
        .keys()
        .flat_map(|path| ["get", "post"].map(|method| of_path((path, method))))
        .filter(|(_, o)| !o.is_null())
        .collect()
}

/// The gateway's own table, read from its source: what it forwards must be described, and nothing else.
fn table_of_the_gateway() -> BTreeSet<(String, &'static str)> {
    let source = include_str!("../../../protocol/src/path.rs");
    let rows = source.lines().filter_map(|line| line.trim().strip_prefix("(\"/"));
    rows.map(|row| {
        let (path, rest) = row.split_once('"').unwrap();
        (format!("/{path}"), if rest.contains("Methods::Get") { "get" } else { "post" })
    })
    .collect()
}

#[test]
fn every_path_of_the_gateway_is_described_and_no_other() {
    let table = table_of_the_gateway();
    assert!(table.len() > 30, "{table:?}");
    let verb = |method| if method == Method::Get { "get" } else { "post" };
    let described: BTreeSet<_> = ROUTES
        .iter()
        .filter(|route| !route.path.contains('{'))
        .map(|route| (route.path.to_owned(), verb(route.method)))
        .collect();
    assert_eq!(described, table);
    let document = json();
    for route in ROUTES {
        assert!(document["paths"][route.path][verb(route.method)].is_object(), "{}", route.path);
    }
}

#[test]
fn each_path_is_what_the_gateway_takes_it_for() {
    for route in ROUTES {
        let path = route.path.replace("{response_id}", "resp_1").replace("{model}", "org/name");
        let verb = if route.method == Method::Get { HttpVerb::GET } else { HttpVerb::POST };
        assert_eq!(Api::classify(&verb, &path, &[]), Ok(route.api), "{path}");
    }
}

#[test]
fn it_is_openapi_3_1_with_everything_a_reader_needs() {
    let document = json();
    assert_eq!(document["openapi"], "3.1.0");
    assert_eq!(document["info"]["title"], "Inference Gateway");
    let tags: BTreeSet<_> =
        document["tags"].as_array().unwrap().iter().map(|tag| tag["name"].as_str().unwrap()).collect();
    let mut ids = BTreeSet::new();
    for (name, operation) in operations(&document) {
        assert!(ids.insert(operation["operationId"].as_str().unwrap()), "{name}: its id stands twice");
        assert!(operation["summary"].as_str().is_some_and(|words| !words.is_empty()), "{name}");
        assert!(tags.contains(operation["tags"][0].as_str().unwrap()), "{name}: {}", operation["tags"]);
        let responses = operation["responses"].as_object().unwrap();
        assert!(responses.contains_key("200"), "{name}");
        for (status, response) in responses {
            assert!(response.get("$ref").is_some() || response["description"].is_string(), "{name} {status}");
        }
    }
    for path in ["/healthz", "/readyz", "/metrics", "/api/v1/pools", "/api/v1/decisions/{request_id}", "/api/v1/config"]
    {
        assert!(document["paths"][path]["get"].is_object(), "{path}");
    }
}

#[test]
fn every_reference_resolves() {
    let document = json();
    let mut references = 0;
    walk(&document, &mut |name, value| {
        if name == "$ref" {
            let target = value.as_str().unwrap();
            let pointer = target.strip_prefix('#').unwrap_or_else(|| panic!("{target} is outside"));
            assert!(document.pointer(pointer).is_some(), "{target}");
            references += 1;
        }
    });
    assert!(references > 300, "{references}");
}

#[test]
fn every_component_is_used() {
    let document = json();
    let mut used = BTreeSet::new();
    walk(&document, &mut |name, value| {
        if name == "$ref" {
            used.insert(value.as_str().unwrap().to_owned());
        }
    });
    for kind in ["schemas", "responses", "parameters", "headers"] {
        for name in document["components"][kind].as_object().unwrap().keys() {
            let reference = format!("#/components/{kind}/{name}");
            assert!(used.contains(&reference), "{reference} is used nowhere");
        }
    }
}

#[test]
fn parameters_of_a_path_are_declared() {
    let document = json();
    for (name, operation) in operations(&document) {
        let wanted: BTreeSet<_> =
            name.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}')).collect();
        let declared = operation["parameters"].as_array().map(Vec::as_slice).unwrap_or_default();
        let declared: BTreeSet<_> = declared
            .iter()
            .filter(|parameter| parameter["in"] == "path")
            .inspect(|parameter| assert_eq!(parameter["required"], true, "{name}"))
            .map(|parameter| parameter["name"].as_str().unwrap())
            .collect();
        assert_eq!(declared, wanted, "{name}");
    }
}

#[test]
fn every_reason_that_a_client_can_read_is_told() {
    let document = json();
    for schema in ["Error", "AnthropicError"] {
        let error = &document["components"]["schemas"][schema]["properties"]["error"];
        let codes: BTreeSet<_> =
            error["properties"]["code"]["enum"].as_array().unwrap().iter().map(|c| c.as_str().unwrap()).collect();
        let types = error["properties"]["type"]["enum"].as_array().unwrap();
        for reason in Reason::ALL {
            assert_eq!(codes.contains(reason.label()), reason != Reason::ClientGone, "{schema} {reason:?}");
        }
        assert!(!types.iter().any(|name| name == "–"), "{types:?}");
    }
    let chat = &document["paths"]["/v1/chat/completions"]["post"]["responses"];
    for reason in Reason::ALL.into_iter().filter(|reason| *reason != Reason::ClientGone) {
        let status = reason.row().status.to_string();
        let reference = chat[&status]["$ref"].as_str().unwrap_or_else(|| panic!("{reason:?} is not among {chat}"));
        let response = document.pointer(&reference[1..]).unwrap();
        assert!(response["description"].as_str().unwrap().contains(&format!("`{}`", reason.label())), "{reason:?}");
        assert_eq!(response["headers"]["Retry-After"].is_object(), reason.has_retry_after(), "{reason:?}");
    }
}

#[test]
fn what_is_left_of_limits_is_told_with_every_answer_that_follows_them() {
    let document = json();
    let headers_of = |path: &str, verb: &str, status: &str| {
        let response = &document["paths"][path][verb]["responses"][status];
        let response = response["$ref"].as_str().map_or(response, |target| document.pointer(&target[1..]).unwrap());
        response["headers"].as_object().unwrap().keys().filter(|name| name.starts_with("x-ratelimit-")).count()
    };
    for path in ["/v1/chat/completions", "/v1/messages"] {
        for status in ["200", "default", "429", "502", "503", "504"] {
            assert_eq!(headers_of(path, "post", status), 6, "{path} {status}");
        }
        for status in ["400", "404", "408", "413", "415", "431"] {
            assert_eq!(headers_of(path, "post", status), 0, "{path} {status}");
        }
    }
    assert_eq!(headers_of("/v1/models", "get", "200"), 0);
}

#[test]
fn errors_have_the_shape_of_the_apis_own_library() {
    let document = json();
    let refusal = |path: &str| document["paths"][path]["post"]["responses"]["429"]["$ref"].as_str().unwrap();
    assert_eq!(refusal("/v1/messages"), "#/components/responses/AnthropicRefused429");
    assert_eq!(refusal("/v1/responses"), "#/components/responses/Refused429");
}

#[test]
fn data_and_admin_operations_name_their_port() {
    let document = json();
    assert_eq!(document["servers"][0]["url"], "http://127.0.0.1:8080");
    assert!(document["paths"]["/v1/models"].get("servers").is_none());
    assert_eq!(document["paths"]["/metrics"]["servers"][0]["url"], "http://127.0.0.1:9090");
    assert_eq!(document["paths"]["/readyz"]["servers"].as_array().unwrap().len(), 2);
}

#[test]
fn the_yaml_is_the_same_text_each_time_and_says_the_same() {
    let text = yaml();
    assert_eq!(text, yaml());
    assert!(text.starts_with("openapi: 3.1.0\n"), "{}", &text[..100]);
    for route in ROUTES {
        assert!(text.contains(route.path), "{}", route.path);
    }
}
