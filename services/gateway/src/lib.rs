//! The gateway: one program that reads a request, decides where its answer will come soonest, and passes it on.
//!
//! `run` starts it; `control` keeps configuration, endpoints and signals true on a runtime of their own; `frontend`
//! takes requests on one runtime per core and sends each through `pipeline`; `admin` tells people and Prometheus.

pub mod admin;
pub mod answer;
pub mod auth;
pub mod body_memory;
pub mod by_hand;
pub mod clock;
pub mod control;
pub mod decisions;
pub mod decode;
pub mod descriptors;
pub mod errors;
pub mod extension;
pub mod frontend;
pub mod layers;
pub mod limits;
pub mod metrics;
pub mod openapi;
pub mod options;
pub mod pipeline;
pub mod place;
pub mod pools;
pub mod record;
pub mod rejection;
pub mod request_id;
pub mod rewrites;
pub mod routes;
pub mod run;
pub mod stage;
pub mod terminal;
pub mod world;
