//! Durations as the Gateway API writes them: `30s`, `1h30m`, `200ms`, `0s`.

use std::{borrow::Cow, fmt, time::Duration};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

/// The Gateway API's own pattern.
pub(crate) const PATTERN: &str = "^([0-9]{1,5}(h|m|s|ms)){1,4}$";
/// `format` of the schema.
pub(crate) const FORMAT: &str = "gateway-duration";

/// Largest number before a unit has this many digits.
const DIGITS_MAX: usize = 5;
/// Most number-and-unit pairs.
const PAIRS_MAX: usize = 4;

/// A duration in a document, `0s` unless said. Whole milliseconds; at most four times 99,999 hours, so sums cannot overflow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct GatewayDuration(pub Duration);

impl GatewayDuration {
    /// From whole milliseconds.
    pub const fn from_ms(ms: u64) -> Self {
        Self(Duration::from_millis(ms))
    }

    /// From whole seconds.
    pub const fn from_s(s: u64) -> Self {
        Self(Duration::from_secs(s))
    }

    /// `None` for `0s`, which means that there is no limit.
    pub fn limit(self) -> Option<Duration> {
        (!self.0.is_zero()).then_some(self.0)
    }

    /// Reads the Gateway API's syntax; `None` if it is something else.
    pub fn parse(text: &str) -> Option<Self> {
        let mut rest = text;
        let mut total_ms: u64 = 0;
        let mut pairs = 0;
        while !rest.is_empty() {
            let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
            let (number, after) = rest.split_at(digits);
            let (unit_ms, unit_len) = unit(after)?;
            pairs += 1;
            if !(1..=DIGITS_MAX).contains(&digits) || pairs > PAIRS_MAX {
                return None;
            }
            total_ms += number.parse::<u64>().ok()? * unit_ms;
            rest = &after[unit_len..];
        }
        (pairs > 0).then_some(Self::from_ms(total_ms))
    }
}

/// Milliseconds and length of the unit that a text begins with.
fn unit(text: &str) -> Option<(u64, usize)> {
    [("ms", 1), ("h", 3_600_000), ("m", 60_000), ("s", 1_000)]
        .into_iter()
        .find(|(name, _)| text.starts_with(name))
        .map(|(name, ms)| (ms, name.len()))
}

impl fmt::Display for GatewayDuration {
    /// The shortest text in the same syntax: seconds where they fit, as people say `600s`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mut s, ms) = (self.0.as_secs(), self.0.subsec_millis());
        if s > 99_999 {
            write!(f, "{}h{}m", s / 3600, s % 3600 / 60)?;
            s %= 60;
        }
        if s > 0 || ms == 0 {
            write!(f, "{s}s")?;
        }
        if ms > 0 {
            write!(f, "{ms}ms")?;
        }
        Ok(())
    }
}

impl<'de> Deserialize<'de> for GatewayDuration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<str>::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| D::Error::custom(format!("`{text}` is no duration")))
    }
}

impl Serialize for GatewayDuration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl JsonSchema for GatewayDuration {
    fn schema_name() -> Cow<'static, str> {
        "Duration".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "format": FORMAT, "pattern": PATTERN })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_gateway_apis_syntax_and_nothing_else() {
        for (text, ms) in [
            ("0s", 0),
            ("30s", 30_000),
            ("5m", 300_000),
            ("1h30m", 5_400_000),
            ("200ms", 200),
            ("1h1m1s1ms", 3_661_001),
            ("99999h", 359_996_400_000),
            ("1s1s", 2_000),
        ] {
            assert_eq!(GatewayDuration::parse(text), Some(GatewayDuration::from_ms(ms)), "{text}");
        }
        for text in ["", "30", "s", "-1s", "1.5s", "1 s", "100000s", "1s1s1s1s1s", "1d", "1S", "1µs", "é", "1m s"] {
            assert_eq!(GatewayDuration::parse(text), None, "{text}");
        }
    }

    #[test]
    fn written_as_people_say_it() {
        for (ms, text) in [(0, "0s"), (200, "200ms"), (600_000, "600s"), (1_500, "1s500ms"), (400_000_000, "111h6m40s")]
        {
            assert_eq!(GatewayDuration::from_ms(ms).to_string(), text);
        }
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(ms in 0..1_000_000_000_u64) {
            let duration = GatewayDuration::from_ms(ms);
            prop_assert_eq!(GatewayDuration::parse(&duration.to_string()), Some(duration));
        }

        #[test]
        fn no_text_panics(text in any::<String>()) {
            let _ = GatewayDuration::parse(&text);
        }
    }
}
