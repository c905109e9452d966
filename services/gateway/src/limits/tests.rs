//! Several rules together, the holds of one request, and what its client is told.

use std::{num::NonZeroU64, time::Duration};

use api::LimitKey;
use flow_control::quota::{End, Until};
use http::{HeaderValue, header::AUTHORIZATION};
use telemetry::{Format, Metrics};

use super::*;

fn limit(name: &str, header: &str) -> api::Limit {
    api::Limit {
        name: name.into(),
        key: LimitKey::Header(header.into()),
        models: None,
        requests_per_minute: None,
        tokens_per_minute: None,
        input_tokens_per_minute: None,
        output_tokens_per_minute: None,
        concurrent_requests: None,
    }
}

fn rule(limit: &api::Limit, metrics: &Metrics) -> Arc<Rule> {
    let rule = Rule::new(Identity::new(None, limit), metrics);
    rule.configure(rates(limit), 1, Moment::ORIGIN);
    rule
}

fn always(rules: &[&Arc<Rule>]) -> Matching {
    Matching::new(rules.iter().map(|rule| (Arc::clone(rule), Condition::Always)))
}

fn team(name: &'static str) -> HeaderMap {
    HeaderMap::from_iter([("x-team".parse().unwrap(), HeaderValue::from_static(name))])
}

fn at_ms(ms: u64) -> Moment {
    Moment::from_origin(Duration::from_millis(ms))
}

const HUNDRED: Tokens = Tokens { input: 60, output: 40 };

fn headers(limits: RateLimits) -> Vec<String> {
    let mut headers = HeaderMap::new();
    limits.write(&mut headers);
    let mut lines: Vec<String> =
        headers.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect();
    lines.sort();
    lines
}

