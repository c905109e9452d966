//! What a route written by hand changes of requests and answers: host, path, headers.
//!
//! The texts come from objects that a schema has checked, but not for everything that HTTP forbids: what cannot be written
//! is left out rather than sent broken.

use std::sync::Arc;

use http::{HeaderMap, HeaderName, HeaderValue, Uri, header::HOST, request::Parts, uri::Authority};
use routing::{
    Backend, Rule,
    filter::{Filters, HeaderEdits, Rewrite},
};

use super::{Taken, host};

/// What is changed of one request when it is forwarded, and of its answer.
#[derive(Clone)]
pub struct Edits {
    rule: Arc<Rule>,
    /// Which of the rule's backends was chosen.
    backend: usize,
    /// The host that the endpoint is told.
    host: Option<HeaderValue>,
}

impl Edits {
    /// What `rule` and its backend with this index change. `head` is as the client sent it.
    pub fn new(rule: Arc<Rule>, backend: usize, head: &Parts) -> Self {
        let mut edits = Self { rule, backend, host: None };
        let renamed = edits.rewrites().filter_map(|rewrite| rewrite.hostname.as_deref()).last();
        let host = renamed.or_else(|| host(head)).filter(|host| host.parse::<Authority>().is_ok());
        edits.host = host.and_then(|host| HeaderValue::from_str(host).ok());
        edits
    }

    /// Changes the head of a request that is ready to be forwarded.
    pub fn change(&self, head: &mut Parts) {
        if let Some(host) = &self.host {
            head.headers.insert(HOST, host.clone());
        }
        for filters in self.filters() {
            edit_headers(&mut head.headers, &filters.request_headers);
        }
    }

    /// Changes the head of the answer: what the backend says first, since the answer comes from there.
    pub fn change_answer(&self, headers: &mut HeaderMap) {
        if let Some(backend) = self.backend() {
            edit_headers(headers, &backend.filters.response_headers);
        }
        edit_headers(headers, &self.rule.filters.response_headers);
    }

    /// The target of the request that goes on; `None` if what the route makes of it is no path.
    pub fn target(&self, uri: &Uri, prefix_len: usize) -> Option<Uri> {
        let mut target = uri.clone();
        // A rule's prefix stands where it stood only as long as nothing has replaced it.
        let mut prefix_len = prefix_len;
        for rewrite in self.rewrites() {
            if let Some(path) = &rewrite.path {
                target = edit_path(&target, &path.applied(target.path(), prefix_len))?;
                prefix_len = 0;
            }
        }
        Some(target)
    }

    fn backend(&self) -> Option<&Backend> {
        self.rule.backends.get(self.backend)
    }

    /// Those of the rule, then those of the backend.
    fn filters(&self) -> impl Iterator<Item = &Filters> {
        std::iter::once(&self.rule.filters).chain(self.backend().map(|backend| &backend.filters))
    }

    fn rewrites(&self) -> impl Iterator<Item = &Rewrite> {
        self.filters().filter_map(|filters| filters.rewrite.as_ref())
    }
}

impl Taken {
    /// Chooses a backend, each as often as its weight says; `None` if there is none with a weight.
    pub fn choose(&self, random: u64) -> Option<usize> {
        let chosen = self.rule.share(random)?;
        self.rule.backends.iter().position(|backend| std::ptr::eq(backend, chosen))
    }
}

/// Sets, adds and removes headers, in this order.
pub fn edit_headers(headers: &mut HeaderMap, edits: &HeaderEdits) {
    if edits.is_empty() {
        return;
    }
    let pair = |(name, value): &(String, String)| {
        Some((HeaderName::try_from(name.as_str()).ok()?, HeaderValue::from_str(value).ok()?))
    };
    for (name, value) in edits.set.iter().filter_map(pair) {
        headers.insert(name, value);
    }
    for (name, value) in edits.add.iter().filter_map(pair) {
        headers.append(name, value);
    }
    for name in &edits.remove {
        headers.remove(name.as_str());
    }
}

/// `uri` with another path and its own query, without scheme and authority.
pub fn edit_path(uri: &Uri, path: &str) -> Option<Uri> {
    let target = match uri.query() {
        Some(query) => format!("{path}?{query}"),
        None => path.to_owned(),
    };
    Uri::try_from(target).ok().filter(|target| target.authority().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, HeaderValue::from_static(value));
        }
        headers
    }

    #[test]
    fn headers_are_set_then_added_then_removed_and_what_cannot_be_written_is_left_out() {
        let mut edited = headers(&[("a", "1"), ("a", "2"), ("b", "1"), ("c", "1")]);
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let edits = HeaderEdits {
            set: vec![pair("a", "3"), pair("d", "bad\nvalue"), pair("bad name", "x")],
            add: vec![pair("b", "2"), pair("e", "1"), pair("c", "2")],
            remove: vec!["c".into(), "none".into()],
        };
        edit_headers(&mut edited, &edits);
        assert_eq!(edited, headers(&[("a", "3"), ("b", "1"), ("b", "2"), ("e", "1")]));
    }

    #[test]
    fn a_path_changes_and_its_query_stays() {
        for (uri, path, expected) in [
            ("/a/b?x=%2f&y", "/c", Some("/c?x=%2f&y")),
            ("http://host/a", "/c", Some("/c")),
            ("/a", "/with space", None),
            ("/a", "//host/c", Some("//host/c")),
        ] {
            let edited = edit_path(&uri.parse().unwrap(), path);
            assert_eq!(edited.map(|uri| uri.to_string()).as_deref(), expected, "{uri} {path}");
        }
    }
}
