//! One line of the Prometheus text format (0.0.4, 1.0.0) or of OpenMetrics, taken apart.
//!
//! A label value may hold any character, braces, commas and escaped quotes among them, so the walker follows the
//! quotes and never searches for a delimiter beyond them. Nothing is copied: names and values are slices of the page.

/// Splits a sample line, already without leading blanks, into the metric's name and what follows it.
///
/// `None` when there is no name. A name may also stand quoted inside the braces (`{"name",label="x"}`); what follows
/// then begins at the `,` or `}` behind it.
pub(super) fn split_name(line: &[u8]) -> Option<(&[u8], &[u8])> {
    if line.first() == Some(&b'{') {
        let inner = skip_blanks(&line[1..]);
        let (name, rest) = quoted(inner)?;
        let rest = skip_blanks(rest);
        return matches!(rest.first(), Some(b',' | b'}')).then_some((name, rest));
    }
    let end = memchr::memchr3(b'{', b' ', b'\t', line)?;
    (end > 0).then(|| line.split_at(end))
}

/// Walks labels, value and what may follow it, calling `label(name, value)` for each label in page order. Label values
/// are as they stand, escapes included: see [`unescape`].
///
/// `None` when the line breaks the format; labels before the break were reported all the same.
pub(super) fn walk<'a>(rest: &'a [u8], mut label: impl FnMut(&'a [u8], &'a [u8])) -> Option<f64> {
    let rest = skip_blanks(rest);
    let after_labels = match rest.first() {
        Some(b'{' | b',') => walk_labels(&rest[1..], &mut label)?,
        Some(b'}') => &rest[1..],
        _ => rest,
    };
    let (number, rest) = token(skip_blanks(after_labels));
    let value = read_number(number)?;
    // A time stamp may follow, in milliseconds or (OpenMetrics) seconds, and -1 is seen; then an exemplar.
    let (stamp, rest) = token(skip_blanks(rest));
    if stamp.is_empty() || stamp[0] == b'#' {
        return Some(value);
    }
    read_number(stamp)?;
    let tail = skip_blanks(rest);
    (tail.is_empty() || tail[0] == b'#').then_some(value)
}

fn walk_labels<'a>(mut rest: &'a [u8], label: &mut impl FnMut(&'a [u8], &'a [u8])) -> Option<&'a [u8]> {
    loop {
        rest = skip_blanks(rest);
        if rest.first()? == &b'}' {
            return Some(&rest[1..]);
        }
        let (name, after_name) = label_name(rest)?;
        rest = skip_blanks(skip_blanks(after_name).strip_prefix(b"=")?);
        let (value, after_value) = quoted(rest)?;
        label(name, value);
        rest = skip_blanks(after_value);
        match rest.first()? {
            b',' => rest = &rest[1..],
            b'}' => {}
            _ => return None,
        }
    }
}

fn label_name(rest: &[u8]) -> Option<(&[u8], &[u8])> {
    if rest.first() == Some(&b'"') {
        return quoted(rest);
    }
    let end = rest.iter().position(|b| !(b.is_ascii_alphanumeric() || matches!(b, b'_' | b':' | b'.' | b'-')))?;
    (end > 0).then(|| rest.split_at(end))
}

/// A text in double quotes, without them, and what follows.
fn quoted(rest: &[u8]) -> Option<(&[u8], &[u8])> {
    let body = rest.strip_prefix(b"\"")?;
    let mut at = 0;
    loop {
        at += memchr::memchr2(b'"', b'\\', body.get(at..)?)?;
        if body[at] == b'"' {
            return Some((&body[..at], &body[at + 1..]));
        }
        at += 2;
    }
}

fn token(rest: &[u8]) -> (&[u8], &[u8]) {
    rest.split_at(rest.iter().position(|&b| is_blank(b)).unwrap_or(rest.len()))
}

pub(super) fn skip_blanks(rest: &[u8]) -> &[u8] {
    let start = rest.iter().position(|&b| !is_blank(b)).unwrap_or(rest.len());
    &rest[start..]
}

const fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

/// A label value with its escapes (`\\`, `\"`, `\n`) resolved; any other escaped character stands for itself. `None`
/// when it is not UTF-8.
pub(super) fn unescape(raw: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(raw).ok()?;
    let mut plain = String::with_capacity(text.len());
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' => match characters.next()? {
                'n' => plain.push('\n'),
                other => plain.push(other),
            },
            other => plain.push(other),
        }
    }
    Some(plain)
}

/// A number as the text format has it: decimal, exponent and hexadecimal floats, `NaN`, `+Inf`, `-Inf`.
fn read_number(token: &[u8]) -> Option<f64> {
    let text = std::str::from_utf8(token).ok()?;
    text.parse().ok().or_else(|| read_hexadecimal(text))
}

