//! When a request is served: bands of priority, fairness between callers, and how much each may ask for.
//!
//! Everything here is a plain value that its owner keeps behind one short lock or in one simulation: no clock (`now` is an
//! argument), no timers (the owner asks), no locks, no random numbers of its own.
//!
//! It refuses to know endpoints: whether there is room, and where, is the dispatcher's question.

mod ask;
mod band;
mod drain_rate;
mod queue;
pub mod quota;
mod retry_after;
mod retry_budget;
mod settings;

pub use ask::{Ask, Flow};
pub use band::Band;
pub use queue::{Choice, Joined, Left, Look, Queue, QueueFull, Ticket};
pub use retry_after::retry_after_s;
pub use retry_budget::RetryBudget;
pub use settings::{BandSettings, Fairness, Ordering, Settings};
