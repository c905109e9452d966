//! What a request's headers say to flow control: how urgent it is, whose it is, and by when it wants to begin.
//!
//! They are believed, as the reference endpoint picker believes them: there is no one here to tell callers apart by. So
//! nothing they say may cost memory or a label: a name is looked up among those configured, a key becomes a number, a
//! time is bounded.

use std::time::Duration;

use flow_control::{Ask, Flow};
use http::{HeaderMap, HeaderName};
use pool::Moment;
use protocol::headers::{FAIRNESS_ID, OBJECTIVE, SLO_TTFT_MS};
use xxhash_rust::xxh3::xxh3_64;

use crate::{routes::Served, stage::Times};

/// Longest time to the first token that a client can ask for; more is taken as this.
const SLO_TTFT_MAX: Duration = Duration::from_secs(3600);

/// The request as flow control sees it. `started`: when its head was read.
pub(super) fn ask(headers: &HeaderMap, served: &Served, body_bytes: u64, started: Moment, times: Times) -> Ask {
    Ask {
        priority: priority(headers, served),
        flow: said(headers, &FAIRNESS_ID).map(|key| Flow(xxh3_64(key))).unwrap_or_default(),
        bytes: body_bytes,
        deadline: said(headers, &SLO_TTFT_MS).and_then(milliseconds).map(|slo| started + slo.min(SLO_TTFT_MAX)),
        // Time that its route does not leave it is not worth waiting for.
        wait_until: times.request.map(|limit| started + limit),
    }
}

fn priority(headers: &HeaderMap, served: &Served) -> i32 {
    let Some(name) = said(headers, &OBJECTIVE) else { return 0 };
    let known = std::str::from_utf8(name).ok().and_then(|name| served.objectives.get(name));
    known.copied().unwrap_or_else(|| {
        served.pool.queue.unknown_objective();
        0
    })
}

/// The value of the first spelling that says something.
fn said<'a>(headers: &'a HeaderMap, spellings: &[HeaderName; 2]) -> Option<&'a [u8]> {
    let values = spellings.iter().filter_map(|name| headers.get(name));
    values.map(|value| value.as_bytes().trim_ascii()).find(|value| !value.is_empty())
}

/// A whole number of milliseconds, more than none. What is none is no goal.
fn milliseconds(value: &[u8]) -> Option<Duration> {
    let digits = std::str::from_utf8(value).ok().filter(|text| !text.is_empty())?;
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    // Digits alone fail by being too many.
    let ms = digits.parse().unwrap_or(u64::MAX);
    (ms > 0).then(|| Duration::from_millis(ms))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let pair = |(name, value): &(&'static str, &str)| {
            (HeaderName::from_static(name), HeaderValue::from_bytes(value.as_bytes()).unwrap())
        };
        pairs.iter().map(pair).collect()
    }

    #[test]
    fn the_first_spelling_that_says_something_counts() {
        for (pairs, expected) in [
            (&[][..], None),
            (&[("x-gateway-inference-fairness-id", "a")], Some("a")),
            (&[("x-llm-d-inference-fairness-id", " b ")], Some("b")),
            (&[("x-llm-d-inference-fairness-id", "b"), ("x-gateway-inference-fairness-id", "a")], Some("a")),
            (&[("x-gateway-inference-fairness-id", "  "), ("x-llm-d-inference-fairness-id", "b")], Some("b")),
            (&[("x-gateway-inference-fairness-id", "")], None),
        ] {
            assert_eq!(said(&headers(pairs), &FAIRNESS_ID), expected.map(str::as_bytes), "{pairs:?}");
        }
        let twice = headers(&[("x-llm-d-inference-fairness-id", "b"), ("x-llm-d-inference-fairness-id", "c")]);
        assert_eq!(said(&twice, &FAIRNESS_ID), Some(&b"b"[..]), "the first of two");
    }

    #[test]
    fn a_goal_is_a_whole_number_of_milliseconds() {
        for (text, expected) in [("1", Some(1)), ("00250", Some(250)), ("99999999999999999999999", Some(u64::MAX))] {
            assert_eq!(milliseconds(text.as_bytes()), expected.map(Duration::from_millis), "{text}");
        }
        for text in ["0", "-1", "+1", "1.5", "1e3", "250ms", "", "ab", "\u{e9}"] {
            assert_eq!(milliseconds(text.as_bytes()), None, "{text}");
        }
    }
}