/// Most hexadecimal digits looked at: more than a mantissa holds, few enough for a `u64`.
const HEX_DIGITS_MAX: usize = 15;

/// `0x1.8p3` = 12: legal in the format, though no engine is known to write it.
fn read_hexadecimal(text: &str) -> Option<f64> {
    let (sign, magnitude) = match text.as_bytes().first()? {
        b'-' => (-1.0, &text[1..]),
        b'+' => (1.0, &text[1..]),
        _ => (1.0, text),
    };
    let body = magnitude.strip_prefix("0x").or_else(|| magnitude.strip_prefix("0X"))?;
    let (mantissa, exponent) = body.split_once(['p', 'P'])?;
    let exponent: i16 = exponent.parse().ok()?;
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = [whole, fraction].concat();
    if digits.len() > HEX_DIGITS_MAX || !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    let integer = u64::from_str_radix(&digits, 16).ok()?;
    let scale = i32::from(exponent) - 4 * i32::try_from(fraction.len()).ok()?;
    Some(sign * integer as f64 * 2f64.powi(scale))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(rest: &str) -> Option<f64> {
        walk(rest.as_bytes(), |_, _| {})
    }

    fn labels(rest: &str) -> Vec<(String, String)> {
        let mut seen = Vec::new();
        walk(rest.as_bytes(), |name, value| {
            seen.push((String::from_utf8_lossy(name).into(), unescape(value).unwrap()))
        });
        seen
    }

    #[test]
    fn values() {
        for (rest, expected) in [
            (" 3", Some(3.0)),
            ("\t3", Some(3.0)),
            ("{} 3", Some(3.0)),
            ("{a=\"1\"}3", Some(3.0)),
            ("  {a=\"1\"}   3  ", Some(3.0)),
            (" 1e3", Some(1000.0)),
            (" -1.5E-1", Some(-0.15)),
            (" +Inf", Some(f64::INFINITY)),
            (" 0x1p3", Some(8.0)),
            (" -0X1.8p+1", Some(-3.0)),
            (" 4 -1", Some(4.0)),
            (" 4 1750000000000", Some(4.0)),
            (" 4 1750000000.5", Some(4.0)),
            (" 4 # {trace_id=\"x\"} 0.5 1.0", Some(4.0)),
            (" 4 1750000000.5 # {trace_id=\"x\"} 0.5", Some(4.0)),
            (" four", None),
            ("", None),
            (" ", None),
            (" 4 soon", None),
            (" 4 1 2", None),
            (" 0x", None),
            (" 0xp1", None),
            (" 0x1", None),
            (" 1_000", None),
        ] {
            assert_eq!(value(rest), expected, "{rest:?}");
        }
        assert!(value(" NaN").unwrap().is_nan());
    }

    #[test]
    fn d05_labels_follow_the_quotes() {
        let rest = r#"{model_name="a{b},c=\"d\" e\\",engine="0"} 3"#;
        assert_eq!(labels(rest), [("model_name".into(), r#"a{b},c="d" e\"#.into()), ("engine".into(), "0".into())]);
        assert_eq!(value(rest), Some(3.0));
        assert_eq!(
            labels("{ engine = \"0\" , dp=\"1\" , } 3"),
            [("engine".into(), "0".into()), ("dp".into(), "1".into())]
        );
        assert_eq!(labels(r#"{a="x\ny"} 3"#), [("a".into(), "x\ny".into())]);
    }

    #[test]
    fn broken_labels_break_the_sample() {
        for rest in [
            "{a=\"1\" 3",
            "{a=1} 3",
            "{a} 3",
            "{=\"1\"} 3",
            "{a=\"1} 3",
            "{a=\"1\\",
            "{a=\"1\\\"} 3",
            "{,} 3",
            "{a=\"1\"b=\"2\"} 3",
        ] {
            assert_eq!(value(rest), None, "{rest:?}");
        }
    }

    #[test]
    fn names() {
        assert_eq!(split_name(b"up 1"), Some((&b"up"[..], &b" 1"[..])));
        assert_eq!(split_name(b"a:b{x=\"1\"} 1").unwrap().0, b"a:b");
        let (name, rest) = split_name(b"{\"a:b\", x=\"1\"} 2").unwrap();
        assert_eq!((name, walk(rest, |_, _| {})), (&b"a:b"[..], Some(2.0)));
        assert_eq!(split_name(b"{\"a\"} 2").map(|(_, rest)| walk(rest, |_, _| {})), Some(Some(2.0)));
        for nameless in ["", "{", "{}", "{a=\"1\"} 1", " 1", "{1} 1", "word"] {
            assert_eq!(split_name(nameless.as_bytes()), None, "{nameless:?}");
        }
    }
}
