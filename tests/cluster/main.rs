//! The product in a cluster: a real control plane, and pods that are real servers.
//!
//! Every test asks for `Cluster::shared()` and takes a namespace of its own; `docs/test-rig.md` says how to write one.

mod pods;
mod routes;
mod services;
