//! What a client is told of its quotas: in headers, and in words when it is beyond one.

use std::time::Duration;

use flow_control::quota::{Key, Left, Refusal, Table, Unit, Until};
use http::{HeaderMap, HeaderName, HeaderValue};
use pool::Moment;
use protocol::{Reason, headers::RATE_LIMIT_PREFIX};

use super::Rule;
use crate::rejection::Rejection;

/// When to come back with a request that can never pass: a minute is all that could come back of anything.
const NEVER_RETRY_AFTER_S: u32 = 60;

/// What is left of the tightest limit of requests and of tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RateLimits {
    requests: Option<Left>,
    tokens: Option<Left>,
}

/// Limit, remaining and reset.
pub const REQUESTS: [HeaderName; 3] = [
    HeaderName::from_static("x-ratelimit-limit-requests"),
    HeaderName::from_static("x-ratelimit-remaining-requests"),
    HeaderName::from_static("x-ratelimit-reset-requests"),
];
/// The same of tokens.
pub const TOKENS: [HeaderName; 3] = [
    HeaderName::from_static("x-ratelimit-limit-tokens"),
    HeaderName::from_static("x-ratelimit-remaining-tokens"),
    HeaderName::from_static("x-ratelimit-reset-tokens"),
];

impl RateLimits {
    /// Takes what is tighter in one more table.
    pub(super) fn narrow(&mut self, table: &Table, key: Key, now: Moment) {
        let tighter = |known: &mut Option<Left>, unit| {
            if let Some(left) = table.left(key, unit, now)
                && known.is_none_or(|known| (left.remaining, left.limit) < (known.remaining, known.limit))
            {
                *known = Some(left);
            }
        };
        tighter(&mut self.requests, Unit::Requests);
        for unit in [Unit::Tokens, Unit::InputTokens, Unit::OutputTokens] {
            tighter(&mut self.tokens, unit);
        }
    }

    /// Puts them into an answer's headers, in place of what an endpoint says of limits of its own: those would be taken
    /// for the gateway's, and a client counts against one set of numbers.
    pub fn write(&self, headers: &mut HeaderMap) {
        if !headers.is_empty() {
            let theirs = headers.keys().filter(|name| name.as_str().starts_with(RATE_LIMIT_PREFIX));
            for name in theirs.cloned().collect::<Vec<_>>() {
                headers.remove(name);
            }
        }
        for (left, [limit, remaining, reset]) in [(self.requests, REQUESTS), (self.tokens, TOKENS)] {
            if let Some(left) = left {
                headers.insert(limit, left.limit.into());
                headers.insert(remaining, left.remaining.into());
                headers.insert(reset, value(left.full_in));
            }
        }
    }
}

fn value(time: Duration) -> HeaderValue {
    HeaderValue::try_from(span(time)).expect("digits and letters are a header value")
}

/// A time as OpenAI writes it: `12ms`, `1s`, `6m0s`. Rounded up, so that whoever waits for it has waited long enough.
fn span(time: Duration) -> String {
    let ms = time.as_nanos().div_ceil(1_000_000);
    if ms == 0 {
        return "0s".to_owned();
    }
    if ms < 1_000 {
        return format!("{ms}ms");
    }
    match (ms.div_ceil(1_000) / 60, ms.div_ceil(1_000) % 60) {
        (0, seconds) => format!("{seconds}s"),
        (minutes, seconds) => format!("{minutes}m{seconds}s"),
    }
}

/// The answer to a request that is beyond a limit.
pub fn refuse(rule: &Rule, refusal: &Refusal) -> Rejection {
    let (name, Refusal { limit, asked, .. }) = (rule.name(), refusal);
    let counted = match refusal.unit {
        Unit::Requests => "requests per minute",
        Unit::Tokens => "tokens of prompts and answers per minute",
        Unit::InputTokens => "tokens of prompts per minute",
        Unit::OutputTokens => "tokens of answers per minute",
        Unit::Concurrency => "requests at a time",
    };
    let allows = format!("limit `{name}` allows {limit} {counted}");
    let fewer = match refusal.unit {
        Unit::InputTokens => "send a shorter prompt",
        Unit::OutputTokens => "ask for fewer with max_tokens",
        Unit::Tokens | Unit::Requests | Unit::Concurrency => "send a shorter prompt or ask for fewer with max_tokens",
    };
    match (refusal.until, refusal.unit) {
        (Until::Never, _) => {
            let message = format!(
                "{allows}, and this request alone is estimated to take {asked}: it can never pass as it is; {fewer}, or \
                 have the operator raise the limit"
            );
            Rejection::new(Reason::QuotaExceeded, message).retry_after_s(NEVER_RETRY_AFTER_S).pointless()
        }
        (Until::OneEnds, _) => {
            let message = format!("{allows}, and as many are open: send it again when one of them has ended");
            Rejection::new(Reason::QuotaExceeded, message)
        }
        (Until::After(wait), Unit::Requests | Unit::Concurrency) => {
            let message = format!("{allows}, and they are used up: try again after the time in Retry-After");
            Rejection::new(Reason::QuotaExceeded, message).retry_after_s(whole_seconds(wait))
        }
        (Until::After(wait), Unit::Tokens | Unit::InputTokens | Unit::OutputTokens) => {
            let message = format!(
                "{allows}, and fewer are left than the {asked} that this request is estimated to take: try again after \
                 the time in Retry-After, or {fewer}"
            );
            Rejection::new(Reason::QuotaExceeded, message).retry_after_s(whole_seconds(wait))
        }
    }
}

fn whole_seconds(wait: Duration) -> u32 {
    let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
    u32::try_from(seconds).unwrap_or(u32::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_clients_of_openai_read_them() {
        let ms = Duration::from_millis;
        for (time, text) in [
            (Duration::ZERO, "0s"),
            (Duration::from_nanos(1), "1ms"),
            (ms(12), "12ms"),
            (ms(999), "999ms"),
            (ms(1_000), "1s"),
            (ms(1_001), "2s"),
            (ms(59_001), "1m0s"),
            (ms(360_000), "6m0s"),
            (ms(61_500), "1m2s"),
        ] {
            assert_eq!(span(time), text);
        }
    }

    #[test]
    fn a_wait_is_told_in_whole_seconds_that_are_enough() {
        for (wait_ms, seconds) in [(1, 1), (999, 1), (1_000, 1), (1_001, 2), (60_000, 60)] {
            assert_eq!(whole_seconds(Duration::from_millis(wait_ms)), seconds);
        }
    }
}