#[test]
fn f06_a_request_is_charged_under_every_rule_or_under_none() {
    let metrics = Metrics::default();
    let per_team =
        rule(&api::Limit { requests_per_minute: NonZeroU64::new(10), ..limit("per-team", "x-team") }, &metrics);
    let all = rule(&api::Limit { tokens_per_minute: NonZeroU64::new(150), ..limit("all", "x-none") }, &metrics);
    let matching = always(&[&per_team, &all]);
    let (a, b) = (matching.standing(&team("a"), None, None), matching.standing(&team("b"), None, None));
    let _first = a.reserve(HUNDRED, at_ms(0)).ok().expect("within both");
    for _ in 0..20 {
        let (rule, refusal) = b.reserve(HUNDRED, at_ms(0)).err().expect("too few tokens are left for all");
        assert_eq!((rule.name(), refusal.until), ("all", Until::After(Duration::from_secs(20))));
    }
    assert_eq!(
        headers(b.left(at_ms(0))),
        [
            "x-ratelimit-limit-requests: 10",
            "x-ratelimit-limit-tokens: 150",
            "x-ratelimit-remaining-requests: 10",
            "x-ratelimit-remaining-tokens: 50",
            "x-ratelimit-reset-requests: 0s",
            "x-ratelimit-reset-tokens: 40s",
        ]
    );
    let page = metrics.render(Format::Text);
    assert!(page.contains(r#"inference_gateway_limit_rejections_total{limit="all",unit="tokens"} 20"#), "{page}");
    assert_eq!((per_team.levels(), all.levels()), ((2, 1), (1, 1)));
}

#[test]
fn a_hold_that_is_dropped_without_a_word_gives_everything_back() {
    let metrics = Metrics::default();
    let limit = api::Limit {
        requests_per_minute: NonZeroU64::new(1),
        tokens_per_minute: NonZeroU64::new(100),
        concurrent_requests: NonZeroU64::new(1),
        ..limit("per-team", "x-team")
    };
    let rule = rule(&limit, &metrics);
    let standing = always(&[&rule]).standing(&team("a"), None, None);
    for round in 0..100 {
        let mut charge = standing.reserve(HUNDRED, at_ms(round)).ok().expect("nothing is used");
        charge.produced(1, at_ms(round));
        assert_eq!(rule.levels().1, 1);
        drop(charge);
        assert_eq!(rule.levels().1, 0);
    }
    let charge = standing.reserve(HUNDRED, at_ms(200)).ok().expect("nothing is used");
    charge.end(End::Took(HUNDRED), at_ms(200));
    assert!(standing.reserve(HUNDRED, at_ms(200)).is_err());
}

#[test]
fn a_stream_beyond_its_estimate_is_charged_while_it_runs_at_most_each_second() {
    let metrics = Metrics::default();
    let limit = api::Limit { tokens_per_minute: NonZeroU64::new(6_000), ..limit("per-team", "x-team") };
    let rule = rule(&limit, &metrics);
    let standing = always(&[&rule]).standing(&team("a"), None, None);
    let remaining = |now| {
        let left = standing.left(now);
        headers(left).iter().find_map(|line| line.strip_prefix("x-ratelimit-remaining-tokens: ")?.parse().ok())
    };
    let mut charge = standing.reserve(HUNDRED, at_ms(0)).ok().expect("within the quota");
    charge.produced(40, at_ms(2_000));
    assert_eq!(remaining(at_ms(2_000)), Some(6_000_u64), "what was reserved covers it");
    charge.produced(1_040, at_ms(2_000));
    assert_eq!(remaining(at_ms(2_000)), Some(5_000));
    charge.produced(2_040, at_ms(2_999));
    assert_eq!(remaining(at_ms(2_999)), Some(5_099), "not twice in a second");
    charge.produced(2_040, at_ms(3_000));
    assert_eq!(remaining(at_ms(3_000)), Some(4_100));
    charge.end(End::Took(Tokens { input: 60, output: 1_540 }), at_ms(3_000));
    assert_eq!(remaining(at_ms(3_000)), Some(4_600));
}

#[test]
fn callers_are_told_apart_by_the_last_value_and_those_without_one_are_one_caller() {
    let metrics = Metrics::default();
    let rule = rule(&limit("per-team", "x-team"), &metrics);
    let mut forged = team("forged");
    forged.append("x-team", HeaderValue::from_static("a"));
    let key = |headers: &HeaderMap| rule.key_of(headers, None);
    assert_eq!(key(&forged), key(&team("a")));
    assert_ne!(key(&team("a")), key(&team("b")));
    assert_eq!(key(&HeaderMap::new()), key(&team("")));
    let other = Rule::new(rule.identity().clone(), &metrics);
    assert_ne!(other.key_of(&team("a"), None), key(&team("a")), "each rule has a secret of its own");
}

#[test]
fn a_claim_tells_callers_apart_whatever_their_headers_say() {
    let metrics = Metrics::default();
    let rule = rule(&api::Limit { key: LimitKey::Claim("sub".into()), ..limit("per-user", "x-team") }, &metrics);
    let (alice, bob) = (Caller::of_key("alice"), Caller::of_key("bob"));
    let key = |headers: &HeaderMap, caller| rule.key_of(headers, caller);
    assert_eq!(key(&team("a"), Some(&alice)), key(&team("b"), Some(&alice)));
    assert_ne!(key(&team("a"), Some(&alice)), key(&team("a"), Some(&bob)));
    assert_eq!(key(&team("a"), None), key(&team("b"), None), "callers without it share one account");
    // A client with a key is one caller, in whichever header its key comes, and after it was rotated.
    let rule = super::rule::Rule::new(
        Identity::new(None, &api::Limit { key: LimitKey::Authorization, ..limit("a", "") }),
        &metrics,
    );
    let with = |value: &'static str| HeaderMap::from_iter([(AUTHORIZATION, HeaderValue::from_static(value))]);
    assert_eq!(rule.key_of(&with("Bearer 1"), Some(&alice)), rule.key_of(&with("Bearer 2"), Some(&alice)));
    assert_ne!(rule.key_of(&with("Bearer 1"), None), rule.key_of(&with("Bearer 2"), None));
}

#[test]
fn what_takes_any_model_is_limited_by_what_was_asked_for() {
    let metrics = Metrics::default();
    let rule = rule(&limit("scarce", "x-team"), &metrics);
    let models: Box<[String]> = ["scarce".to_owned()].into();
    let matching = Matching::new([(Arc::clone(&rule), Condition::AskedFor(models))]);
    let counts = |asked| !matching.standing(&HeaderMap::new(), None, asked).is_empty();
    assert!(counts(Some("scarce")) && !counts(Some("other")) && !counts(None));
    assert!(Matching::default().standing(&team("a"), None, Some("scarce")).is_empty());
}

#[test]
fn an_endpoints_own_numbers_give_way() {
    let mut headers = HeaderMap::new();
    for (name, value) in [("x-ratelimit-remaining-tokens", "7"), ("x-ratelimit-limit-project", "8"), ("x-other", "9")] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    let metrics = Metrics::default();
    let rule = rule(&api::Limit { requests_per_minute: NonZeroU64::new(5), ..limit("a", "x-team") }, &metrics);
    always(&[&rule]).standing(&team("a"), None, None).left(at_ms(0)).write(&mut headers);
    let mut names: Vec<&str> = headers.keys().map(|name| name.as_str()).collect();
    names.sort_unstable();
    assert_eq!(
        names,
        ["x-other", "x-ratelimit-limit-requests", "x-ratelimit-remaining-requests", "x-ratelimit-reset-requests"]
    );
}

#[test]
fn rules_are_locked_in_one_order_whatever_order_they_are_written_in() {
    let metrics = Metrics::default();
    let rules: Vec<Arc<Rule>> = (0..8).map(|n| rule(&limit(&format!("r{n}"), "x-team"), &metrics)).collect();
    let order = |rules: &mut dyn Iterator<Item = &Arc<Rule>>| -> Vec<String> {
        let rules: Vec<&Arc<Rule>> = rules.collect();
        always(&rules).0.iter().map(|(rule, _)| rule.name().to_owned()).collect()
    };
    assert_eq!(order(&mut rules.iter()), order(&mut rules.iter().rev()));
}

#[test]
fn refusals_say_which_limit_and_what_to_do_and_never_whose() {
    let metrics = Metrics::default();
    let rule = rule(&limit("per-team", "x-team"), &metrics);
    let refusal = |unit, asked, until| Refusal { unit, limit: 100, asked, until };
    use flow_control::quota::Unit;
    let wait = Until::After(Duration::from_millis(1_500));
    let table = [
        (refusal(Unit::Requests, 1, wait), "limit `per-team` allows 100 requests per minute", 2, Some("true")),
        (refusal(Unit::Tokens, 80, wait), "fewer are left than the 80", 2, Some("true")),
        (
            refusal(Unit::OutputTokens, 101, Until::Never),
            "can never pass as it is; ask for fewer with max_tokens",
            60,
            Some("false"),
        ),
        (
            refusal(Unit::Concurrency, 1, Until::OneEnds),
            "allows 100 requests at a time, and as many are open",
            1,
            Some("true"),
        ),
    ];
    for (refusal, words, retry_after_s, should_retry) in table {
        let rejection = refuse(&rule, &refusal);
        assert!(rejection.message.contains(words), "{}", rejection.message);
        assert_eq!((rejection.retry_after_s, rejection.should_retry), (retry_after_s, should_retry));
        assert_eq!(rejection.reason, protocol::Reason::QuotaExceeded);
    }
}
