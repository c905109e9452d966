//! Keeps the observed world true: configuration files become texts, wanted endpoints become addresses, addresses become
//! loads.
//!
//! Three sources, each with one way out: [`files`] calls back when a text changed, [`resolve`] when the set of endpoints
//! changed, [`scrape`] tells a [`scrape::Sink`] what each look at an endpoint found. [`page`] is the pure reader of
//! metrics pages in the middle.
//!
//! The crate forms no opinion about what it sees (that is `scheduling`), keeps no metrics of its own (the sink counts)
//! and logs only when something changed, never per look.

pub mod cluster;
pub mod engine;
pub mod files;
pub mod page;
pub mod resolve;
pub mod scrape;

pub use engine::Engine;
