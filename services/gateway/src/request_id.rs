//! The id that names one request in every log on its way.

use std::fmt::Write as _;

use http::{HeaderMap, HeaderValue};
use protocol::{
    headers::{ANTHROPIC_REQUEST_ID, REQUEST_ID},
    path::Dialect,
};

/// Longest client-given id that is kept.
pub const LENGTH_MAX: usize = 128;

/// Keeps the client's `x-request-id` when it is printable ASCII without spaces and at most [`LENGTH_MAX`] characters;
/// else makes one of 32 hexadecimal digits. A long or odd id would be a way to write into other people's logs.
pub fn keep_or_make(given: Option<&HeaderValue>) -> (Box<str>, HeaderValue) {
    if let Some(value) = given
        && let Ok(text) = value.to_str()
        && (1..=LENGTH_MAX).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_graphic())
    {
        return (text.into(), value.clone());
    }
    let mut text = String::with_capacity(32);
    // Writing to a string cannot fail.
    let _ = write!(text, "{:032x}", fastrand::u128(..));
    let value = HeaderValue::from_str(&text).expect("hexadecimal digits are a header value");
    (text.into(), value)
}

/// Names an answer by its request. Anthropic's libraries look for the id in a header of another name, and show none to
/// their user when it is missing.
pub fn echo(id: HeaderValue, dialect: Dialect, headers: &mut HeaderMap) {
    match dialect {
        Dialect::OpenAi | Dialect::Responses => {}
        Dialect::Anthropic => drop(headers.insert(ANTHROPIC_REQUEST_ID, id.clone())),
    }
    headers.insert(REQUEST_ID, id);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_id_is_kept_and_anything_else_replaced() {
        let kept = HeaderValue::from_static("abc-123_{x}");
        assert_eq!(&*keep_or_make(Some(&kept)).0, "abc-123_{x}");
        for odd in ["", "a b", "a\tb"] {
            assert_eq!(keep_or_make(Some(&HeaderValue::from_str(odd).unwrap())).0.len(), 32, "{odd:?}");
        }
        let long = HeaderValue::from_str(&"x".repeat(129)).unwrap();
        let obscure = HeaderValue::from_bytes(b"\xff").unwrap();
        assert_eq!(keep_or_make(Some(&long)).0.len(), 32);
        assert_eq!(keep_or_make(Some(&obscure)).0.len(), 32);
        assert_ne!(keep_or_make(None).0, keep_or_make(None).0);
    }
}
