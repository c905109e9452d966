//! The query of a request, read without copying it.

/// The first value of a parameter, still encoded.
pub(crate) fn first<'q>(query: &'q str, name: &str) -> Option<&'q str> {
    query.split('&').find_map(|pair| {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        let is_meant = if is_plain(key) { key == name } else { decoded(key).eq(name.bytes()) };
        is_meant.then_some(value)
    })
}

/// Whether a text means itself.
pub(crate) fn is_plain(text: &str) -> bool {
    !text.bytes().any(|it| matches!(it, b'%' | b'+'))
}

/// The bytes that a text stands for: `+` is a space, `%41` is `A`; a `%` that begins nothing stands for itself.
pub(crate) fn decoded(text: &str) -> impl Iterator<Item = u8> {
    let mut rest = text.as_bytes();
    std::iter::from_fn(move || {
        let (byte, taken) = match rest {
            [] => return None,
            [b'%', high, low, ..] => match (digit(*high), digit(*low)) {
                (Some(high), Some(low)) => (high * 16 + low, 3),
                _ => (b'%', 1),
            },
            [b'+', ..] => (b' ', 1),
            [byte, ..] => (*byte, 1),
        };
        rest = &rest[taken..];
        Some(byte)
    })
}

fn digit(character: u8) -> Option<u8> {
    char::from(character).to_digit(16).and_then(|it| u8::try_from(it).ok())
}
