//! What is done to requests and answers on their way, as plain data, and the texts that come out of it.

/// All filters of a rule, or of one backend of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Filters {
    /// Before the request goes on.
    pub request_headers: HeaderEdits,
    /// Before the answer goes back.
    pub response_headers: HeaderEdits,
    /// Answers the request; nothing is forwarded.
    pub redirect: Option<Redirect>,
    pub rewrite: Option<Rewrite>,
}

/// Changes to headers. Names are in lower case. `set` first, then `add`, then `remove`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeaderEdits {
    pub set: Vec<(String, String)>,
    pub add: Vec<(String, String)>,
    pub remove: Vec<String>,
}

/// An answer that sends the client elsewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redirect {
    /// `http` or `https`.
    pub scheme: Option<String>,
    pub hostname: Option<String>,
    pub path: Option<PathEdit>,
    pub port: Option<u16>,
    /// 301, 302, 303, 307 or 308.
    pub status: u16,
}

/// Another host or path for the request that goes on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rewrite {
    pub hostname: Option<String>,
    pub path: Option<PathEdit>,
}

/// Another path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathEdit {
    /// The whole path is this.
    Full(String),
    /// What the rule's path prefix matched becomes this.
    Prefix(String),
}

impl HeaderEdits {
    /// What another filter of the same kind adds.
    pub(crate) fn append(&mut self, other: Self) {
        self.set.extend(other.set);
        self.add.extend(other.add);
        self.remove.extend(other.remove);
    }

    /// Whether it changes nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.set.is_empty() && self.add.is_empty() && self.remove.is_empty()
    }
}

impl PathEdit {
    /// The path that becomes of `path`, of which a rule's prefix took `prefix_len` bytes.
    #[must_use]
    pub fn applied(&self, path: &str, prefix_len: usize) -> String {
        let changed = match self {
            Self::Full(text) => text.clone(),
            Self::Prefix(text) => {
                let rest = path.get(prefix_len..).unwrap_or_default();
                format!("{}{rest}", text.trim_end_matches('/'))
            }
        };
        if changed.starts_with('/') { changed } else { format!("/{changed}") }
    }
}

/// What of a request its redirect is made of.
#[derive(Clone, Copy, Debug)]
pub struct Origin<'r> {
    /// `http` or `https`, as the client came.
    pub scheme: &'r str,
    /// Without a port.
    pub host: &'r str,
    /// The listener's port.
    pub port: u16,
    pub path: &'r str,
    pub query: Option<&'r str>,
    /// As [`crate::Found::prefix_len`].
    pub prefix_len: usize,
}

impl Redirect {
    /// The value of `Location`.
    ///
    /// Without a port of its own, another scheme means that scheme's usual port, and the same scheme the listener's. A
    /// port that is usual for the scheme is left out.
    #[must_use]
    pub fn location(&self, from: &Origin<'_>) -> String {
        let scheme = self.scheme.as_deref().unwrap_or(from.scheme);
        let usual = if scheme == "https" { 443 } else { 80 };
        let port = self.port.unwrap_or(if self.scheme.is_some() { usual } else { from.port });
        let host = self.hostname.as_deref().unwrap_or(from.host);
        let mut text = format!("{scheme}://{host}");
        if port != usual {
            text.push_str(&format!(":{port}"));
        }
        match &self.path {
            Some(edit) => text.push_str(&edit.applied(from.path, from.prefix_len)),
            None => text.push_str(from.path),
        }
        if let Some(query) = from.query {
            text.push('?');
            text.push_str(query);
        }
        text
    }
}
