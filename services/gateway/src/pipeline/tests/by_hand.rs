//! Requests that routes written by hand take, from the objects that people write to what servers behind them see.

use std::{net::SocketAddr, sync::Arc};

use api::cluster::{ObjectKey, Objects};
use axum::{Router, body::to_bytes, extract::Request as Seen};
use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header::LOCATION};
use http_body_util::BodyExt;
use proxy::{client::Protocol, serve::RequestBody};
use routing::{AppProtocol, Table, attach};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::{endpoint::Manner, site::Site};
use crate::{
    answer::Answer,
    by_hand::{Backing, HandRoutes, Otherwise, Targets},
};

/// A server that says what it was sent; at `/slow` it never answers.
async fn echo() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let router = Router::new().fallback(|seen: Seen| async move {
        let (head, body) = seen.into_parts();
        if head.uri.path() == "/slow" {
            std::future::pending::<()>().await;
        }
        let status: u16 = head.headers.get("answer").map_or(200, |value| value.to_str().unwrap().parse().unwrap());
        let headers: Vec<_> =
            head.headers.iter().map(|(name, value)| json!([name.as_str(), value.to_str().unwrap()])).collect();
        let body = to_bytes(body, usize::MAX).await.unwrap();
        let said = json!({
            "method": head.method.as_str(), "target": head.uri.to_string(), "version": format!("{:?}", head.version),
            "headers": headers, "bytes": body.len(), "body": String::from_utf8_lossy(&body[..body.len().min(100)]),
        });
        (StatusCode::from_u16(status).unwrap(), [("x-server", "echo")], said.to_string())
    });
    tokio::spawn(axum::serve(listener, router).into_future());
    address
}

/// One Gateway with two Services (`echo`, with an h2c port, and `empty`), a pool of models, and these rules.
fn objects(rules: &Value) -> Objects {
    let mut objects = Objects::default();
    let class = json!({"metadata": {"name": "ours"}, "spec": {"controllerName": api::names::CONTROLLER_NAME}});
    put(&mut objects.gateway_classes, &class);
    put(
        &mut objects.gateways,
        &json!({"metadata": {"name": "gw", "namespace": "ns"}, "spec": {"gatewayClassName": "ours", "listeners": [
            {"name": "http", "port": 80, "protocol": "HTTP"},
        ]}}),
    );
    for name in ["echo", "empty"] {
        put(
            &mut objects.services,
            &json!({"metadata": {"name": name, "namespace": "ns"}, "spec": {"ports": [
                {"name": "http", "port": 80}, {"name": "h2c", "port": 81, "appProtocol": "kubernetes.io/h2c"},
            ]}}),
        );
    }
    put(
        &mut objects.pools,
        &json!({"metadata": {"name": "models", "namespace": "ns"}, "spec": {
            "selector": {"matchLabels": {"app": "m"}}, "targetPorts": [{"number": 8000}],
        }}),
    );
    put(
        &mut objects.routes,
        &json!({"metadata": {"name": "route", "namespace": "ns"}, "spec": {
            "parentRefs": [{"name": "gw"}], "rules": rules,
        }}),
    );
    objects
}

fn put<T: DeserializeOwned>(kept: &mut api::cluster::Kept<T>, object: &Value) {
    let text = |key: &str| object["metadata"][key].as_str().unwrap_or_default();
    kept.insert(
        ObjectKey::new(text("namespace"), text("name")),
        Arc::new(serde_json::from_value(object.clone()).unwrap()),
    );
}

impl Site {
    fn route_by_hand(&self, rules: &Value, echo: SocketAddr, otherwise: Otherwise) {
        let objects = objects(rules);
        let attached = attach(&objects, api::names::CONTROLLER_NAME);
        let table = Table::of(&objects, &attached, &ObjectKey::new("ns", "gw"));
        assert!(!table.is_empty(), "{attached:?}");
        let mut targets = Targets::default();
        targets.pools.insert(ObjectKey::new("ns", "models"), self.served(self.pool(), Backing::Models));
        let service = |name: &str, addresses: &[SocketAddr], protocol| {
            let pool = self.servers(name, addresses, protocol);
            self.served(&pool, Backing::Anything)
        };
        targets.services.insert(
            ObjectKey::new("ns", "echo"),
            vec![
                (80, AppProtocol::Http1, service("ns/echo:80", &[echo], Protocol::Http1)),
                (81, AppProtocol::H2c, service("ns/echo:81", &[echo], Protocol::H2c)),
            ],
        );
        let empty = service("ns/empty:80", &[], Protocol::Http1);
        targets.services.insert(ObjectKey::new("ns", "empty"), vec![(80, AppProtocol::Http1, empty)]);
        self.put_by_hand(HandRoutes::new(table, targets, otherwise));
    }
}

