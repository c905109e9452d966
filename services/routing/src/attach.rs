//! What hangs on what.

use api::cluster::Objects;

/// What of a snapshot belongs together, and what is wrong with it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Attached {}

/// Looks at a snapshot as the controller named `controller`.
#[must_use]
pub fn attach(_objects: &Objects, _controller: &str) -> Attached {
    Attached {}
}
