//! Both sides of HTTP: listeners whose connections live on one core each, and clients with a pool per core and endpoint.
//!
//! Everything here follows from one measured choice: one `current_thread` runtime per core, no work stealing on the request
//! path. A connection, its requests and the endpoint connections they use stay on one core from accept to close.
//!
//! What this crate guards, so that no caller has to: heads, bodies, idle connections and connection counts are limited; an
//! answer given early can be read; a client that leaves is noticed at once and so is everything done for it; an endpoint's
//! connection is reused only when both messages on it ended cleanly.
//!
//! It refuses to know models, pools, picking, or what an error should look like: it reports its own closed enums, and the
//! gateway gives them a reason.

mod deadline;

pub mod client;
pub mod cores;
pub mod headers;
pub mod serve;
