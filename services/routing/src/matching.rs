//! Whether one `match` of a rule takes a request, and which of several that do comes first.

use std::cmp::Reverse;

use api::cluster::{HeaderMatch, PathMatch, QueryMatch, RouteMatch};
use regex::bytes::{Regex, RegexBuilder};

use crate::{query, table::Asked};

/// Largest program of one regular expression, in bytes: about what a pattern of some hundred characters needs. A larger
/// one is refused, since every table of every data plane holds it.
const REGEX_PROGRAM_BYTES_MAX: usize = 256 * 1024;
/// Largest cache of states of one regular expression, in bytes.
const REGEX_CACHE_BYTES_MAX: usize = 256 * 1024;

/// All of its tests must hold. Without any it takes everything.
#[derive(Clone, Debug, Default)]
pub(crate) struct Match {
    path: PathTest,
    method: Option<String>,
    /// Names in lower case, each once.
    headers: Vec<(String, ValueTest)>,
    /// Names each once.
    query: Vec<(String, ValueTest)>,
}

#[derive(Clone, Debug, Default)]
enum PathTest {
    #[default]
    Any,
    Exact(String),
    /// Without a slash at its end, and never empty.
    Prefix(String),
    Regex(Regex),
}

#[derive(Clone, Debug)]
enum ValueTest {
    Exact(String),
    Regex(Regex),
}

/// What decides between matches that take the same request, by the Gateway API: the smaller comes first. Where it leaves
/// regular expressions open, they come after prefixes (but for that of every path), longer patterns first.
pub(crate) type Precedence = (u8, Reverse<usize>, Reverse<bool>, Reverse<usize>, Reverse<usize>);

impl Match {
    /// Reads a match; else says what of it cannot be understood.
    pub(crate) fn read(written: &RouteMatch) -> Result<Self, String> {
        Ok(Self {
            path: written.path.as_ref().map_or(Ok(PathTest::Any), PathTest::read)?,
            method: written.method.clone(),
            headers: values(&written.headers, str::to_ascii_lowercase)?,
            query: values(&written.query_params, str::to_owned)?,
        })
    }

    /// Whether it takes a request; if so, how many bytes of the path its prefix took.
    pub(crate) fn takes(&self, asked: &Asked<'_>) -> Option<usize> {
        let prefix_len = self.path.takes(asked.path)?;
        let method = self.method.as_ref().is_none_or(|it| it == asked.method);
        let holds = method
            && self.headers.iter().all(|(name, test)| asked.headers.any(name, &mut |value| test.holds(value)))
            && self.query.iter().all(|(name, test)| test.holds_for_parameter(asked.query, name));
        holds.then_some(prefix_len)
    }

    pub(crate) fn precedence(&self) -> Precedence {
        let (rank, length) = match &self.path {
            PathTest::Exact(path) => (0, path.len()),
            PathTest::Prefix(path) => (1, path.len()),
            PathTest::Regex(regex) => (2, regex.as_str().len()),
            PathTest::Any => (3, 0),
        };
        let counts = (Reverse(self.headers.len()), Reverse(self.query.len()));
        (rank, Reverse(length), Reverse(self.method.is_some()), counts.0, counts.1)
    }
}

impl PathTest {
    fn read(written: &PathMatch) -> Result<Self, String> {
        let value = written.value.as_deref().unwrap_or("/");
        match written.kind.as_deref().unwrap_or("PathPrefix") {
            "Exact" => Ok(Self::Exact(value.to_owned())),
            "PathPrefix" => Ok(match value.trim_end_matches('/') {
                "" => Self::Any,
                prefix => Self::Prefix(prefix.to_owned()),
            }),
            "RegularExpression" => regex(value).map(Self::Regex),
            other => Err(format!("paths cannot be matched by `{other}`")),
        }
    }

    fn takes(&self, path: &str) -> Option<usize> {
        match self {
            Self::Any => Some(0),
            Self::Exact(it) => (it == path).then_some(0),
            // By whole elements: `/v1` is no prefix of `/v10`.
            Self::Prefix(it) => {
                let rest = path.strip_prefix(it.as_str())?;
                (rest.is_empty() || rest.starts_with('/')).then_some(it.len())
            }
            Self::Regex(it) => it.is_match(path.as_bytes()).then_some(0),
        }
    }
}

impl ValueTest {
    fn read(written: &HeaderMatch) -> Result<Self, String> {
        match written.kind.as_deref().unwrap_or("Exact") {
            "Exact" => Ok(Self::Exact(written.value.clone())),
            "RegularExpression" => regex(&written.value).map(Self::Regex),
            other => Err(format!("`{}` cannot be matched by `{other}`", written.name)),
        }
    }

    fn holds(&self, value: &[u8]) -> bool {
        match self {
            Self::Exact(it) => it.as_bytes() == value,
            Self::Regex(it) => it.is_match(value),
        }
    }

    /// Of parameters that are repeated the first counts.
    fn holds_for_parameter(&self, query: Option<&str>, name: &str) -> bool {
        let Some(value) = query.and_then(|it| query::first(it, name)) else {
            return false;
        };
        match self {
            Self::Exact(it) => query::decoded(value).eq(it.bytes()),
            Self::Regex(it) if query::is_plain(value) => it.is_match(value.as_bytes()),
            Self::Regex(it) => it.is_match(&query::decoded(value).collect::<Vec<u8>>()),
        }
    }
}

/// Tests by name. Of entries of one name the first counts, as the Gateway API has it.
fn values(written: &[QueryMatch], name: fn(&str) -> String) -> Result<Vec<(String, ValueTest)>, String> {
    let mut tests: Vec<(String, ValueTest)> = Vec::with_capacity(written.len());
    for it in written {
        let name = name(&it.name);
        if !tests.iter().any(|(known, _)| *known == name) {
            tests.push((name, ValueTest::read(it)?));
        }
    }
    Ok(tests)
}

/// A pattern that must match the whole text.
fn regex(pattern: &str) -> Result<Regex, String> {
    let build = |pattern: &str| {
        RegexBuilder::new(pattern).size_limit(REGEX_PROGRAM_BYTES_MAX).dfa_size_limit(REGEX_CACHE_BYTES_MAX).build()
    };
    // Alone first: `a)|(b` would close the group that is put around it.
    let whole = build(pattern).and_then(|_| build(&format!("^(?:{pattern})$")));
    whole.map_err(|_| format!("`{pattern}` is no regular expression that can be used"))
}
