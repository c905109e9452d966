//! What a request's headers say to flow control: how urgent it is, whose it is, and by when it wants to begin.
//!
//! Where everybody may send requests they are believed, as the reference endpoint picker believes them: there is no one here
//! to tell callers apart by. A caller who had to be let in is believed as far as the configuration says of its claims: no
//! higher than its band, and no other flow than its own. Nothing that headers say may cost memory or a label: a name is looked
//! up among those configured, a key becomes a number, a time is bounded.

use std::time::Duration;

use api::{BandClaim, FlowBand};
use flow_control::{Ask, Flow};
use http::{HeaderMap, HeaderName};
use pool::Moment;
use protocol::headers::{FAIRNESS_ID, OBJECTIVE, SLO_TTFT_MS};
use xxhash_rust::xxh3::xxh3_64;

use crate::{
    auth::{Admitted, Identity},
    routes::Served,
    stage::Times,
};

/// Longest time to the first token that a client can ask for; more is taken as this.
const SLO_TTFT_MAX: Duration = Duration::from_secs(3600);

/// The request as flow control sees it, of a caller who had to be let in or of anybody. `started`: when its head was read.
pub(super) fn ask(
    headers: &HeaderMap,
    admitted: Option<&Admitted>,
    served: &Served,
    body_bytes: u64,
    started: Moment,
    times: Times,
) -> Ask {
    let wished = wished(headers, served);
    let (priority, flow) = match admitted {
        None => (wished.unwrap_or(STANDARD), said(headers, &FAIRNESS_ID)),
        Some(Admitted { identity, .. }) => {
            let band = band(identity, served.band_claim.as_deref());
            (granted(wished, band), identity.subject().map(str::as_bytes))
        }
    };
    Ask {
        priority,
        flow: flow.map(|key| Flow(xxh3_64(key))).unwrap_or_default(),
        bytes: body_bytes,
        deadline: said(headers, &SLO_TTFT_MS).and_then(milliseconds).map(|slo| started + slo.min(SLO_TTFT_MAX)),
        // Time that its route does not leave it is not worth waiting for.
        wait_until: times.request.map(|limit| started + limit),
    }
}

/// Priority of requests that name none, or one that is not known.
const STANDARD: i32 = 0;

/// The priority that a request names.
fn wished(headers: &HeaderMap, served: &Served) -> Option<i32> {
    let name = said(headers, &OBJECTIVE)?;
    let known = std::str::from_utf8(name).ok().and_then(|name| served.objectives.get(name));
    Some(known.copied().unwrap_or_else(|| {
        served.pool.queue.unknown_objective();
        STANDARD
    }))
}

/// The highest band of a caller: that of its claim, the best one if the claim is a list. What the configuration says nothing
/// of is standard.
fn band(identity: &Identity, claim: Option<&BandClaim>) -> FlowBand {
    let Some(claim) = claim else { return FlowBand::Standard };
    let bands = identity.claim(&claim.name).iter().filter_map(|value| claim.values.get(&**value).copied());
    bands
        .min_by_key(|band| match band {
            FlowBand::Critical => 0,
            FlowBand::Standard => 1,
            FlowBand::Sheddable => 2,
        })
        .unwrap_or(FlowBand::Standard)
}

/// What a request gets of what it wishes for: all of it up to its caller's band, and that band if it wishes for nothing.
fn granted(wished: Option<i32>, band: FlowBand) -> i32 {
    let (usual, most) = match band {
        FlowBand::Critical => (1, i32::MAX),
        FlowBand::Standard => (STANDARD, STANDARD),
        FlowBand::Sheddable => (-1, -1),
    };
    wished.unwrap_or(usual).min(most)
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
    fn a_caller_gets_its_band_and_no_more() {
        let (critical, standard, sheddable) = (FlowBand::Critical, FlowBand::Standard, FlowBand::Sheddable);
        for (wished, band, priority) in [
            (None, critical, 1),
            (Some(100), critical, 100),
            (Some(-5), critical, -5),
            (None, standard, 0),
            (Some(100), standard, 0),
            (Some(-5), standard, -5),
            (None, sheddable, -1),
            (Some(100), sheddable, -1),
            (Some(0), sheddable, -1),
            (Some(-5), sheddable, -5),
        ] {
            assert_eq!(granted(wished, band), priority, "{wished:?} {band:?}");
        }
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
