//! Which request goes where, as Gateways and HTTPRoutes say it.
//!
//! Two questions over one snapshot of a cluster ([`api::cluster::Objects`]): what hangs on what, and what is wrong with it
//! ([`attach()`], from which the controller writes statuses); and where a request goes ([`Table`], which the data plane
//! asks). The second is built from the first, so a status can never say one thing and a request meet another.
//!
//! Pure: no IO, no clock. It knows neither pools' loads nor HTTP libraries.

mod attach;
mod compile;
pub mod filter;
mod hostname;
mod matching;
mod query;
mod rule;
mod table;
#[cfg(test)]
mod tests;
pub mod verdict;

pub use attach::{
    Attached, Attachment, GatewayState, ListenerState, PoolParent, Protocol, RouteParent, SupportedKind, attach,
};
pub use hostname::Hostname;
pub use rule::{AppProtocol, Backend, Rule, Target, Timeouts};
pub use table::{Asked, Found, HeaderSource, Table, without_port};
pub use verdict::{Truth, Verdict};
