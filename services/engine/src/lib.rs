//! A simulated model-server engine: what vLLM does with a request between its arrival and its last token.
//!
//! The engine forms batches step by step under a token budget, keeps KV blocks with a prefix cache, preempts when
//! blocks run out, defers what finds no adapter slot, and knows from a small table how long each step takes. It runs
//! in virtual or in real time: whoever calls [`Engine::step`] decides.
//!
//! It is pure: `now` is an argument, chance comes from a seed, and the same calls give the same answers on every
//! machine. It generates no text, speaks no protocol and knows no names; a program such as `model-sim` does that.

mod blocks;
mod engine;
mod profile;
mod ranks;
mod request;
mod stats;
mod step_time;

pub use blocks::{BlockHash, CacheChange, CacheKey};
pub use engine::Engine;
pub use profile::{ApiOverhead, Policy, Profile, Scheduling, UnknownProfile};
pub use ranks::{RankChoice, RankLoad};
pub use request::{AdapterId, Event, EventKind, FinishReason, Request, RequestId, SubmitError};
pub use stats::{Counters, Gauges, Histogram, Histograms, Stats};
pub use step_time::{Batch, DecodeTime, StepTime};
