//! The gateway's own answers on `/v1/models`: what the pools serve, in OpenAI's shape.
//!
//! Names of models hold slashes and colons, and clients escape them or not, so a name is read from the path by decoding
//! it once. A name escaped twice is another name: it is not found.

use bytes::Bytes;
use serde::Serialize;

use crate::head::MODEL_BYTES_MAX;

/// One model or adapter.
#[derive(Clone, Copy, Debug)]
pub struct Card<'a> {
    pub id: &'a str,
    /// Base model of an adapter.
    pub parent: Option<&'a str>,
    /// When it came to be known, in Unix seconds.
    pub created_s: u64,
    pub owned_by: &'a str,
}

/// The answer of `GET /v1/models`, in the order given.
pub fn list<'a>(cards: impl IntoIterator<Item = Card<'a>>) -> Bytes {
    let data = cards.into_iter().map(Wire::from).collect();
    encode(&List { object: "list", data })
}

/// The answer of `GET /v1/models/{id}`.
pub fn one(card: Card<'_>) -> Bytes {
    encode(&Wire::from(card))
}

/// The name in the path of a request that is [`crate::Api::Model`]: decoded once. None if that gives no name that a
/// model could have: a broken escape, bytes that are no UTF-8, more than [`MODEL_BYTES_MAX`].
pub fn id_in_path(path: &str) -> Option<String> {
    let escaped = path.strip_prefix("/v1/models/")?.as_bytes();
    let mut id = Vec::with_capacity(escaped.len().min(MODEL_BYTES_MAX));
    let mut rest = escaped.iter();
    while let Some(&byte) = rest.next() {
        let byte = match byte {
            b'%' => (hex(*rest.next()?)? << 4) | hex(*rest.next()?)?,
            plain => plain,
        };
        if id.len() == MODEL_BYTES_MAX {
            return None;
        }
        id.push(byte);
    }
    String::from_utf8(id).ok().filter(|id| !id.is_empty())
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok())
}

#[derive(Serialize)]
struct List<'a> {
    object: &'a str,
    data: Vec<Wire<'a>>,
}

#[derive(Serialize)]
struct Wire<'a> {
    id: &'a str,
    object: &'a str,
    created: u64,
    owned_by: &'a str,
    root: &'a str,
    parent: Option<&'a str>,
}

impl<'a> From<Card<'a>> for Wire<'a> {
    fn from(card: Card<'a>) -> Self {
        let Card { id, parent, created_s: created, owned_by } = card;
        Self { id, object: "model", created, owned_by, root: id, parent }
    }
}

fn encode(value: &impl Serialize) -> Bytes {
    serde_json::to_vec(value).expect("structs of strings and numbers always serialise").into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn a12_names_with_slashes_and_colons_are_found_in_each_form() {
        let id = |rest: &str| id_in_path(&format!("/v1/models/{rest}"));
        for form in ["org/name:7b", "org%2Fname:7b", "org%2fname%3A7b", "org/name%3a7b", "%6frg/name:7b"] {
            assert_eq!(id(form).as_deref(), Some("org/name:7b"), "{form}");
        }
        assert_eq!(id("/mnt/models/x").as_deref(), Some("/mnt/models/x"));
        // Escaped twice: another name, which no pool has.
        assert_eq!(id("org%252Fname").as_deref(), Some("org%2Fname"));
        for broken in ["", "%", "%2", "%zz", "a%f", "%ff", "%e4%bd"] {
            assert_eq!(id(broken), None, "{broken}");
        }
        assert_eq!(id("%e4%bd%a0").as_deref(), Some("你"));
        assert_eq!(id(&"a".repeat(MODEL_BYTES_MAX)).map(|id| id.len()), Some(MODEL_BYTES_MAX));
        assert_eq!(id(&"a".repeat(MODEL_BYTES_MAX + 1)), None);
        assert_eq!(id_in_path("/v1/other/x"), None);
    }

    #[test]
    fn the_list_and_the_card_have_openais_shape() {
        let base = Card { id: "org/llama:8b", parent: None, created_s: 1_796_047_378, owned_by: "inference-gateway" };
        let adapter = Card { id: "sql", parent: Some("org/llama:8b"), ..base };
        let got: Value = serde_json::from_slice(&list([base, adapter])).unwrap();
        let card = |id: &str, parent: Value| {
            json!({"id": id, "object": "model", "created": 1_796_047_378, "owned_by": "inference-gateway",
                   "root": id, "parent": parent})
        };
        let want = [card("org/llama:8b", Value::Null), card("sql", json!("org/llama:8b"))];
        assert_eq!(got, json!({"object": "list", "data": want}));
        let got: Value = serde_json::from_slice(&one(adapter)).unwrap();
        assert_eq!(got, want[1]);
        assert_eq!(&list([])[..], br#"{"object":"list","data":[]}"#);
    }
}
