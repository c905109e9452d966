//! Both sides of HTTP against raw peers: what clients and endpoints do that HTTP libraries do not.
//!
//! Tests are named after the public bug reports whose inputs they replay, where there is one. Limits are scaled down; no
//! test waits for a time to pass but those that test a time.

#![expect(clippy::unwrap_used, reason = "a test may end where it fails")]

mod client_http1;
mod client_http2;
mod client_passing;
mod rig;
mod serve_drain;
mod serve_early;
mod serve_gone;
mod serve_http1;
mod serve_http2;
mod serve_listeners;
mod serve_tls;
mod through;
