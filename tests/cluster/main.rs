//! The product in a cluster: a real control plane, and pods that are real servers.
//!
//! Every test asks for `Cluster::shared()` and takes a namespace of its own; `docs/test-rig.md` says how to write one.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on stops where it stands")]

mod access;
mod admission;
mod autoscaled;
mod certificates;
mod controller;
mod data_plane;
mod disturbed;
mod first_day;
mod inference_extension;
mod killed;
mod operator;
mod own_controller;
mod plane;
mod pods;
mod product;
mod removal;
mod routes;
mod services;
mod stand_in;
mod uninstall;
