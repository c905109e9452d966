//! Real clients and real readers against a real gateway: the official SDKs, Prometheus, a browser, a validator.
//!
//! The clients are scripts beside this file; each prints what it saw as JSON, and the tests check that together with what
//! the gateway logged and counted and what the simulated model server saw. The tools install themselves (see the
//! harness's `tools`), so the first run takes minutes and needs the package registries.

mod anthropic;
mod documents;
mod openai;
mod plain;
mod prometheus;
mod stage;
