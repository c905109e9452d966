//! Byte counts as Kubernetes writes them: `64Mi`, `1.5G`, `1000`.

use std::{borrow::Cow, fmt};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

/// `format` of the schema.
pub(crate) const FORMAT: &str = "quantity";

/// Suffix and what it stands for. Kubernetes' smaller ones (`m`, `u`, `n`) are no byte counts.
const SUFFIXES: [(&str, u64); 12] = [
    ("Ki", 1 << 10),
    ("Mi", 1 << 20),
    ("Gi", 1 << 30),
    ("Ti", 1 << 40),
    ("Pi", 1 << 50),
    ("Ei", 1 << 60),
    ("k", 1_000),
    ("M", 1_000_000),
    ("G", 1_000_000_000),
    ("T", 1_000_000_000_000),
    ("P", 1_000_000_000_000_000),
    ("E", 1_000_000_000_000_000_000),
];

/// Most digits after the point.
const FRACTION_DIGITS_MAX: usize = 9;

/// A number of bytes in a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteQuantity(pub u64);

impl ByteQuantity {
    /// Reads Kubernetes' syntax; `None` if it is something else, negative, or above 2⁶⁴. Parts of a byte round up, as
    /// Kubernetes does.
    pub fn parse(text: &str) -> Option<Self> {
        let (number, factor) = SUFFIXES
            .into_iter()
            .find_map(|(suffix, factor)| text.strip_suffix(suffix).map(|number| (number, factor)))
            .unwrap_or((text, 1));
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        let digits = |part: &str| part.bytes().all(|b| b.is_ascii_digit());
        if number.is_empty()
            || number == "."
            || !digits(whole)
            || !digits(fraction)
            || fraction.len() > FRACTION_DIGITS_MAX
        {
            return None;
        }
        let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
        let scale = 10_u128.pow(u32::try_from(fraction.len()).ok()?);
        let part: u128 = if fraction.is_empty() { 0 } else { fraction.parse().ok()? };
        let bytes = u128::from(whole) * u128::from(factor) + (part * u128::from(factor)).div_ceil(scale);
        u64::try_from(bytes).ok().map(Self)
    }
}

impl fmt::Display for ByteQuantity {
    /// With the largest binary suffix that loses nothing.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let exact = SUFFIXES[..6].iter().rev().find(|(_, factor)| self.0 > 0 && self.0.is_multiple_of(*factor));
        match exact {
            Some((suffix, factor)) => write!(f, "{}{suffix}", self.0 / factor),
            None => write!(f, "{}", self.0),
        }
    }
}

impl<'de> Deserialize<'de> for ByteQuantity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written {
            Bytes(u64),
            Text(String),
        }
        match Written::deserialize(deserializer)? {
            Written::Bytes(bytes) => Ok(Self(bytes)),
            Written::Text(text) => {
                Self::parse(&text).ok_or_else(|| D::Error::custom(format!("`{text}` is no number of bytes")))
            }
        }
    }
}

impl Serialize for ByteQuantity {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl JsonSchema for ByteQuantity {
    fn schema_name() -> Cow<'static, str> {
        "ByteQuantity".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "x-kubernetes-int-or-string": true, "format": FORMAT })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn kubernetes_syntax_for_byte_counts() {
        for (text, bytes) in
            [("64Mi", 64 << 20), ("1000", 1000), ("0", 0), ("1.5Gi", 3 << 29), ("2k", 2000), (".5Ki", 512), ("0.1", 1)]
        {
            assert_eq!(ByteQuantity::parse(text), Some(ByteQuantity(bytes)), "{text}");
        }
        for text in ["", "Mi", ".", "-1", "+1", "64mi", "64 Mi", "1e3", "100m", "16Ei", "1..2", "1.0000000001", "é"] {
            assert_eq!(ByteQuantity::parse(text), None, "{text}");
        }
        assert_eq!(ByteQuantity(64 << 20).to_string(), "64Mi");
        assert_eq!(ByteQuantity(1000).to_string(), "1000");
        assert_eq!(ByteQuantity(0).to_string(), "0");
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(bytes in any::<u64>()) {
            prop_assert_eq!(ByteQuantity::parse(&ByteQuantity(bytes).to_string()), Some(ByteQuantity(bytes)));
        }
    }
}
