//! Turns one InferenceGatewayConfig into a running gateway, and says in statuses how that went.
//!
//! Watches fill one picture of the cluster ([`picture`]); [`plan`] compares it with what the configs ask for and names
//! the writes that are missing, purely; [`act`] makes them; what stands in statuses comes out of the same picture. A
//! write happens only where the picture differs from the plan, so a controller with nothing to do writes nothing, and one
//! that was killed between any two writes goes on where it stopped.
//!
//! It never touches pods or workloads of models, refuses to write without holding its lease, and puts a finalizer on
//! nothing but a config that has a certificate in AWS.

pub mod act;
pub mod certificates;
pub mod client;
pub mod difference;
pub mod events;
pub mod gateway_api;
pub mod health;
pub mod judge;
pub mod kind;
pub mod leader;
pub mod mirror;
pub mod models;
pub mod options;
pub mod picture;
pub mod plan;
pub mod reconcile;
pub mod run;
pub mod seen;
pub mod status;
pub mod wanted;
