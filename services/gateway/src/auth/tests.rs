//! Tokens and keys against one configuration, without a network.

mod signer;

use std::{
    collections::BTreeMap,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use http::{HeaderValue, StatusCode};
use proptest::prelude::*;
use protocol::{Reason, path::Dialect};
use serde_json::{Value, json};
use telemetry::Metrics;

use self::signer::Signer;
use super::{key_set::KeySet, *};
use crate::clock::Clock;

const NOW_S: u64 = 1_800_000_000;
const KEY: &str = "sk-batch-0123456789";

fn now() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(NOW_S)
}

fn jwt() -> api::Jwt {
    api::Jwt {
        provider: "idp".into(),
        issuer: "https://idp.example".into(),
        jwks_uri: "https://idp.example/keys".into(),
        clock_skew: Duration::from_secs(60),
        audiences: vec!["gateway".into()],
        required_claims: Vec::new(),
    }
}

fn claims(extra: Value) -> Value {
    let mut claims = json!({"iss": "https://idp.example", "aud": "gateway", "sub": "alice", "exp": NOW_S + 600});
    claims.as_object_mut().unwrap().append(&mut extra.as_object().unwrap().clone());
    claims
}

fn key_set(signers: &[&Signer]) -> KeySet {
    let keys: Vec<Value> = signers.iter().map(|signer| signer.jwk()).collect();
    KeySet::read(json!({ "keys": keys }).to_string().as_bytes()).unwrap().0
}

/// Of a provider whose keys are these; none, if it has not been reached.
fn tokens(jwt: &api::Jwt, signers: &[&Signer]) -> Tokens {
    let source = KeySource::new("idp", "https://idp.example/keys", Clock::start(), &Metrics::default());
    if !signers.is_empty() {
        source.put(key_set(signers));
    }
    let kept = Kept::new(["tier", "groups"]);
    Tokens { demands: Demands::new(jwt), kept, source, cache: Cache::new() }
}

fn keys() -> ApiKeys {
    let keys = BTreeMap::from([("batch".to_owned(), api::Hidden(KEY.as_bytes().to_vec()))]);
    ApiKeys::new(&api::ApiKeys { secret: "clients".into(), keys }).0
}

fn auth(tokens: Option<Tokens>, keys: Option<ApiKeys>) -> Auth {
    Auth { realm: "chat".into(), keys, tokens }
}

fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
    let pair =
        |(name, value): &(&'static str, &str)| (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap());
    pairs.iter().map(pair).collect()
}

