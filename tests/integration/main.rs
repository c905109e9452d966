//! Whole programs against each other: a real gateway process, model servers that behave or misbehave, real clients.
//!
//! One file per theme; tests that stem from a known fault of a gateway like this one are named by it, and
//! `docs/robustness.md` lists them all.

mod access;
mod adapters;
mod bench;
mod bodies;
mod churn;
mod client_gone;
mod configuration;
mod cut_streams;
mod decisions;
mod drain;
mod endpoint_access;
mod forms;
mod https;
mod json_bodies;
mod mixed_run;
mod pains;
mod picking;
mod probes;
mod queues;
mod quotas;
mod refusals;
mod request_headers;
mod resilience;
mod rewrites;
mod rig;
mod routing;
mod signal_pages;
mod signals;
mod smoke;
mod storms;
mod streaming;
mod telemetry;
mod time_limits;
mod tries;
mod tunnels;
mod two_models;
mod wire_http1;
mod wire_http2;
mod workshop;
