//! What a picker changes of a head, as far as it may.

use http::{
    HeaderMap, HeaderName, HeaderValue,
    header::{CONTENT_LENGTH, HOST},
};
use protocol::headers::{DESTINATION, REQUEST_ID, is_hop_by_hop};

use super::message::{self, HeaderMutation, HeaderValueOption};

/// Headers that one message may set or remove.
const EDITS_MAX: usize = 256;
/// Bytes of names and values in all.
const EDITED_BYTES_MAX: usize = 64 * 1024;

/// More than a picker may change.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("it changes more than {EDITS_MAX} headers, or more than 64 KiB of them")]
pub(crate) struct TooMany;

/// Changes of a head, in order. A name or value that HTTP does not allow is left out, and so is what is not the picker's.
#[derive(Debug, Default)]
pub(crate) struct Edits {
    remove: Vec<HeaderName>,
    set: Vec<(HeaderName, HeaderValue, Action)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Append,
    AddIfAbsent,
    Overwrite,
    OverwriteIfPresent,
}

impl Edits {
    pub(super) fn of(mutation: &HeaderMutation) -> Result<Self, TooMany> {
        let set_bytes = |option: &HeaderValueOption| {
            option.header.as_ref().map_or(0, |header| header.key.len() + header.value.len() + header.raw_value.len())
        };
        let bytes = mutation.set_headers.iter().map(set_bytes).chain(mutation.remove_headers.iter().map(String::len));
        if mutation.set_headers.len() + mutation.remove_headers.len() > EDITS_MAX
            || bytes.sum::<usize>() > EDITED_BYTES_MAX
        {
            return Err(TooMany);
        }
        let remove = mutation.remove_headers.iter().filter_map(|name| allowed(name)).collect();
        let set = mutation.set_headers.iter().filter_map(|option| {
            let header = option.header.as_ref()?;
            Some((allowed(&header.key)?, HeaderValue::from_bytes(value_of(header)).ok()?, action(option)))
        });
        Ok(Self { remove, set: set.collect() })
    }

    /// Changes a head.
    pub(crate) fn change(&self, headers: &mut HeaderMap) {
        for name in &self.remove {
            headers.remove(name);
        }
        for (name, value, action) in &self.set {
            let (name, value, is_there) = (name.clone(), value.clone(), headers.contains_key(name));
            match (action, is_there) {
                (Action::Append, _) => _ = headers.append(name, value),
                (Action::Overwrite, _) | (Action::AddIfAbsent, false) | (Action::OverwriteIfPresent, true) => {
                    headers.insert(name, value);
                }
                (Action::AddIfAbsent, true) | (Action::OverwriteIfPresent, false) => {}
            }
        }
    }
}

/// What a header's value is, in whichever of its two forms it came.
pub(super) fn value_of(header: &message::HeaderValue) -> &[u8] {
    if header.raw_value.is_empty() { header.value.as_bytes() } else { &header.raw_value }
}

/// Pseudo headers are no header names, so they fall out by themselves.
fn allowed(name: &str) -> Option<HeaderName> {
    let name = HeaderName::from_bytes(name.as_bytes()).ok()?;
    let is_ours = is_hop_by_hop(&name)
        || [CONTENT_LENGTH, HOST, REQUEST_ID].contains(&name)
        || name.as_str().starts_with(DESTINATION.as_str());
    (!is_ours).then_some(name)
}

/// In `ext_proc`, other than elsewhere in Envoy's interfaces, a header that says nothing of it is overwritten.
fn action(option: &HeaderValueOption) -> Action {
    match option.append_action {
        1 => Action::AddIfAbsent,
        2 => Action::Overwrite,
        3 => Action::OverwriteIfPresent,
        _ if option.append.as_ref().is_some_and(|append| append.value) => Action::Append,
        _ => Action::Overwrite,
    }
}
