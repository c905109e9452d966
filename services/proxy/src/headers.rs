//! Header fields at the border between two connections: what belongs to one of them alone never crosses.
//!
//! Framing is made anew on each side, from the body at hand. Everything else crosses, repeats of a name in their order:
//! this module removes, it does not rebuild. It refuses to set anything that has a meaning to the gateway.

use http::{
    HeaderMap, HeaderName, HeaderValue, Method, StatusCode,
    header::{
        CONNECTION, CONTENT_LENGTH, EXPECT, HOST, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE, TRAILER,
        TRANSFER_ENCODING, UPGRADE,
    },
};

/// Fields that concern one connection, whatever `Connection` says (RFC 9110 §7.6.1, and two that HTTP/1.0 left behind).
static HOP_BY_HOP: [HeaderName; 9] = [
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
    CONNECTION,
];

/// Names taken from one message's `Connection` fields at most; a message with more is hostile, and the rest stays.
const CONNECTION_NAMES_MAX: usize = 64;

/// Removes `Connection`, what it names, and the other fields that concern one connection only.
pub fn strip_hop_by_hop(headers: &mut HeaderMap) {
    if headers.contains_key(CONNECTION) {
        for name in named_by_connection(headers) {
            headers.remove(name);
        }
    }
    for name in &HOP_BY_HOP {
        headers.remove(name);
    }
}

/// Makes a client's request head fit to be sent on: hop-by-hop fields, the framing, `Expect` and `Host` go.
///
/// [`crate::client::Clients::send`] sets `Host` and the framing by destination and body. `TE: trailers` is kept, since
/// whoever asked for trailers can take them whatever lies between; it is dropped again where the endpoint speaks HTTP/1.1.
pub fn prepare_request(headers: &mut HeaderMap) {
    let trailers = headers.contains_key(TE) && accepts_trailers(headers);
    strip_hop_by_hop(headers);
    headers.remove(EXPECT);
    headers.remove(CONTENT_LENGTH);
    headers.remove(HOST);
    if trailers {
        headers.insert(TE, HeaderValue::from_static("trailers"));
    }
}

/// Makes an endpoint's answer head fit to be sent on to the client that asked with `method`.
///
/// `Content-Length` stays where it describes a body not sent (HEAD, 304) or the body that follows; it goes where another
/// framing overruled it, and where no body may follow.
pub fn prepare_response(method: &Method, status: StatusCode, headers: &mut HeaderMap) {
    let overruled = headers.contains_key(TRANSFER_ENCODING) && *method != Method::HEAD;
    strip_hop_by_hop(headers);
    if overruled || status == StatusCode::NO_CONTENT || status.is_informational() {
        headers.remove(CONTENT_LENGTH);
    } else {
        merge_equal_lengths(headers);
    }
}

/// Whether the sender of these fields takes trailers.
pub fn accepts_trailers(headers: &HeaderMap) -> bool {
    headers.get_all(TE).iter().flat_map(tokens).any(|token| token.eq_ignore_ascii_case(b"trailers"))
}

/// The items of a comma-separated field, without blanks around them.
pub(crate) fn tokens(value: &HeaderValue) -> impl Iterator<Item = &[u8]> {
    value.as_bytes().split(|&byte| byte == b',').map(<[u8]>::trim_ascii).filter(|token| !token.is_empty())
}

fn named_by_connection(headers: &HeaderMap) -> Vec<HeaderName> {
    let named = headers.get_all(CONNECTION).iter().flat_map(tokens);
    named.filter_map(|token| HeaderName::from_bytes(token).ok()).take(CONNECTION_NAMES_MAX).collect()
}

/// Repeats that agree were accepted by the reader of the message; one of them is enough for the next.
fn merge_equal_lengths(headers: &mut HeaderMap) {
    if headers.get_all(CONTENT_LENGTH).iter().nth(1).is_some()
        && let Some(first) = headers.get(CONTENT_LENGTH).cloned()
    {
        headers.insert(CONTENT_LENGTH, first);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(fields: &[(&str, &str)]) -> HeaderMap {
        let field = |(name, value): &(&str, &str)| {
            (HeaderName::from_bytes(name.as_bytes()).unwrap(), HeaderValue::from_bytes(value.as_bytes()).unwrap())
        };
        let mut headers = HeaderMap::new();
        for (name, value) in fields.iter().map(field) {
            headers.append(name, value);
        }
        headers
    }

    fn listed(headers: &HeaderMap) -> Vec<String> {
        headers.iter().map(|(name, value)| format!("{name}: {}", String::from_utf8_lossy(value.as_bytes()))).collect()
    }

    #[test]
    fn c05_hop_by_hop_and_named_fields_do_not_cross() {
        let mut headers = map(&[
            ("host", "gateway"),
            ("x-first", "1"),
            ("connection", "keep-alive, X-Drop"),
            ("x-drop", "1"),
            ("x-drop", "2"),
            ("cookie", "a=1"),
            ("keep-alive", "timeout=5"),
            ("proxy-connection", "keep-alive"),
            ("te", "trailers"),
            ("trailer", "x-t"),
            ("transfer-encoding", "chunked"),
            ("upgrade", "websocket"),
            ("proxy-authorization", "secret"),
            ("connection", "x-also , ,\tx-more"),
            ("x-also", "1"),
            ("x-more", "1"),
            ("cookie", "b=2"),
            ("expect", "100-continue"),
            ("content-length", "7"),
            ("x-last", "1"),
        ]);
        prepare_request(&mut headers);
        let mut left = listed(&headers);
        left.sort();
        assert_eq!(left, ["cookie: a=1", "cookie: b=2", "te: trailers", "x-first: 1", "x-last: 1"]);
        let cookies: Vec<_> = headers.get_all("cookie").iter().collect();
        assert_eq!(cookies, ["a=1", "b=2"], "repeats keep their order");
    }

    #[test]
    fn c05_te_without_trailers_is_dropped() {
        let mut headers = map(&[("te", "gzip;q=0.5")]);
        prepare_request(&mut headers);
        assert!(headers.is_empty());
    }

    #[test]
    fn c05_answers_lose_what_their_connection_named() {
        let mut headers = map(&[("connection", "X-R"), ("x-r", "1"), ("trailer", "T"), ("server", "uvicorn")]);
        prepare_response(&Method::POST, StatusCode::OK, &mut headers);
        assert_eq!(listed(&headers), ["server: uvicorn"]);
    }

    #[test]
    fn c07_equal_lengths_are_merged() {
        let mut headers = map(&[("content-length", "5"), ("content-length", "5")]);
        prepare_response(&Method::POST, StatusCode::OK, &mut headers);
        assert_eq!(listed(&headers), ["content-length: 5"]);
    }

    #[test]
    fn b05_a_length_overruled_by_chunks_is_dropped() {
        let mut headers = map(&[("content-length", "212"), ("transfer-encoding", "chunked")]);
        prepare_response(&Method::POST, StatusCode::OK, &mut headers);
        assert!(headers.is_empty());
    }

    #[test]
    fn c09_lengths_without_bodies() {
        let length = [("content-length", "999")];
        for (method, status, kept) in [
            (Method::HEAD, StatusCode::OK, true),
            (Method::GET, StatusCode::NOT_MODIFIED, true),
            (Method::GET, StatusCode::NO_CONTENT, false),
        ] {
            let mut headers = map(&length);
            prepare_response(&method, status, &mut headers);
            assert_eq!(!headers.is_empty(), kept, "{method} {status}");
        }
    }
}
