//! What is out there: endpoints as they were observed, and how loaded they said they were.
//!
//! Facts only. This crate holds no opinion about which endpoint is best (that is `scheduling`), opens no socket
//! (that is `discovery`) and reads no clock: time is a [`Moment`] that an adapter made.

mod endpoint;
mod load;
mod moment;

pub use endpoint::{Address, Endpoint, EndpointId, EndpointIds, Host, InvalidAddress, State};
pub use load::{Adapters, CacheShape, Load, NoPage, Observation, Signal};
pub use moment::Moment;
