//! What happened, said once and named once: the metric catalogue, the registry behind it, the request log and the
//! set-up of `tracing`.
//!
//! Every metric the product exposes is a row of [`catalog`]; the raw macros of the `metrics` crate are banned elsewhere,
//! so a name, a label or a bucket cannot be invented beside it. Handles are looked up when a pool or an endpoint
//! appears and kept: the request path only touches atomics. This crate opens no socket; who serves the page is not its
//! business.

pub mod catalog;
mod histogram;
mod page;
mod registry;
pub mod request_log;
pub mod tracing_setup;

pub use page::Format;
pub use registry::{Counter, Gauge, Histogram, Metrics};
