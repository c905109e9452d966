//! Who sent a request, as far as anything asks for it.
//!
//! Of a token's claims only those are kept that the configuration names, so that thousands of callers fit into memory and
//! nothing else of a person is there to be leaked.

use std::{collections::BTreeSet, fmt, sync::Arc};

use http::HeaderName;
use serde_json::{Map, Value};

/// The claim that names the caller; of a key it is the client's name.
pub(super) const SUBJECT: &str = "sub";

/// Claims of one caller that are kept at most, in bytes, where many callers are remembered.
const CACHED_BYTES_MAX: usize = 1024;

/// A caller who may use the gateway.
pub struct Identity {
    by: By,
    /// Every kept claim with what it holds: one text, or each text of a list.
    claims: Box<[Claim]>,
}

/// A claim's name, and its texts.
type Claim = (Arc<str>, Box<[Box<str>]>);

/// What let a caller in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// A token of the identity provider.
    Token,
    /// A key of the operator's own making.
    Key,
}

/// A caller who was let in, and the header that did it.
#[derive(Clone, Debug)]
pub struct Admitted {
    /// Who.
    pub identity: Arc<Identity>,
    /// Which header: it was meant for the gateway, and is not sent on.
    pub credential: HeaderName,
}

/// The names of claims that are kept.
#[derive(Clone, Debug)]
pub struct Kept(Box<[Arc<str>]>);

impl Kept {
    /// These, and the subject.
    pub fn new<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        let names: BTreeSet<&str> = names.into_iter().chain([SUBJECT]).collect();
        Self(names.into_iter().map(Into::into).collect())
    }
}

impl Identity {
    /// Of a token's claims.
    pub(super) fn of_token(claims: &Map<String, Value>, kept: &Kept) -> Self {
        let claim = |name: &Arc<str>| Some((Arc::clone(name), texts(claims.get(&**name)?)?));
        Self { by: By::Token, claims: kept.0.iter().filter_map(claim).collect() }
    }

    /// Of the client whose key it is.
    pub(crate) fn of_key(client: &str) -> Self {
        Self { by: By::Key, claims: [(SUBJECT.into(), [client.into()].into())].into() }
    }

    /// What a claim holds; empty if it is not there or not kept.
    pub fn claim(&self, name: &str) -> &[Box<str>] {
        self.claims.iter().find(|(known, _)| **known == *name).map(|(_, texts)| &**texts).unwrap_or_default()
    }

    /// Who it is: nothing for a token without a subject.
    pub fn subject(&self) -> Option<&str> {
        self.claim(SUBJECT).first().map(|text| &**text)
    }

    /// What let the caller in.
    pub fn by(&self) -> By {
        self.by
    }

    /// Whether it is small enough to be remembered with many others.
    pub(super) fn is_small(&self) -> bool {
        let texts = self.claims.iter().flat_map(|(_, texts)| texts);
        texts.map(|text| text.len() + size_of::<Box<str>>()).sum::<usize>() <= CACHED_BYTES_MAX
    }
}

impl fmt::Debug for Identity {
    /// Without what it says of a person.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity").field("by", &self.by).finish_non_exhaustive()
    }
}

/// The texts of a claim. Numbers and truth values are texts too; an object says nothing that could be compared.
fn texts(value: &Value) -> Option<Box<[Box<str>]>> {
    match value {
        Value::Array(items) => Some(items.iter().filter_map(text).collect()),
        Value::String(_) | Value::Number(_) | Value::Bool(_) | Value::Null | Value::Object(_) => {
            Some([text(value)?].into())
        }
    }
}

fn text(value: &Value) -> Option<Box<str>> {
    match value {
        Value::String(text) => Some(text.as_str().into()),
        Value::Number(number) => Some(number.to_string().into()),
        Value::Bool(truth) => Some(truth.to_string().into()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}
