//! Keeps a snapshot of a cluster true: kinds are listed and watched, and whoever asked is told all objects as one value.
//!
//! Why not a client library's reflector: its streams of applied objects hide deletions, its idle limit is one for calls and
//! watches, and a kind that is not installed stops it. Here each watch is a loop of its own. It lists, which replaces all
//! that it knew, then watches for a limited time, then lists again: what was missed while no watch stood, and what an
//! event never said, is mended by the next list. A watch that falls silent is given up at a known time, so what is told
//! is never older than [`Limits::stale_max`] while the API server can be reached.
//!
//! While it cannot be reached, what was known stays: an API server that is away, or one that starts and does not know its
//! custom resources or its roles yet, must not empty the routes.
//!
//! It forms no opinion about the objects and writes none.

mod answer;
mod connect;
mod feed;
mod follow;
mod kind;
mod layer;
mod limits;
mod saved;
mod scope;

pub use connect::{ConnectError, connect};
pub use follow::follow;
pub use kind::Kind;
pub use kube::Client;
pub use limits::Limits;
pub use saved::{Saved, SavedError};
pub use scope::{Range, Scope, Watch};

#[cfg(test)]
mod tests;
