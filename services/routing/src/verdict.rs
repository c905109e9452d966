//! What is said of an object: the conditions of its status, without generation and times.
//!
//! Who writes a status adds those two: they are of the moment of writing, not of the decision. Types and reasons are the
//! words of the Gateway API and of its inference extension, since other programs wait for them.

/// One condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// `type` of the condition.
    pub kind: &'static str,
    pub truth: Truth,
    /// One word, for programs.
    pub reason: &'static str,
    /// A sentence, for people.
    pub message: String,
}

/// `status` of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Truth {
    True,
    False,
    Unknown,
}

impl Truth {
    /// As it is written in a status.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

impl Verdict {
    /// A condition that holds. Its reason is the condition's own name, as the Gateway API does it.
    #[must_use]
    pub fn holds(kind: &'static str, message: impl Into<String>) -> Self {
        Self { kind, truth: Truth::True, reason: kind, message: message.into() }
    }

    /// A condition that does not hold.
    #[must_use]
    pub fn fails(kind: &'static str, reason: &'static str, message: impl Into<String>) -> Self {
        Self { kind, truth: Truth::False, reason, message: message.into() }
    }

    /// Whether it holds.
    #[must_use]
    pub fn is_true(&self) -> bool {
        self.truth == Truth::True
    }
}

/// Types of conditions.
pub mod kind {
    pub const ACCEPTED: &str = "Accepted";
    pub const PROGRAMMED: &str = "Programmed";
    pub const RESOLVED_REFS: &str = "ResolvedRefs";
    pub const CONFLICTED: &str = "Conflicted";
    pub const PARTIALLY_INVALID: &str = "PartiallyInvalid";
}

/// The condition `kind` of `verdicts`.
#[must_use]
pub fn of<'v>(verdicts: &'v [Verdict], kind: &str) -> Option<&'v Verdict> {
    verdicts.iter().find(|it| it.kind == kind)
}
