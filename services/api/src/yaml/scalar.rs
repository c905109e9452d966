//! What a bare word means.

use super::{Style, Text, Value};

/// The value of a scalar written bare, by YAML 1.2's core schema. A number with leading zeros stays a text: YAML 1.1
/// takes it for octal and 1.2 for decimal, so whoever wants a number must write it plainly.
pub(super) fn plain(text: &str) -> Value {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => Value::Null,
        "true" | "True" | "TRUE" => Value::Bool(true),
        "false" | "False" | "FALSE" => Value::Bool(false),
        ".nan" | ".NaN" | ".NAN" => Value::Float(f64::NAN),
        _ => integer(text).or_else(|| float(text)).unwrap_or_else(|| word(text)),
    }
}

/// A boolean in YAML 1.1's other words, which Kubernetes' tools still take for one.
pub(super) fn word_as_bool(text: &str) -> Option<bool> {
    match text {
        "yes" | "Yes" | "YES" | "on" | "On" | "ON" => Some(true),
        "no" | "No" | "NO" | "off" | "Off" | "OFF" => Some(false),
        _ => None,
    }
}

fn word(text: &str) -> Value {
    Value::Text(Text { text: text.into(), style: Style::Plain })
}

fn integer(text: &str) -> Option<Value> {
    let (sign, digits) = split_sign(text);
    let (radix, digits) = match digits.as_bytes() {
        [b'0', b'x', ..] => (16, digits.get(2..)?),
        [b'0', b'o', ..] => (8, digits.get(2..)?),
        [b'0', _, ..] => return None,
        _ => (10, digits),
    };
    // `from_str_radix` would take a second sign.
    if !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    i128::from_str_radix(digits, radix).ok().map(|magnitude| Value::Int(sign * magnitude))
}

fn float(text: &str) -> Option<Value> {
    let (sign, digits) = split_sign(text);
    let sign = if sign < 0 { -1.0 } else { 1.0 };
    if matches!(digits, ".inf" | ".Inf" | ".INF") {
        return Some(Value::Float(sign * f64::INFINITY));
    }
    let mantissa = digits.split(['e', 'E']).next().unwrap_or_default();
    let octal_looking = mantissa.len() > 1 && mantissa.starts_with('0') && !mantissa.starts_with("0.");
    let shaped = digits.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'.' | b'e' | b'E' | b'+' | b'-'))
        && mantissa.bytes().any(|b| b.is_ascii_digit())
        && mantissa.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    if !shaped || octal_looking {
        return None;
    }
    digits.parse().ok().map(|magnitude: f64| Value::Float(sign * magnitude))
}

fn split_sign(text: &str) -> (i128, &str) {
    match text.as_bytes().first() {
        Some(b'-') => (-1, &text[1..]),
        Some(b'+') => (1, &text[1..]),
        Some(_) | None => (1, text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bare_words_mean_what_yaml_says() {
        for (text, value) in [
            ("~", Value::Null),
            ("", Value::Null),
            ("True", Value::Bool(true)),
            ("8000", Value::Int(8000)),
            ("-3", Value::Int(-3)),
            ("+3", Value::Int(3)),
            ("0", Value::Int(0)),
            ("0x1F", Value::Int(31)),
            ("0o17", Value::Int(15)),
            ("0.8", Value::Float(0.8)),
            (".5", Value::Float(0.5)),
            ("1e3", Value::Float(1000.0)),
            ("-.inf", Value::Float(f64::NEG_INFINITY)),
            ("1_000", word("1_000")),
            ("010", word("010")),
            ("007.5", word("007.5")),
            ("--3", word("--3")),
            ("+-3", word("+-3")),
            ("yes", word("yes")),
            ("30s", word("30s")),
            ("64Mi", word("64Mi")),
            ("1.2.3", word("1.2.3")),
            ("10.0.0.7", word("10.0.0.7")),
            ("nan", word("nan")),
            ("inf", word("inf")),
            ("-", word("-")),
            (".", word(".")),
            ("e5", word("e5")),
            ("0x", word("0x")),
        ] {
            assert_eq!(plain(text), value, "{text:?}");
        }
        assert!(matches!(plain(".NaN"), Value::Float(value) if value.is_nan()));
        assert!(matches!(plain("340282366920938463463374607431768211456"), Value::Float(value) if value > 3.4e38));
    }
}
