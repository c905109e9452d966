//! What the client asked and what the endpoint answered, read off the wire.
//!
//! Facts only, and only as much of them as routing, limits and counting need: which API a path is ([`path`]), which
//! model a body names and what prompt prefix it carries ([`head`], [`multipart`]), what an answer said about itself
//! ([`sse`], [`usage`]), and the closed list of reasons for which a request is not served ([`reason`]).
//!
//! Bodies are read as bytes while they pass, once, never copied beyond small bounded fields and never turned into a tree:
//! what the engine gets is what the client sent. The one thing that is ever changed is the name of the model, where a
//! rewrite says so ([`head::NameAt`], [`rename`]). This crate opens no socket, reads no clock,
//! takes no lock and writes no log.

mod answer;
pub mod error_body;
pub mod head;
pub mod headers;
mod json;
pub mod models;
pub mod multipart;
pub mod path;
pub mod reason;
pub mod rename;
pub mod sse;
pub mod usage;

pub use error_body::ErrorBody;
pub use head::{Head, HeadError, Model};
pub use path::{Api, BodyShape, Dialect, ModelIn, PathError};
pub use reason::Reason;
pub use usage::Usage;
