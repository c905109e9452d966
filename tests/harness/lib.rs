//! What tests of whole programs stand on: a gateway process, model servers that behave or misbehave as told, clients that
//! send exact bytes, and the tools of other languages.
//!
//! Everything listens on loopback, port 0, and ends with the value that started it. Waiting is always for something that
//! can be observed, within a limit; nothing sleeps in the hope that something has happened.

mod admin;
mod cluster;
mod config;
mod gateway;
mod http;
mod http2;
mod identity_provider;
mod model_server;
mod peer;
mod picker;
mod programs;
mod raw;
mod sim;
mod tls;
mod tools;
mod wait;

pub use admin::Admin;
pub use cluster::{Cluster, Space};
pub use config::{Config, Scheduler};
pub use gateway::Gateway;
pub use http::{Answer, Connection, post, request, request_in_chunks};
pub use http2::{Http2, Http2Answer, Http2Peer, OpenStream, respond};
pub use identity_provider::{ISSUER, IdentityProvider, TokenKey, now_s};
pub use model_server::{MetricsPage, ModelServer, chat_body, chats};
pub use peer::{Exchange, Next, Peer, Script, Seen};
pub use picker::{Picker, PickerAsked, SERVED};
pub use programs::{Program, program};
pub use raw::{RawPeer, blackhole};
pub use sim::Sim;
pub use tls::{Authority, TlsFront};
pub use tools::{Chromium, Node, Page, Prometheus, Python};
pub use wait::{eventually, soon};
