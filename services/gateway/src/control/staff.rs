//! Who serves in which pool: what may serve, held against what each pool takes.
//!
//! Apart from the rest of a plan, since in a cluster it changes with every pod that comes or goes, while pools, routes and
//! limits stay as they are.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use api::{Config, EndpointSpec, Selector};
use discovery::resolve::{MetricsAt, Want};
use pool::Host;

use super::{
    build::{Place, Unusable},
    endpoints::{Owner, identity, tls_client, tls_to},
    keys::Keys,
};
use crate::pools::PoolHandle;

/// Something that may serve.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Candidate {
    pub(super) spec: EndpointSpec,
    /// Tells one of the same name and address from its predecessor: a pod's uid. Empty in files.
    pub(super) life: String,
}

/// All that may serve.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Supply {
    /// What schedulers select from.
    pub(super) candidates: Vec<Candidate>,
    /// What is behind `bbr.defaultBackend`.
    pub(super) default_backend: Vec<Candidate>,
    /// What is behind each pool of routes written by hand.
    pub(super) by_hand: BTreeMap<String, Vec<Candidate>>,
}

/// A pool and whom it takes.
pub(super) struct Selecting {
    pub(super) pool: Arc<PoolHandle>,
    pub(super) place: Place,
    pub(super) whom: Whom,
}

/// Whom a pool takes.
pub(super) enum Whom {
    /// Those with these labels.
    Labelled(Selector),
    /// What is behind `bbr.defaultBackend`.
    DefaultBackend,
    /// What is behind this pool, which routes written by hand name.
    ByHand(String),
}

/// Who serves where.
#[derive(Default)]
pub(super) struct Staff {
    /// By the identity of what is wanted.
    pub(super) owners: HashMap<u64, Owner>,
    pub(super) wants: Arc<[Want]>,
    /// What should be said loudly.
    pub(super) warnings: Vec<String>,
}

impl Supply {
    /// What the documents of files name.
    pub(super) fn of_files(config: &Config) -> Self {
        let candidate = |spec: &EndpointSpec| Candidate { spec: spec.clone(), life: String::new() };
        let is_default = |spec: &&EndpointSpec| config.bbr.default_backend.as_ref() == Some(&spec.name);
        Self {
            candidates: config.endpoints.iter().map(candidate).collect(),
            default_backend: config.endpoints.iter().filter(is_default).map(candidate).collect(),
            by_hand: BTreeMap::new(),
        }
    }

    fn of<'a>(&'a self, whom: &'a Whom) -> Box<dyn Iterator<Item = &'a Candidate> + 'a> {
        match whom {
            Whom::Labelled(selector) => Box::new(self.candidates.iter().filter(|it| selector.matches(&it.spec.labels))),
            Whom::DefaultBackend => Box::new(self.default_backend.iter()),
            Whom::ByHand(pool) => Box::new(self.by_hand.get(pool).into_iter().flatten()),
        }
    }
}

impl Staff {
    pub(super) fn new<'a>(
        selecting: impl IntoIterator<Item = &'a Selecting>,
        supply: &Supply,
    ) -> Result<Self, Unusable> {
        let mut staff = Self::default();
        let mut wants = Vec::new();
        for Selecting { pool, place, whom } in selecting {
            for candidate in supply.of(whom) {
                wants.push(staff.want(candidate, pool, *place)?);
            }
        }
        staff.wants = wants.into();
        Ok(staff)
    }

    fn want(&mut self, candidate: &Candidate, pool: &Arc<PoolHandle>, place: Place) -> Result<Want, Unusable> {
        let Candidate { spec, life } = candidate;
        let host: Host = spec.address.parse().expect("addresses are checked when a configuration is loaded");
        let port = spec.port.unwrap_or(place.port);
        let tls = spec.tls.as_ref().map(tls_to);
        let tls_client = tls.as_ref().map(|tls| tls_client(spec, tls)).transpose()?;
        if let Some(source) = &spec.api_key {
            Keys::read(source).map_err(|problem| Unusable::Key { endpoint: spec.name.clone(), problem })?;
        }
        if spec.tls.as_ref().is_some_and(|tls| tls.insecure_skip_verify) {
            let warning =
                "its certificate is NOT checked (insecureSkipVerify): anyone on the way can read and change requests";
            self.warnings.push(format!("Endpoint `{}`: {warning}", spec.name));
        }
        let identity = identity(pool, spec, life, place);
        let owner = Owner {
            pool: Arc::clone(pool),
            protocol: place.protocol,
            tls: tls_client,
            key: spec.api_key.clone(),
            looks: place.looks,
        };
        self.owners.insert(identity, owner);
        let metrics_path = spec.metrics_path.as_deref().unwrap_or(place.engine.metrics_path());
        let metrics_port = spec.metrics_port.or(place.engine.metrics_port()).unwrap_or(port);
        Ok(Want {
            name: spec.name.as_str().into(),
            host,
            port,
            metrics: MetricsAt { port: metrics_port, path: metrics_path.into() },
            tls,
            authorization: spec.api_key.as_ref().and_then(|source| Keys::read(source).ok()),
            engine: place.engine,
            identity,
        })
    }
}

impl Selecting {
    /// Endpoints that nobody takes, and pools that take nobody: in files that is seldom meant.
    pub(super) fn idle(all: &[Self], config: &Config, supply: &Supply) -> Vec<String> {
        let takes = |it: &Self, name: &str| supply.of(&it.whom).any(|candidate| candidate.spec.name == name);
        let is_idle = |spec: &&EndpointSpec| !all.iter().any(|it| takes(it, &spec.name));
        let endpoints = config.endpoints.iter().filter(is_idle).map(|spec| {
            let warning = "no scheduler's modelSelector matches its labels: it gets no requests";
            format!("Endpoint `{}`: {warning}", spec.name)
        });
        let empty = all.iter().filter(|it| supply.of(&it.whom).next().is_none());
        let pools =
            empty.map(|it| format!("scheduler `{}`: no Endpoint has the labels of its modelSelector", it.pool.name));
        endpoints.chain(pools).collect()
    }
}