fn checked(auth: &Auth, pairs: &[(&'static str, &str)]) -> Result<(Option<String>, HeaderName), Fault> {
    let admitted = auth.check(&headers(pairs), now())?;
    Ok((admitted.identity.subject().map(str::to_owned), admitted.credential))
}

fn bearer(token: &str) -> String {
    format!("Bearer {token}")
}

#[test]
fn a_good_token_passes_and_only_claims_that_are_asked_for_are_kept() {
    let signer = Signer::ed25519("k1");
    let tokens = tokens(&jwt(), &[&signer]);
    let token = signer.token(&claims(json!({"tier": "gold", "groups": ["a", 7], "email": "alice@example.com"})));
    for _ in 0..2 {
        let identity = tokens.check(&token, now()).unwrap();
        assert_eq!(
            (identity.subject(), identity.claim("tier"), identity.by()),
            (Some("alice"), &["gold".into()][..], By::Token)
        );
        assert_eq!(identity.claim("groups"), ["a".into(), "7".into()]);
        assert!(identity.claim("email").is_empty());
        assert!(!format!("{identity:?}").contains("alice"));
    }
    let later = now() + Duration::from_secs(661);
    assert_eq!(tokens.check(&token, later).unwrap_err(), Fault::Expired, "also one that was checked before");
}

#[test]
fn i05_every_good_key_of_a_mixed_set_is_used() {
    let mut rsa = Signer::rsa("rsa", "RS256");
    rsa.extra = json!({"x5c": ["MIIB"], "x5t": "abc", "e2": 1});
    let (p256, p384, ed) = (Signer::ecdsa("p256", "ES256"), Signer::ecdsa("p384", "ES384"), Signer::ed25519("ed"));
    let (nameless, encrypting) = (Signer::ecdsa("", "ES256"), Signer::rsa("enc", "RS256"));
    let mut published: Vec<Value> = [&rsa, &p256, &p384, &ed, &nameless].map(Signer::jwk).into();
    let mut for_encryption = encrypting.jwk();
    for_encryption["use"] = "enc".into();
    published.insert(0, for_encryption);
    published.insert(1, json!({"kty": "EC", "crv": "P-521", "kid": "p521", "x": "AA", "y": "AA"}));
    published.insert(2, json!({"kty": "zzz", "kid": "zzz"}));
    published.insert(3, json!("no object"));
    published.insert(4, json!({"kty": "oct", "kid": "secret", "k": "AAAA"}));
    let text = format!("\u{feff}{}", json!({"keys": published, "extra": {"a": 1}}));
    let (set, notes) = KeySet::read(text.as_bytes()).unwrap();
    assert_eq!((set.len(), notes.len()), (5, 5), "{notes:?}");
    let tokens = tokens(&jwt(), &[]);
    tokens.source.put(set);
    for good in [&rsa, &p256, &p384, &ed, &nameless] {
        assert!(tokens.check(&good.token(&claims(json!({}))), now()).is_ok(), "{}", good.kid);
    }
    for algorithm in ["RS384", "RS512", "PS256", "PS384", "PS512"] {
        let other = Signer::rsa("rsa", algorithm);
        assert!(tokens.check(&other.token(&claims(json!({}))), now()).is_ok(), "{algorithm}");
    }
    assert_eq!(tokens.check(&encrypting.token(&claims(json!({}))), now()).unwrap_err(), Fault::UnknownSigner);
}

#[test]
fn i05_what_is_no_key_set_is_called_what_it_is() {
    for (body, what) in [
        ("  <!DOCTYPE html><title>Sign in</title>", "HTML"),
        ("\u{feff}<html>", "HTML"),
        ("", "not JSON"),
        ("{\"keys\": [", "not JSON"),
        ("[]", "no list"),
        ("{\"keys\": {}}", "no list"),
        ("{\"keys\": []}", "no key"),
        ("{\"keys\": [{\"kty\": \"oct\"}]}", "no key"),
    ] {
        let error = KeySet::read(body.as_bytes()).unwrap_err().to_string();
        assert!(error.contains(what), "{body}: {error}");
    }
}

#[test]
fn i05_neither_no_signature_nor_a_public_key_as_a_secret_passes() {
    let (rsa, ed) = (Signer::rsa("k1", "RS256"), Signer::ed25519("k2"));
    let tokens = tokens(&jwt(), &[&rsa, &ed]);
    let claims = claims(json!({}));
    for algorithm in ["none", "None", "NONE", "", "HS256", "HS384", "HS512", "rs256", "ES256K", "ES512"] {
        for kid in ["k1", "k2"] {
            let head = json!({"alg": algorithm, "kid": kid});
            for signature in [Vec::new(), rsa.hmac_by_public_key(&Signer::signed(&head, &claims))] {
                let token = Signer::assembled(&head, &claims, &signature);
                assert_eq!(tokens.check(&token, now()).unwrap_err(), Fault::Algorithm, "{algorithm}");
            }
        }
    }
    // By a good key, under the name of another or with an algorithm that is not its own.
    for (head, signer) in [
        (json!({"alg": "RS256", "kid": "k2"}), &rsa),
        (json!({"alg": "EdDSA", "kid": "k1"}), &ed),
        (json!({"alg": "ES256", "kid": "k1"}), &rsa),
    ] {
        let token = Signer::assembled(&head, &claims, &signer.signature(&Signer::signed(&head, &claims)));
        assert_eq!(tokens.check(&token, now()).unwrap_err(), Fault::UnknownSigner, "{head}");
    }
    let head = json!({"alg": "PS256", "kid": "k1"});
    let token = Signer::assembled(&head, &claims, &rsa.signature(&Signer::signed(&head, &claims)));
    assert_eq!(tokens.check(&token, now()).unwrap_err(), Fault::Signature, "RS256's signature as PS256's");
}

#[test]
fn a_key_that_names_its_algorithm_checks_no_other() {
    let mut only = Signer::rsa("k1", "PS256");
    only.extra = json!({"alg": "PS256"});
    let tokens = tokens(&jwt(), &[&only]);
    assert!(tokens.check(&only.token(&claims(json!({}))), now()).is_ok());
    let other = Signer::rsa("k1", "RS256");
    assert_eq!(tokens.check(&other.token(&claims(json!({}))), now()).unwrap_err(), Fault::UnknownSigner);
    let mut wrong = Signer::ed25519("k2");
    wrong.extra = json!({"alg": "RS256"});
    assert!(KeySet::read(json!({"keys": [wrong.jwk()]}).to_string().as_bytes()).is_err());
}

#[test]
fn a_token_without_a_key_id_is_tried_with_a_bounded_number_of_keys() {
    let signers: Vec<Signer> = (0..20).map(|number| Signer::ed25519(&format!("k{number}"))).collect();
    let tokens = tokens(&jwt(), &signers.iter().collect::<Vec<_>>());
    let by = |index: usize| {
        let (head, claims) = (json!({"alg": "EdDSA"}), claims(json!({})));
        let token = Signer::assembled(&head, &claims, &signers[index].signature(&Signer::signed(&head, &claims)));
        tokens.check(&token, now()).map(|_| ())
    };
    assert_eq!((by(0), by(7), by(8)), (Ok(()), Ok(()), Err(Fault::Signature)));
}

#[test]
fn a_token_is_read_in_one_way_only() {
    let signer = Signer::ed25519("k1");
    let tokens = tokens(&jwt(), &[&signer]);
    let claims = claims(json!({}));
    let good = signer.token(&claims);
    let critical = json!({"alg": "EdDSA", "kid": "k1", "crit": ["b64"], "b64": false});
    let critical = Signer::assembled(&critical, &claims, &signer.signature(&Signer::signed(&critical, &claims)));
    assert_eq!(tokens.check(&critical, now()).unwrap_err(), Fault::Extension);
    let twice = Signer::assembled_raw(r#"{"alg":"EdDSA","kid":"k1","kid":"k1"}"#, &claims.to_string(), &signer);
    let not_an_object = Signer::assembled_raw(r#"{"alg":"EdDSA","kid":"k1"}"#, "[1]", &signer);
    for bad in [
        "",
        "a",
        "a.b",
        "..",
        &format!("{good}."),
        &format!(".{good}"),
        &format!("{good}.a.b"),
        &format!("{good}="),
        &good.replacen('.', "=.", 1),
        &good.replacen('.', "\u{e9}.", 1),
        &twice,
        &not_an_object,
    ] {
        assert_eq!(tokens.check(bad, now()).unwrap_err(), Fault::Malformed, "{bad}");
    }
    let long = signer.token(&serde_json::json!({"a": "x".repeat(20_000)}));
    assert_eq!(tokens.check(&long, now()).unwrap_err(), Fault::TooLong);
}

#[test]
fn i10_a_check_dies_with_the_keys_that_it_was_made_by() {
    let (a, b) = (Signer::ed25519("k1"), Signer::ed25519("k1"));
    let tokens = tokens(&jwt(), &[&a]);
    let (by_a, by_b) = (a.token(&claims(json!({}))), b.token(&claims(json!({}))));
    assert!(tokens.check(&by_a, now()).is_ok());
    let fault = tokens.check(&by_b, now()).unwrap_err();
    assert!(fault == Fault::Signature && fault.may_be_old_keys());
    tokens.source.put(key_set(&[&b]));
    assert!(tokens.check(&by_b, now()).is_ok());
    assert_eq!(tokens.check(&by_a, now()).unwrap_err(), Fault::Signature);
}

#[test]
fn i04_before_the_first_keys_nobody_passes() {
    let signer = Signer::ed25519("k1");
    let auth = auth(Some(tokens(&jwt(), &[])), None);
    let good = bearer(&signer.token(&claims(json!({}))));
    assert_eq!(checked(&auth, &[("authorization", &good)]).unwrap_err(), Fault::NoKeys);
    let rejection = auth.admit_now(&headers(&[("authorization", &good)]), now()).unwrap_err();
    assert_eq!((rejection.reason, rejection.should_retry), (Reason::Unauthenticated, Some("true")));
    let Err(Held::Waiting(_)) = auth.admit(&headers(&[("authorization", &good)]), now()) else {
        panic!("keys are on their way, and the request waits for them");
    };
    let stranger = bearer(&signer.token(&claims(json!({"iss": "https://else.example"}))));
    let Err(Held::Refused(_)) = auth.admit(&headers(&[("authorization", &stranger)]), now()) else {
        panic!("no key makes this a token of the provider");
    };
}

#[test]
fn either_a_token_or_a_key_suffices() {
    let signer = Signer::ed25519("k1");
    let both = auth(Some(tokens(&jwt(), &[&signer])), Some(keys()));
    let token = bearer(&signer.token(&claims(json!({}))));
    let (key, wrong) = (bearer(KEY), bearer("sk-batch-0123456780"));
    let name = HeaderName::from_static;
    for (pairs, subject, credential) in [
        (&[("authorization", token.as_str())][..], "alice", AUTHORIZATION),
        (&[("authorization", &key)], "batch", AUTHORIZATION),
        (&[("x-api-key", KEY)], "batch", name("x-api-key")),
        (&[("api-key", KEY)], "batch", name("api-key")),
        (&[("x-api-key", KEY), ("authorization", "Basic abc")], "batch", name("x-api-key")),
        (&[("x-api-key", "some-other-service"), ("authorization", &token)], "alice", AUTHORIZATION),
    ] {
        assert_eq!(checked(&both, pairs), Ok((Some(subject.to_owned()), credential)), "{pairs:?}");
    }
    for (pairs, fault) in [
        (&[("authorization", wrong.as_str())][..], Fault::UnknownKey),
        (&[("x-api-key", "some-other-service")], Fault::UnknownKey),
        (&[("x-api-key", KEY), ("x-api-key", KEY)], Fault::Repeated),
        (&[("authorization", &token), ("authorization", &token)], Fault::Repeated),
        (&[("authorization", "Basic abc")], Fault::Scheme),
    ] {
        assert_eq!(checked(&both, pairs), Err(fault), "{pairs:?}");
    }
    assert!(matches!(checked(&both, &[]), Err(Fault::Missing(_))));
    let only_keys = auth(None, Some(keys()));
    assert!(checked(&only_keys, &[("authorization", &key)]).is_ok());
    assert_eq!(checked(&only_keys, &[("authorization", &token)]), Err(Fault::UnknownKey));
    let only_tokens = auth(Some(tokens(&jwt(), &[&signer])), None);
    assert!(matches!(checked(&only_tokens, &[("x-api-key", KEY)]), Err(Fault::Missing(_))), "keys are off");
    assert_eq!(checked(&only_tokens, &[("authorization", &key)]), Err(Fault::Malformed));
}

#[test]
fn a_refusal_says_what_to_do_and_repeats_nothing_secret() {
    let signer = Signer::ed25519("k1");
    let required =
        api::RequiredClaim { name: "tier".into(), holds: api::ClaimHolds::Text, values: vec!["gold".into()] };
    let jwt = api::Jwt { required_claims: vec![required], ..jwt() };
    let auth = auth(Some(tokens(&jwt, &[&signer])), Some(keys()));
    let poor = signer.token(&claims(json!({"tier": "bronze-tier"})));
    let gone = signer.token(&claims(json!({"exp": NOW_S - 1000})));
    for (presented, status, challenge) in [
        (None, StatusCode::UNAUTHORIZED, "Bearer realm=\"chat\""),
        (Some(&poor), StatusCode::FORBIDDEN, "error=\"insufficient_scope\""),
        (Some(&gone), StatusCode::UNAUTHORIZED, "error=\"invalid_token\", error_description=\"the token has expired"),
        (Some(&"secret-stuff".to_owned()), StatusCode::UNAUTHORIZED, "error=\"invalid_token\""),
    ] {
        let presented = presented.map(|token| bearer(token));
        let pairs: Vec<(&'static str, &str)> =
            presented.iter().map(|value| ("authorization", value.as_str())).collect();
        let rejection = auth.admit_now(&headers(&pairs), now()).unwrap_err();
        let response = rejection.respond(Dialect::OpenAi);
        let said = response.headers()["www-authenticate"].to_str().unwrap();
        assert_eq!(response.status(), status);
        assert!(said.starts_with("Bearer realm=\"chat\"") && said.contains(challenge), "{said}");
        assert_eq!(said.contains("error"), presented.is_some(), "without credentials there is no error to name");
        let everything = format!("{rejection:?}{said}{}", String::from_utf8_lossy(response.body()));
        for secret in ["bronze-tier", "secret-stuff", "alice"].into_iter().chain(presented.as_deref()) {
            assert!(!everything.contains(secret), "{secret} in {everything}");
        }
    }
}

proptest! {
    #[test]
    fn no_token_that_was_tampered_with_passes(position in any::<prop::sample::Index>(), byte in any::<u8>(), cut in any::<bool>()) {
        let signer = Signer::ecdsa("k1", "ES256");
        let tokens = tokens(&jwt(), &[&signer]);
        let good = signer.token(&claims(json!({"tier": "gold"})));
        prop_assert!(tokens.check(&good, now()).is_ok());
        let mut bytes = good.clone().into_bytes();
        let position = position.index(bytes.len());
        if cut {
            bytes.remove(position);
        } else {
            bytes[position] = byte & 0x7f;
        }
        let tampered = String::from_utf8(bytes).unwrap();
        prop_assert!(tampered == good || tokens.check(&tampered, now()).is_err(), "{tampered}");
    }

    #[test]
    fn nothing_that_anybody_writes_makes_a_key_set_or_a_token_panic(text in "\\PC{0,200}", bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _either = KeySet::read(&bytes).is_ok();
        let _either = KeySet::read(format!("{{\"keys\":[{{\"kty\":\"RSA\",\"n\":{text:?},\"e\":{text:?}}}]}}").as_bytes()).is_ok();
        let _either = Token::read(&text).is_ok();
    }
}
