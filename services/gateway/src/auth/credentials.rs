//! Which headers carry a caller's credentials.
//!
//! `Authorization: Bearer` is what OpenAI's libraries send, and the only way for a token. Keys may also come as `x-api-key`, as
//! Anthropic's libraries send them, or as `api-key`, as Azure's do. A header that is there twice is refused: whoever stands
//! between might look at the other one.

use http::{
    HeaderMap, HeaderName,
    header::{AUTHORIZATION, HeaderValue},
};

use super::Fault;

/// Headers that carry a key and nothing else.
pub(super) static KEY_HEADERS: [HeaderName; 2] =
    [HeaderName::from_static("x-api-key"), HeaderName::from_static("api-key")];

const BEARER: &str = "bearer";

/// The token or key in `Authorization`, if the header is there.
pub(super) fn bearer(headers: &HeaderMap) -> Result<Option<&str>, Fault> {
    let Some(value) = only(headers, &AUTHORIZATION)? else { return Ok(None) };
    let text = value.to_str().map_err(|_| Fault::Scheme)?;
    let (scheme, token) = text.trim().split_once(' ').ok_or(Fault::Scheme)?;
    let token = token.trim_start();
    // A blank or a comma would be a second one.
    if !scheme.eq_ignore_ascii_case(BEARER) || token.is_empty() || token.contains([' ', '\t', ',']) {
        return Err(Fault::Scheme);
    }
    Ok(Some(token))
}

/// The value of a header that may be there once.
pub(super) fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a HeaderValue>, Fault> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (_, Some(_)) => Err(Fault::Repeated),
        (value, None) => Ok(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(values: &[&'static str]) -> HeaderMap {
        values.iter().map(|value| (AUTHORIZATION, HeaderValue::from_static(value))).collect()
    }

    #[test]
    fn one_token_of_the_bearer_scheme() {
        assert_eq!(bearer(&headers(&[])), Ok(None));
        for value in ["Bearer abc", "bearer abc", "BEARER   abc", " Bearer abc "] {
            assert_eq!(bearer(&headers(&[value])), Ok(Some("abc")), "{value}");
        }
        for value in ["abc", "Basic abc", "Bearer", "Bearer ", "Bearer a b", "Bearer a, Bearer b", "Bearer a,b", ""] {
            assert_eq!(bearer(&headers(&[value])), Err(Fault::Scheme), "{value}");
        }
        assert_eq!(bearer(&headers(&["Bearer a", "Bearer a"])), Err(Fault::Repeated));
        let not_text = HeaderMap::from_iter([(AUTHORIZATION, HeaderValue::from_bytes(b"Bearer \xff").unwrap())]);
        assert_eq!(bearer(&not_text), Err(Fault::Scheme));
    }
}
