//! A simulated model server that a client cannot tell from a real one.
//!
//! It shows the outside of vLLM, SGLang or TGI (paths, bodies, event streams, error shapes, metrics page, manners of the
//! HTTP server) over the simulated engine of crate `engine`, run in scaled real time. Answers are words chosen by a hash
//! of the prompt: different prompts get different answers, the same prompt gets the same one. Tokens are pieces of the
//! real text, so that a shared prefix really is one. Faults are switched on and off at run time under `/sim/…`.
//!
//! Tests run it in-process with [`start`]; the program `model-sim` is a thin shell around it. It loads no model and
//! needs no GPU.

mod adapters;
mod admin;
mod answer;
mod clock;
mod driver;
mod face;
mod failure;
mod faults;
mod fields;
mod generation;
mod journal;
mod kv_events;
mod latency;
mod options;
mod page;
mod prompt;
mod server;
mod sim;
mod text;
mod web;

pub use faults::{Fault, Faults, MetricsFault};
pub use journal::{Outcome, SeenRequest};
pub use kv_events::{KvEventSource, KvEventsError};
pub use options::{Adapter, Face, InvalidOption, KvEvents, Options, Version};
pub use server::{Running, StartError, start};