fn to(name: &str, weight: u32) -> Value {
    json!({"name": name, "port": 80, "weight": weight})
}

fn request(method: Method, target: &str, headers: &[(&str, &str)], body: impl Into<Bytes>) -> Request<RequestBody> {
    let mut request = Request::builder().method(method).uri(target).header("host", "a.example:8080");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(RequestBody::from(body.into())).unwrap()
}

fn get(target: &str) -> Request<RequestBody> {
    request(Method::GET, target, &[], "")
}

async fn said(response: Response<Answer>) -> Value {
    let body = response.into_body().collect().await.unwrap().to_bytes();
    serde_json::from_slice(&body).unwrap_or_else(|_| panic!("{body:?}"))
}

fn values<'a>(said: &'a Value, name: &str) -> Vec<&'a str> {
    let headers = said["headers"].as_array().unwrap().iter();
    headers.filter(|pair| pair[0] == name).map(|pair| pair[1].as_str().unwrap()).collect()
}

fn outcomes(site: Site) -> Vec<String> {
    site.finish().iter().map(|line| line["outcome"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_request_reaches_a_service_as_it_was_but_for_what_the_route_changes() {
    let site = Site::new(1);
    site.run(async {
        let rules = json!([
            {"matches": [{"path": {"type": "PathPrefix", "value": "/old"}}],
             "filters": [
                {"type": "URLRewrite", "urlRewrite": {
                    "hostname": "b.example", "path": {"type": "ReplacePrefixMatch", "replacePrefixMatch": "/new"}}},
                {"type": "RequestHeaderModifier", "requestHeaderModifier": {
                    "set": [{"name": "X-Set", "value": "1"}], "add": [{"name": "X-Add", "value": "2"}], "remove": ["X-Gone"]}},
                {"type": "ResponseHeaderModifier", "responseHeaderModifier": {
                    "set": [{"name": "X-Server", "value": "hidden"}], "add": [{"name": "X-More", "value": "1"}]}},
             ],
             "backendRefs": [{"name": "echo", "port": 80, "filters": [
                {"type": "RequestHeaderModifier", "requestHeaderModifier": {"add": [{"name": "x-add", "value": "3"}]}},
             ]}]},
            {"backendRefs": [to("echo", 1)]},
        ]);
        site.route_by_hand(&rules, echo().await, Otherwise::Nobodys);

        let headers = [("x-set", "0"), ("x-add", "0"), ("x-gone", "0"), ("connection", "x-hop"), ("x-hop", "0")];
        let response = site.send(request(Method::PUT, "/old/%61?q=%2f&q", &headers, "hello")).await;
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(response.headers()["x-server"], "hidden");
        assert_eq!(response.headers()["x-more"], "1");
        assert!(response.headers().contains_key("x-request-id"));
        let seen = said(response).await;
        assert_eq!((&seen["method"], &seen["target"], &seen["body"]), (&json!("PUT"), &json!("/new/%61?q=%2f&q"), &json!("hello")));
        assert_eq!(values(&seen, "host"), ["b.example"]);
        assert_eq!((values(&seen, "x-set"), values(&seen, "x-add")), (vec!["1"], vec!["0", "2", "3"]));
        assert!(values(&seen, "x-gone").is_empty() && values(&seen, "x-hop").is_empty());
        assert_eq!(values(&seen, "x-request-id").len(), 1);

        let seen = said(site.send(get("/other?a=b")).await).await;
        assert_eq!((&seen["target"], values(&seen, "host")), (&json!("/other?a=b"), vec!["a.example:8080"]));
        assert!(values(&seen, "x-set").is_empty());
    });
    assert_eq!(outcomes(site), ["ok", "ok"]);
}

#[test]
fn redirects_and_what_leads_nowhere_are_answered_here_with_an_outcome_of_their_own() {
    let site = Site::new(1);
    site.run(async {
        let at = |path: &str, rest: &Value| {
            let mut rule = json!({"matches": [{"path": {"type": "PathPrefix", "value": path}}]});
            for (key, value) in rest.as_object().unwrap() {
                rule[key] = value.clone();
            }
            rule
        };
        let rules = json!([
            at(
                "/moved",
                &json!({"filters": [{"type": "RequestRedirect", "requestRedirect": {
                "scheme": "https", "statusCode": 301,
                "path": {"type": "ReplacePrefixMatch", "replacePrefixMatch": "/here"}}}]})
            ),
            at("/missing", &json!({"backendRefs": [to("nobody", 1)]})),
            at("/nothing", &json!({"backendRefs": [to("echo", 0)]})),
            at("/empty", &json!({"backendRefs": [to("empty", 1)]})),
        ]);
        site.route_by_hand(&rules, echo().await, Otherwise::Nobodys);
        let moved = site.send(get("/moved/a?x=1")).await;
        assert_eq!(moved.status(), StatusCode::MOVED_PERMANENTLY);
        assert_eq!(moved.headers()[LOCATION], "https://a.example/here/a?x=1");
        for (path, status, code) in [
            ("/missing", 500, "route_invalid"),
            ("/nothing", 500, "route_invalid"),
            ("/empty", 503, "no_endpoint"),
            ("/unknown", 404, "path_not_found"),
        ] {
            let response = site.send(get(path)).await;
            assert_eq!(response.status(), status, "{path}");
            assert_eq!(said(response).await["error"]["code"], code, "{path}");
        }
        assert_eq!(site.in_flight(), 0);
    });
    assert_eq!(outcomes(site), ["redirect", "route_invalid", "route_invalid", "no_endpoint", "path_not_found"]);
}

#[test]
fn backends_get_their_share_and_an_invalid_one_keeps_its_own() {
    /// Requests, and how far a share of a half may be off: five standard deviations.
    const REQUESTS: u32 = 400;
    const OFF_MAX: u32 = 50;
    let site = Site::new(1);
    site.run(async {
        let rules = json!([{"backendRefs": [to("echo", 2), to("nobody", 2), to("empty", 0)]}]);
        site.route_by_hand(&rules, echo().await, Otherwise::Nobodys);
        let (mut served, mut invalid) = (0_u32, 0_u32);
        for _ in 0..REQUESTS {
            let response = site.send(get("/")).await;
            match response.status().as_u16() {
                200 => served += 1,
                500 => invalid += 1,
                other => panic!("{other}"),
            }
            response.into_body().collect().await.unwrap();
        }
        assert_eq!(served + invalid, REQUESTS);
        assert!(served.abs_diff(REQUESTS / 2) <= OFF_MAX, "{served} of {REQUESTS}");
    });
}

#[test]
fn what_no_route_takes_is_the_configurations() {
    let site = Site::new(1);
    site.run(async {
        let rules =
            json!([{"matches": [{"headers": [{"name": "x-hand", "value": "1"}]}], "backendRefs": [to("echo", 1)]}]);
        site.route_by_hand(&rules, echo().await, Otherwise::Configs);
        assert_eq!(site.ask("config", Manner::Whole).await.status(), StatusCode::OK);
        let body = json!({"model": "nobody's"}).to_string();
        let refused = site.send(request(Method::POST, "/v1/chat/completions", &[], body.clone())).await;
        assert_eq!(refused.status(), StatusCode::NOT_FOUND);
        let by_hand = site.send(request(Method::POST, "/v1/chat/completions", &[("x-hand", "1")], body)).await;
        assert_eq!(by_hand.headers()["x-server"], "echo");
    });
}

/// A body of any size passes, and none of it is held: the process may hold 1 MiB.
#[test]
fn a_large_body_passes_without_being_held() {
    let site = Site::new(1);
    site.run(async {
        site.route_by_hand(&json!([{"backendRefs": [to("echo", 1)]}]), echo().await, Otherwise::Nobodys);
        for (port_rule, version) in [(80, "HTTP/1.1"), (81, "HTTP/2.0")] {
            let rules = json!([{"backendRefs": [{"name": "echo", "port": port_rule}]}]);
            site.route_by_hand(&rules, echo().await, Otherwise::Nobodys);
            let response = site.send(request(Method::POST, "/upload", &[], vec![b'x'; 8 << 20])).await;
            assert_eq!((response.status(), site.body_bytes()), (StatusCode::OK, 0));
            let seen = said(response).await;
            assert_eq!((&seen["bytes"], &seen["version"]), (&json!(8 << 20), &json!(version)));
            assert_eq!(values(&seen, "content-length"), ["8388608"]);
        }
    });
    for line in site.finish() {
        assert_eq!((&line["bytes_in"], &line["api"]), (&json!(8 << 20), &json!("other")));
    }
}

#[test]
fn a_routes_times_bound_its_requests() {
    let site = Site::new(1);
    site.run(async {
        for timeouts in [json!({"request": "50ms"}), json!({"request": "10s", "backendRequest": "50ms"})] {
            let rules = json!([{"backendRefs": [to("echo", 1)], "timeouts": timeouts}]);
            site.route_by_hand(&rules, echo().await, Otherwise::Nobodys);
            let response = site.send(get("/slow")).await;
            assert_eq!(response.status(), StatusCode::GATEWAY_TIMEOUT, "{timeouts}");
            assert_eq!(site.send(get("/quick")).await.status(), StatusCode::OK);
        }
    });
}

/// A Service's answers are its own business: they pass as they are, and take nobody out.
#[test]
fn what_a_service_answers_passes_unchanged_however_often_it_fails() {
    let site = Site::new(1);
    site.run(async {
        site.route_by_hand(&json!([{"backendRefs": [to("echo", 1)]}]), echo().await, Otherwise::Nobodys);
        for status in ["429", "503", "500", "502", "504", "404"] {
            for _ in 0..6 {
                let response = site.send(request(Method::GET, "/", &[("answer", status)], "")).await;
                assert_eq!(response.status().as_str(), status);
                assert_eq!(response.headers()["x-server"], "echo");
                assert!(!response.headers().contains_key("retry-after"));
                response.into_body().collect().await.unwrap();
            }
        }
        assert_eq!(site.send(get("/")).await.status(), StatusCode::OK);
    });
}

/// In front of model servers a body is read for what it says, and what it says wrong is theirs to judge.
#[test]
fn a_pools_requests_are_picked_by_their_prompts_whatever_their_model() {
    let site = Site::new(2);
    site.run(async {
        let rules = json!([{"backendRefs": [{"group": "inference.networking.k8s.io", "kind": "InferencePool", "name": "models"}]}]);
        site.route_by_hand(&rules, echo().await, Otherwise::Nobodys);
        let prompt = format!("{} {}", Manner::Whole.word(), "a long shared prefix ".repeat(200));
        let ask = |model: &str| {
            let body = json!({"model": model, "prompt": [Manner::Whole.word(), prompt]}).to_string();
            request(Method::POST, "/v1/completions", &[], body)
        };
        for model in ["x", "x", "x", "y"] {
            let response = site.send(ask(model)).await;
            assert_eq!(response.status(), StatusCode::OK);
            response.into_body().collect().await.unwrap();
        }
        // Not JSON, but it names its manner: it goes on as it is.
        let broken = format!("{{\"model\": \"x\", \"prompt\": \"{}\"", Manner::Whole.word());
        let response = site.send(request(Method::POST, "/v1/completions", &[], broken)).await;
        assert_eq!(response.status(), StatusCode::OK);
        response.into_body().collect().await.unwrap();
        assert_eq!((site.in_flight(), site.body_bytes()), (0, 0));
    });
    let lines = site.finish();
    let endpoints: Vec<_> = lines.iter().map(|line| line["endpoint"].as_str().unwrap()).collect();
    assert_eq!((endpoints[0], endpoints[1]), (endpoints[1], endpoints[2]), "one prefix, one endpoint");
    assert_eq!(lines[3]["modelName"], "y");
    assert!(lines.iter().all(|line| line["outcome"] == "ok"), "{lines:?}");
}
