//! Doors into the pipeline.

pub mod http;
pub mod refusals;
