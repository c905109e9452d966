//! What is wrong with the operator's documents, said so that it can be found and mended.

use std::fmt;

/// One text with YAML documents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// What the operator calls it: a file's name. Shown in errors.
    pub name: String,
    /// Its whole content.
    pub text: String,
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Violation {
    /// Name of the [`Source`]; empty when what is wrong is in none of them (something is missing).
    pub source: String,
    /// Line in it, from 1.
    pub line: Option<u32>,
    /// The field, as `spec.schedulers[1].weights.lru`; empty when it is the document as a whole.
    pub path: String,
    /// What is wrong and, where it is not plain, what to write instead.
    pub message: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.source.is_empty() {
            write!(f, "{}:", self.source)?;
            if let Some(line) = self.line {
                write!(f, "{line}:")?;
            }
            f.write_str(" ")?;
        }
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        f.write_str(&self.message)
    }
}

/// Everything that is wrong, in the order of sources and lines. Never empty.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Violations(pub Vec<Violation>);

impl fmt::Display for Violations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, violation) in self.0.iter().enumerate() {
            let separator = if index == 0 { "" } else { "\n" };
            write!(f, "{separator}{violation}")?;
        }
        Ok(())
    }
}
