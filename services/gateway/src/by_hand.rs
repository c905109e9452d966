//! Routes written by hand: HTTPRoutes that hang on this process's Gateway, and the pools and Services behind them.
//!
//! The rules themselves are `routing`'s, decided on the same snapshot as the statuses that the controller writes. Here
//! they meet what requests need: for each target a pool with its dispatcher. A process whose Gateway has no such route
//! has none of this, and its requests pay one look for it.

mod edits;

use std::{collections::HashMap, sync::Arc};

use api::cluster::ObjectKey;
use http::{HeaderMap, Uri, header::HOST, request::Parts};
use proxy::serve::Listener;
use routing::{AppProtocol, HeaderSource, Rule, Table, Target};

pub use self::edits::{Edits, edit_headers, edit_path};
use crate::{extension::Link, routes::Served};

/// Everything that one Gateway's routes lead to.
#[derive(Default)]
pub struct HandRoutes {
    table: Table,
    targets: Targets,
    otherwise: Otherwise,
}

/// Whose a request is that no route written by hand takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Otherwise {
    /// The configuration's that made the Gateway.
    Configs,
    /// Nobody's.
    #[default]
    Nobodys,
}

/// The pools behind the targets of routes.
#[derive(Clone, Default)]
pub struct Targets {
    /// InferencePools.
    pub pools: HashMap<ObjectKey, Arc<Served>>,
    /// Services, with the ports that routes name.
    pub services: HashMap<ObjectKey, Vec<(u16, AppProtocol, Arc<Served>)>>,
}

/// What the endpoints of a pool are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backing {
    /// Model servers.
    Models,
    /// Servers of any kind, of which nothing is known.
    Anything,
}

/// Who picks the endpoint of a request.
#[derive(Clone, Debug)]
pub enum Picker {
    /// This process.
    Ours,
    /// Another endpoint picker, asked over `ext_proc`.
    Foreign(Arc<ForeignPicker>),
}

/// An endpoint picker that is not ours.
#[derive(Clone, Debug)]
pub struct ForeignPicker {
    /// Its Service.
    pub service: ObjectKey,
    /// The port of it.
    pub port: u16,
    /// What happens to requests while it cannot be asked.
    pub on_failure: OnFailure,
    /// The way to it.
    pub link: Arc<Link>,
}

/// What happens to requests while their picker cannot be asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnFailure {
    /// They are refused.
    #[default]
    Refuse,
    /// They are sent to any endpoint of the pool.
    PickOurselves,
}

/// Whose a request is.
pub enum Asked {
    /// A rule's.
    Taken(Taken),
    /// The configuration's.
    Configs,
    /// No route takes it.
    Nobodys,
}

/// The rule that takes a request.
pub struct Taken {
    /// It.
    pub rule: Arc<Rule>,
    /// Bytes of the path that its prefix took.
    pub prefix_len: usize,
}

impl HandRoutes {
    /// The routes of `table` with the pools behind them.
    pub fn new(table: Table, targets: Targets, otherwise: Otherwise) -> Self {
        Self { table, targets, otherwise }
    }

    /// Whose a request is that came by `listener`.
    pub fn find(&self, head: &Parts, listener: Listener) -> Asked {
        let asked = routing::Asked {
            port: listener.port,
            host: routing::without_port(host(head).unwrap_or_default()),
            method: head.method.as_str(),
            path: head.uri.path(),
            query: head.uri.query(),
            headers: &Headers(&head.headers),
        };
        match (self.table.find(&asked), self.otherwise) {
            (Some(found), _) => Asked::Taken(Taken { rule: Arc::clone(found.rule), prefix_len: found.prefix_len }),
            (None, Otherwise::Configs) => Asked::Configs,
            (None, Otherwise::Nobodys) => Asked::Nobodys,
        }
    }

    /// The pool behind a target, if it is known.
    pub fn served(&self, target: &Target) -> Option<&Arc<Served>> {
        match target {
            Target::Pool(key) => self.targets.pools.get(key),
            Target::Service { key, port, protocol } => {
                let ports = self.targets.services.get(key)?;
                ports.iter().find(|known| known.0 == *port && known.1 == *protocol).map(|(_, _, served)| served)
            }
            Target::Invalid(_) => None,
        }
    }

    /// Every pool behind a route.
    pub fn pools(&self) -> impl Iterator<Item = &Arc<Served>> {
        let services = self.targets.services.values().flatten().map(|(_, _, served)| served);
        self.targets.pools.values().chain(services)
    }
}

/// The host that a request names, with its port if it names one.
pub fn host(head: &Parts) -> Option<&str> {
    let in_target = |uri: &Uri| uri.authority().is_some();
    if in_target(&head.uri) {
        return head.uri.authority().map(http::uri::Authority::as_str);
    }
    head.headers.get(HOST)?.to_str().ok()
}

struct Headers<'a>(&'a HeaderMap);

impl HeaderSource for Headers<'_> {
    fn any(&self, name: &str, test: &mut dyn FnMut(&[u8]) -> bool) -> bool {
        self.0.get_all(name).iter().any(|value| test(value.as_bytes()))
    }
}
