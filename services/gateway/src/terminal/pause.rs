//! How long an endpoint asks not to be given work, when it refuses.
//!
//! `Retry-After` comes as seconds or as a date. Either is somebody else's word, so it is bounded: no endpoint takes itself
//! out for longer than a minute, and one that refuses without a word is left alone for a second.

use std::time::{Duration, SystemTime};

use http::{HeaderMap, StatusCode, header::RETRY_AFTER};

/// Shortest pause, and the one of a refusal that names none.
const PAUSE_MIN: Duration = Duration::from_secs(1);

/// Longest pause that is believed.
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// The pause that an answer asks for, if it is a refusal for want of room.
pub(super) fn asked_for(status: StatusCode, headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    if !matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) {
        return None;
    }
    let named = headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()).and_then(|text| read(text.trim(), now));
    Some(named.unwrap_or(PAUSE_MIN).clamp(PAUSE_MIN, PAUSE_MAX))
}

fn read(text: &str, now: SystemTime) -> Option<Duration> {
    if text.bytes().all(|byte| byte.is_ascii_digit()) && !text.is_empty() {
        // More digits than fit are a long time all the same.
        return Some(Duration::from_secs(text.parse().unwrap_or(u64::MAX)));
    }
    let until = httpdate::parse_http_date(text).ok()?;
    // A date that has passed asks for nothing more.
    Some(until.duration_since(now).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn pause_s(status: u16, retry_after: Option<&str>) -> Option<u64> {
        // 2026-11-30 12:00:00 UTC.
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_796_040_000);
        let mut headers = HeaderMap::new();
        if let Some(value) = retry_after {
            headers.insert(RETRY_AFTER, HeaderValue::from_str(value).unwrap());
        }
        asked_for(StatusCode::from_u16(status).unwrap(), &headers, now).map(|pause| pause.as_secs())
    }

    #[test]
    fn seconds_dates_and_nonsense_within_a_second_and_a_minute() {
        for status in [429, 503] {
            for (value, pause) in [
                (None, 1),
                (Some("7"), 7),
                (Some(" 7 "), 7),
                (Some("0"), 1),
                (Some("60"), 60),
                (Some("3600"), 60),
                (Some("99999999999999999999999"), 60),
                (Some("-5"), 1),
                (Some("1.5"), 1),
                (Some("soon"), 1),
                (Some(""), 1),
                (Some("Mon, 30 Nov 2026 12:00:09 GMT"), 9),
                (Some("Monday, 30-Nov-26 12:00:09 GMT"), 9),
                (Some("Mon Nov 30 12:00:09 2026"), 9),
                (Some("Mon, 30 Nov 2026 11:00:00 GMT"), 1),
                (Some("Tue, 01 Dec 2026 12:00:00 GMT"), 60),
            ] {
                assert_eq!(pause_s(status, value), Some(pause), "{status} {value:?}");
            }
        }
    }

    #[test]
    fn other_answers_ask_for_no_pause() {
        for status in [200, 301, 400, 404, 500, 501, 502, 504, 529] {
            assert_eq!(pause_s(status, Some("7")), None, "{status}");
        }
    }
}
