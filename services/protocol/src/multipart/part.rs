//! The headers of a form's part, and header parameters.

/// The field that a part is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Field {
    Model,
    Stream,
    /// vLLM's form of `stream_options.include_usage`.
    IncludeUsage,
    Other,
}

impl Field {
    /// The field of the part with these headers. None if they name none, more than one, or one in a way that parsers
    /// read differently.
    pub(super) fn of_part(head: &str, line_end: &str) -> Option<Self> {
        let mut name = None;
        for line in head.split(line_end).filter(|line| !line.is_empty()) {
            // A folded line, a stray `\r` or `\n`, a line without a colon: nobody sends such by accident.
            let (header, value) = line.split_once(':').filter(|_| !line.contains(['\r', '\n', '\0']))?;
            if header.is_empty() || header.contains([' ', '\t']) {
                return None;
            }
            if header.eq_ignore_ascii_case("content-disposition") {
                let kind = value.split(';').next().unwrap_or_default().trim();
                let is_second = name.is_some();
                name = parameter(value, "name").ok().flatten();
                if is_second || name.is_none() || !kind.eq_ignore_ascii_case("form-data") {
                    return None;
                }
            } else if header.eq_ignore_ascii_case("content-transfer-encoding") && !is_plain_encoding(value) {
                return None;
            }
        }
        match name?.as_str() {
            "model" => Some(Self::Model),
            "stream" => Some(Self::Stream),
            "stream_include_usage" => Some(Self::IncludeUsage),
            _ => Some(Self::Other),
        }
    }
}

/// Some parsers decode what others pass on.
fn is_plain_encoding(value: &str) -> bool {
    ["7bit", "8bit", "binary"].iter().any(|plain| value.trim().eq_ignore_ascii_case(plain))
}

/// A header value whose parameters cannot be told for sure.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Unclear;

/// The parameter of this name in a header value such as `form-data; name="a"; filename="b"`. Unclear if it is there
/// twice, has an escape, or comes in the extended form (`name*`), and if any of the parameters does not parse.
pub(super) fn parameter(value: &str, wanted: &str) -> Result<Option<String>, Unclear> {
    let mut found = None;
    let mut rest = value.split_once(';').map_or("", |(_, rest)| rest);
    while !rest.trim_matches([' ', '\t', ';']).is_empty() {
        let (name, after) = rest.split_once('=').ok_or(Unclear)?;
        let name = name.trim_matches([' ', '\t', ';']);
        let (text, after) = match after.trim_start_matches([' ', '\t']).strip_prefix('"') {
            Some(quoted) => split_quoted(quoted)?,
            None => {
                let (text, after) = after.split_once(';').unwrap_or((after, ""));
                (text.trim_matches([' ', '\t']), after)
            }
        };
        let is_extended = name.split_once('*').is_some_and(|(name, _)| name.trim().eq_ignore_ascii_case(wanted));
        if is_extended || name.is_empty() || name.contains([' ', '\t', '"', ';']) {
            return Err(Unclear);
        }
        if name.eq_ignore_ascii_case(wanted) {
            if found.is_some() || text.contains(['\\', '"']) {
                return Err(Unclear);
            }
            found = Some(text.to_owned());
        }
        rest = after;
    }
    Ok(found)
}

/// What stands up to the closing quote, and what follows the `;` after it.
fn split_quoted(quoted: &str) -> Result<(&str, &str), Unclear> {
    let mut is_escaped = false;
    let end = quoted.find(|letter: char| {
        let is_end = letter == '"' && !is_escaped;
        is_escaped = letter == '\\' && !is_escaped;
        is_end
    });
    let (text, after) = quoted.split_at(end.ok_or(Unclear)?);
    let after = after[1..].trim_start_matches([' ', '\t']);
    match after.strip_prefix(';') {
        Some(after) => Ok((text, after)),
        None if after.is_empty() => Ok((text, after)),
        None => Err(Unclear),
    }
}
