//! Who may send requests: tokens of an identity provider that rotates, fails and comes back, keys in a Secret, and strangers.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on stops where it stands")]

use std::time::{Duration, Instant};

use harness::{
    Answer, Config, Gateway, IdentityProvider, Next, Peer, Scheduler, TokenKey, eventually, now_s, post, request,
    request_in_chunks, soon,
};
use serde_json::{Value, json};

use crate::two_models::CHAT;

const PATH: &str = "/v1/chat/completions";
const AUDIENCE: &str = "audiences: [gateway]";

fn guarded(peer: &Peer, auth: &str) -> Config {
    Config::plain("m1", [peer.address]).line(&format!("auth: {{{auth}}}"))
}

fn start(config: &Config, provider: &IdentityProvider) -> Gateway {
    let ca_file = provider.ca_file();
    Gateway::start_in(config, &[("SSL_CERT_FILE", ca_file.to_str().unwrap())])
}

fn ask(gateway: &Gateway, token: &str) -> Answer {
    request(gateway.data, "POST", PATH, &[("authorization", &format!("Bearer {token}"))], CHAT)
}

fn status(gateway: &Gateway, token: &str) -> u16 {
    ask(gateway, token).status
}

/// A gateway whose provider publishes `key`, once it has read it.
fn reading(key: &TokenKey) -> (Peer, IdentityProvider, Gateway) {
    let (peer, provider) = (Peer::plain(), IdentityProvider::start(&[key]));
    let gateway = start(&guarded(&peer, &provider.jwt(AUDIENCE)), &provider);
    soon("the keys are read", || status(&gateway, &key.token(&json!({}))) == 200);
    (peer, provider, gateway)
}

