//! Where in the operator's texts something stands, and the list of what was found wrong there.

use crate::violation::{Violation, Violations};

/// Most violations that are kept; of more, only their number is said. Nobody mends a thousand in one go, and a
/// hostile text could hold millions.
const VIOLATIONS_MAX: usize = 1_000;

/// Longest text of the operator's that a message repeats, in characters.
const TEXT_SHOWN_CHARS_MAX: usize = 80;

/// Longest key shown in a path, in characters. Longer ones are cut: keys are the operator's text.
const KEY_SHOWN_CHARS_MAX: usize = 80;

/// The way from a document's root to a field, as `spec.schedulers[1].weights.lru`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Path(String);

impl Path {
    /// The document itself.
    pub(crate) fn root() -> Self {
        Self::default()
    }

    /// The field of this name inside.
    pub(crate) fn field(&self, name: &str) -> Self {
        let plain = !name.is_empty()
            && name.chars().count() <= KEY_SHOWN_CHARS_MAX
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_');
        if !plain {
            return Self(format!("{}[{:?}]", self.0, shorten(name, KEY_SHOWN_CHARS_MAX)));
        }
        if self.0.is_empty() { Self(name.into()) } else { Self(format!("{}.{name}", self.0)) }
    }

    /// The item at this place inside, from 0.
    pub(crate) fn item(&self, index: usize) -> Self {
        Self(format!("{}[{index}]", self.0))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

/// A place in one of the sources.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    /// Index of the source; `None`: in none of them, since something is missing.
    pub(crate) source: Option<usize>,
    /// From 1.
    pub(crate) line: Option<u32>,
    pub(crate) path: Path,
}

/// Collects what is wrong, in any order.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    found: Vec<(Place, String)>,
    omitted: usize,
}

impl Findings {
    pub(crate) fn report(&mut self, place: Place, message: impl Into<String>) {
        if self.found.len() < VIOLATIONS_MAX {
            self.found.push((place, message.into()));
        } else {
            self.omitted += 1;
        }
    }

    /// Takes over what another has found.
    pub(crate) fn extend(&mut self, other: Self) {
        self.omitted += other.omitted;
        for (place, message) in other.found {
            self.report(place, message);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// The violations in the order of sources and lines; `None` when nothing is wrong.
    pub(crate) fn into_violations(mut self, source_names: &[&str]) -> Option<Violations> {
        self.found.sort_by_key(|(place, _)| (place.source.unwrap_or(usize::MAX), place.line.unwrap_or(0)));
        let name_of = |place: &Place| place.source.and_then(|source| source_names.get(source)).copied().unwrap_or("");
        let mut violations: Vec<Violation> = self
            .found
            .into_iter()
            .map(|(place, message)| Violation {
                source: name_of(&place).into(),
                line: place.line,
                path: place.path.as_str().into(),
                message,
            })
            .collect();
        if self.omitted > 0 {
            let message = format!("{} more violations are not shown", self.omitted);
            violations.push(Violation { source: String::new(), line: None, path: String::new(), message });
        }
        (!violations.is_empty()).then_some(Violations(violations))
    }
}

/// A text of the operator's as messages repeat it: quoted, on one line, and not longer than a line.
pub(crate) fn quoted(text: &str) -> String {
    format!("{:?}", shorten(text, TEXT_SHOWN_CHARS_MAX))
}

/// At most `chars_max` characters of a text of the operator's, with a sign when some are left out.
pub(crate) fn shorten(text: &str, chars_max: usize) -> String {
    let mut short: String = text.chars().take(chars_max).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}