#[test]
fn i01_a_rotated_key_is_fetched_once_and_the_old_one_ends() {
    let (k1, k2) = (TokenKey::new("k1"), TokenKey::new("k2"));
    let (_peer, provider, gateway) = reading(&k1);
    let before = provider.fetches();
    provider.publish(&[&k1, &k2]);
    assert_eq!(status(&gateway, &k2.token(&json!({}))), 200, "the first one already");
    assert_eq!(provider.fetches(), before + 1);
    assert_eq!(status(&gateway, &k1.token(&json!({}))), 200);
    // The old key goes with the next fetch, which a token by a key that nobody knows calls for.
    provider.publish(&[&k2]);
    let (old, unknown) = (k1.token(&json!({})), TokenKey::new("k3").token(&json!({})));
    eventually("the old key ends", Duration::from_secs(20), || {
        assert_eq!(status(&gateway, &unknown), 401);
        (status(&gateway, &old) == 401).then_some(())
    });
    assert_eq!(status(&gateway, &k2.token(&json!({}))), 200);
    let page = gateway.admin.get("/metrics").text();
    assert!(page.contains(r#"inference_gateway_auth_key_fetches_total{outcome="ok"}"#), "{page}");
    assert_eq!(gateway.admin.metric("inference_gateway_auth_keys", &[]), Some(1.0));
}

#[test]
fn i02_tokens_by_unknown_keys_do_not_become_fetches() {
    let k1 = TokenKey::new("k1");
    let (_peer, provider, gateway) = reading(&k1);
    let (good, before, began) = (k1.token(&json!({})), provider.fetches(), Instant::now());
    for number in 0..400 {
        let stranger = TokenKey::new(&format!("random-{number}"));
        let answer = ask(&gateway, &stranger.token(&json!({})));
        assert_eq!((answer.status, answer.code().as_str()), (401, "unauthenticated"));
        assert!(number % 20 > 0 || status(&gateway, &good) == 200);
    }
    let windows = 1 + usize::try_from(began.elapsed().as_secs() / 10).unwrap();
    assert!(provider.fetches() - before <= windows, "{} in {:?}", provider.fetches() - before, began.elapsed());
}

#[test]
fn i02_a_provider_that_fails_is_asked_ever_less_and_hurts_nobody() {
    let k1 = TokenKey::new("k1");
    for (what, script) in [
        ("status", Box::new(|exchange: &mut harness::Exchange| exchange.answer("500 No", &[], "")) as Box<Broken>),
        (
            "no_key_set",
            Box::new(|exchange| exchange.answer("200 OK", &[("content-type", "application/json")], "<html>")),
        ),
        ("body", Box::new(|exchange| exchange.answer("200 OK", &[], vec![b' '; 2 << 20]))),
        ("status", Box::new(|exchange| exchange.answer("302 Found", &[("location", "http://127.0.0.1:1/keys")], ""))),
    ] {
        let (_peer, provider, gateway) = reading(&k1);
        let (good, unknown) = (k1.token(&json!({})), TokenKey::new("k9").token(&json!({})));
        provider.follow(script);
        let before = provider.fetches();
        for _ in 0..50 {
            assert_eq!(status(&gateway, &unknown), 401, "{what}");
            assert_eq!(status(&gateway, &good), 200, "{what}: known keys stay");
        }
        assert_eq!(provider.fetches(), before + 1, "{what}");
        let failed =
            gateway.admin.metric("inference_gateway_auth_key_fetches_total", &[&format!("outcome=\"{what}\"")]);
        assert_eq!(failed, Some(1.0), "{what}");
        let log = gateway.log();
        assert_eq!(log.matches("cannot be read").count(), 1, "{what}: said once\n{log}");
    }
}

type Broken = dyn Fn(&mut harness::Exchange) -> Next + Send + Sync;

#[test]
fn i03_an_audience_is_asked_for_only_where_one_is_configured() {
    let k1 = TokenKey::new("k1");
    let (peer, provider) = (Peer::plain(), IdentityProvider::start(&[&k1]));
    let any = provider.jwt("requiredClaims: [{name: sub, values: [alice]}]");
    let gateway = start(&guarded(&peer, &any), &provider);
    let audiences = [json!("x"), json!(["x", "y"]), Value::Null, json!([])];
    soon("the keys are read", || status(&gateway, &k1.token(&json!({}))) == 200);
    for audience in &audiences {
        assert_eq!(status(&gateway, &k1.token(&json!({"aud": audience}))), 200, "{audience}");
    }
    gateway.apply(&guarded(&peer, &provider.jwt("audiences: [x]")));
    let answers = audiences.map(|audience| status(&gateway, &k1.token(&json!({"aud": audience}))));
    assert_eq!(answers, [200, 200, 401, 401]);
    assert_eq!(status(&gateway, &k1.token(&json!({"aud": "x", "iss": "https://idp.example/"}))), 401, "exactly");
}

#[test]
fn i04_a_provider_that_is_away_keeps_nobody_from_starting_and_lets_nobody_in() {
    let k1 = TokenKey::new("k1");
    let (peer, provider) = (Peer::plain(), IdentityProvider::start(&[]));
    provider.follow(|exchange| exchange.answer("503 Away", &[], ""));
    let gateway = start(&guarded(&peer, &provider.jwt(AUDIENCE)), &provider);
    let good = k1.token(&json!({}));
    soon("its failure is known", || provider.fetches() > 0);
    let answer = ask(&gateway, &good);
    assert_eq!((answer.status, answer.header("x-should-retry")), (401, Some("true")));
    assert_eq!(answer.header("www-authenticate"), Some("Bearer realm=\"test\""));
    for path in ["/healthz", "/readyz"] {
        assert_eq!(request(gateway.data, "GET", path, &[], "").status, 200, "{path} needs neither keys nor tokens");
    }
    assert_eq!(peer.seen().iter().filter(|seen| seen.line.starts_with("POST")).count(), 0);
    provider.publish(&[&k1]);
    eventually("it heals by itself", Duration::from_secs(20), || (status(&gateway, &good) == 200).then_some(()));
}

#[test]
fn i06_the_clocks_of_issuer_and_gateway_may_differ_a_little() {
    let k1 = TokenKey::new("k1");
    let (_peer, _provider, gateway) = reading(&k1);
    let now = now_s();
    let mut endless = json!({"iss": harness::ISSUER, "aud": "gateway"});
    let without_end = k1.token_of(&endless);
    endless["exp"] = (now + 100).to_string().into();
    let answers = [
        k1.token(&json!({"nbf": now + 4})),
        k1.token(&json!({"iat": now + 4})),
        k1.token(&json!({"exp": now - 4})),
        k1.token(&json!({"exp": now - 120})),
        k1.token_of(&endless),
        without_end,
    ]
    .map(|token| status(&gateway, &token));
    assert_eq!(answers, [200, 200, 200, 401, 401, 401]);
}

#[test]
fn i07_a_token_does_not_make_its_caller_the_clusters_router() {
    let k1 = TokenKey::new("k1");
    let (peer, _provider, gateway) = reading(&k1);
    let other = Peer::plain();
    let there = other.address.to_string();
    peer.forget();
    let authorization = format!("Bearer {}", k1.token(&json!({})));
    let headers = [
        ("authorization", authorization.as_str()),
        ("x-gateway-destination-endpoint", &there),
        ("X-Gateway-Destination-Endpoint", &there),
        ("x-prefiller-host-port", &there),
        ("x-gateway-model-name", "m2"),
        ("x-gateway-inference-objective", "critical"),
        ("x-gateway-inference-fairness-id", "somebody"),
    ];
    assert_eq!(request(gateway.data, "POST", PATH, &headers, CHAT).status, 200);
    assert!(other.seen().is_empty());
    let seen = peer.seen().into_iter().find(|seen| seen.line.starts_with("POST")).unwrap();
    for gone in ["authorization", "x-gateway-destination-endpoint", "x-gateway-inference-objective"] {
        assert_eq!(seen.header(gone), None, "{gone}");
    }
    assert_eq!(seen.header("x-gateway-model-name"), Some("m1"));
}

#[test]
fn i09_a_pre_flight_is_no_way_round() {
    let k1 = TokenKey::new("k1");
    let (peer, _provider, gateway) = reading(&k1);
    peer.forget();
    let asking = [
        ("origin", "https://app.example"),
        ("access-control-request-method", "POST"),
        ("access-control-request-headers", "authorization"),
    ];
    for headers in [&asking[..], &[]] {
        for path in [PATH, "/v1/models", "/anything"] {
            let answer = request(gateway.data, "OPTIONS", path, headers, "");
            assert_eq!(answer.status, 401, "{path}");
            assert_eq!(answer.header("access-control-allow-origin"), None);
        }
    }
    assert!(!peer.seen().iter().any(|seen| seen.line.starts_with("OPTIONS")));
}

#[test]
fn i10_a_key_that_changed_under_its_name_is_fetched_once() {
    let (a, b, forger) = (TokenKey::new("k1"), TokenKey::new("k1"), TokenKey::new("k1"));
    let (_peer, provider, gateway) = reading(&a);
    let before = provider.fetches();
    provider.publish(&[&b]);
    assert_eq!(status(&gateway, &b.token(&json!({}))), 200, "the first one already");
    assert_eq!(provider.fetches(), before + 1);
    assert_eq!(status(&gateway, &a.token(&json!({}))), 401);
    let (forged, began) = (forger.token(&json!({})), Instant::now());
    for _ in 0..300 {
        assert_eq!(status(&gateway, &forged), 401);
    }
    let windows = usize::try_from(began.elapsed().as_secs() / 10).unwrap() + 1;
    assert!(provider.fetches() <= before + 1 + windows);
}

#[test]
fn a_stranger_costs_no_body_and_is_counted_once() {
    let k1 = TokenKey::new("k1");
    let (peer, _provider, gateway) = reading(&k1);
    peer.forget();
    let answer = request_in_chunks(gateway.data, PATH, &[("x-request-id", "stranger")], CHAT, 10);
    assert_eq!((answer.status, answer.code().as_str()), (401, "unauthenticated"));
    assert_eq!(answer.json()["error"]["type"], "authentication_error");
    assert_eq!(answer.header("www-authenticate"), Some("Bearer realm=\"test\""));
    let line = gateway.request("stranger");
    assert_eq!((line["outcome"].as_str(), line["status"].as_u64()), (Some("unauthenticated"), Some(401)));
    assert_eq!(line["bytes_in"], 0);
    let anthropic = post(gateway.data, "/v1/messages", CHAT);
    assert_eq!((anthropic.status, anthropic.json()["type"].as_str()), (401, Some("error")));
    let poor = ask(&gateway, &TokenKey::new("k1").token(&json!({"secret-claim": "secret-value"})));
    assert_eq!(poor.status, 401);
    for path in ["/v1/models", "/v1/models/m1", "/nothing-here", "/metrics"] {
        assert_eq!(request(gateway.data, "GET", path, &[], "").status, 401, "{path}");
    }
    assert!(peer.seen().iter().all(|seen| !seen.line.starts_with("POST")));
    let log = gateway.log();
    assert!(!log.contains("secret-") && !log.contains("eyJ"), "nothing of a token is in the log\n{log}");
}

#[test]
fn keys_of_a_secret_open_the_gateway_and_rotate_without_a_restart() {
    let peer = Peer::plain();
    let config = |key: &str| {
        let secret = format!("apiVersion: v1\nkind: Secret\nmetadata: {{name: clients}}\nstringData: {{batch: {key}}}");
        guarded(&peer, "apiKeys: {secretRef: {name: clients}}").document(&secret)
    };
    let gateway = Gateway::start(&config("sk-batch-0123456789"));
    let by = |headers: &[(&str, &str)]| request(gateway.data, "POST", PATH, headers, CHAT).status;
    soon("it serves", || by(&[("x-api-key", "sk-batch-0123456789")]) == 200);
    assert_eq!(by(&[("authorization", "Bearer sk-batch-0123456789")]), 200);
    assert_eq!(by(&[("api-key", "sk-batch-0123456789"), ("authorization", "Bearer endpoints-own")]), 200);
    let last = peer.seen().pop().unwrap();
    assert_eq!(last.header("authorization"), Some("Bearer endpoints-own"), "what did not open the gateway goes on");
    assert!(peer.seen().iter().all(|seen| !seen.headers.iter().any(|(_, value)| value.contains("sk-batch"))));
    assert_eq!(by(&[("authorization", "Bearer sk-batch-0123456780")]), 401);
    assert_eq!(by(&[]), 401);
    gateway.apply(&config("sk-batch-rotated-1"));
    assert_eq!(by(&[("x-api-key", "sk-batch-rotated-1")]), 200);
    assert_eq!(by(&[("x-api-key", "sk-batch-0123456789")]), 401);
    assert!(!gateway.log().contains("sk-batch"), "no key is in the log");
    assert!(!gateway.admin.json("/api/v1/config").to_string().contains("sk-batch"));
}

#[test]
fn claims_admit_name_the_band_and_count_for_limits() {
    let k1 = TokenKey::new("k1");
    let (peer, provider) = (Peer::plain(), IdentityProvider::start(&[&k1]));
    let jwt = provider.jwt("requiredClaims: [{name: groups, valueType: StringArray, values: [ml]}]");
    let objective = "apiVersion: llm-d.ai/v1alpha2\nkind: InferenceObjective\nmetadata: {name: urgent}\n\
                     spec: {priority: 10, poolRef: {name: m1}}";
    let config = Config::new([Scheduler::new("m1", [peer.address]).line("engineType: none")])
        .line(&format!("auth: {{{jwt}}}"))
        .line("flowControl: {bandClaim: {name: tier, values: {gold: critical, free: sheddable}}}")
        .line("limits: [{name: per-user, key: {claim: sub}, requestsPerMinute: 3}]")
        .document(objective);
    let gateway = start(&config, &provider);
    let token = |sub: &str, tier: &str| k1.token(&json!({"sub": sub, "tier": tier, "groups": ["x", "ml"]}));
    soon("the keys are read", || status(&gateway, &token("warm-up", "gold")) == 200);
    let forbidden = ask(&gateway, &k1.token(&json!({"groups": ["x"]})));
    assert_eq!((forbidden.status, forbidden.code().as_str()), (403, "forbidden"));
    assert!(forbidden.header("www-authenticate").unwrap().contains("insufficient_scope"));
    for (user, tier, objective, band) in [
        ("a", "gold", None, "critical"),
        ("a", "gold", Some("urgent"), "critical"),
        ("b", "none", None, "standard"),
        ("b", "none", Some("urgent"), "standard"),
        ("c", "free", None, "sheddable"),
        ("c", "free", Some("urgent"), "sheddable"),
    ] {
        let id = format!("{user}-{tier}-{}", objective.unwrap_or("none"));
        let authorization = format!("Bearer {}", token(user, tier));
        let mut headers = vec![("authorization", authorization.as_str()), ("x-request-id", &id)];
        headers.extend(objective.map(|name| ("x-gateway-inference-objective", name)));
        assert_eq!(request(gateway.data, "POST", PATH, &headers, CHAT).status, 200, "{id}");
        assert_eq!(gateway.request(&id)["band"], band, "{id}");
    }
    // Another token of the same user has the same account.
    let last = ask(&gateway, &k1.token(&json!({"sub": "a", "groups": ["ml"], "jti": "another"})));
    assert_eq!((last.status, last.header("x-ratelimit-remaining-requests")), (200, Some("0")));
    assert_eq!(status(&gateway, &token("a", "gold")), 429);
    assert_eq!(status(&gateway, &token("d", "gold")), 200, "other users have accounts of their own");
}
