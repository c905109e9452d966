//! Which model goes to which pool: built anew from each configuration, read by every request.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use http::HeaderValue;
use protocol::models::Card;

use crate::{
    auth::Auth,
    by_hand::{Backing, HandRoutes, Picker},
    limits::{Matching, Rule},
    metrics::ModelMetrics,
    pools::PoolHandle,
    rewrites::Rewrites,
};

/// `logLevel` from which lines of requests explain their pick.
pub const EXPLAINING_LOG_LEVEL: u8 = 4;

/// Label of models that are none of ours.
pub const OTHER_MODEL: &str = "other";

/// The routing of one configuration.
#[derive(Clone)]
pub struct Routes {
    /// Who may send requests; `None`: everybody.
    pub auth: Option<Arc<Auth>>,
    /// Models and adapters by the name that clients use.
    pub models: BTreeMap<Arc<str>, Arc<Served>>,
    /// What takes a request that names no model of ours, if the configuration says so.
    pub fallback: Option<Fallback>,
    /// The only pool, if there is just one: it takes what carries no model.
    pub only: Option<Arc<Served>>,
    /// Every pool with the models and adapters it serves, in the order of the configuration.
    pub pools: Vec<Listed>,
    /// Routes written by hand that hang on this Gateway. They are asked first.
    pub by_hand: Option<Arc<HandRoutes>>,
    /// Names that only rewrites know, each with the pool whose requests they are.
    pub aliases: BTreeMap<Arc<str>, Arc<Served>>,
    /// Rewrites of models, by the name of their pool.
    pub rewrites: Arc<RewritesOfPools>,
    /// Whether the body's model decides and the model headers are set.
    pub body_based: bool,
    /// Paths forwarded besides the usual ones.
    pub extra_paths: Vec<String>,
    /// Largest request body, as sent and as decoded.
    pub body_bytes_max: u64,
    /// Every limit, in the order of the configuration.
    pub limits: Vec<Arc<Rule>>,
    /// Whether endpoints are asked for the usage of streamed answers.
    pub usage: api::Usage,
    /// Silence of an event stream after which its client gets a comment; `None` = it gets none.
    pub stream_keep_alive: Option<Duration>,
    /// Limits of time towards endpoints.
    pub timeouts: proxy::client::Timeouts,
    /// When this configuration was put in force, in seconds since 1970.
    pub since_unix_s: u64,
}

/// A pool and what it serves.
#[derive(Clone)]
pub struct Listed {
    /// The pool.
    pub pool: Arc<PoolHandle>,
    /// Names that clients use for it: its model first, then its adapters.
    pub models: Vec<Arc<str>>,
    /// Which of these are adapters.
    pub adapters: Vec<Arc<str>>,
}

/// Who takes requests for models that are none of ours.
#[derive(Clone)]
pub enum Fallback {
    /// The one pool of a gateway without body-based routing: the engine answers for the model.
    OnlyPool(Arc<Served>),
    /// `bbr.defaultBackend`.
    DefaultBackend(Arc<Served>),
}

impl Fallback {
    /// The pool behind it.
    pub fn served(&self) -> &Arc<Served> {
        match self {
            Self::OnlyPool(served) | Self::DefaultBackend(served) => served,
        }
    }
}

/// A model or adapter that a pool serves.
pub struct Served {
    /// The pool.
    pub pool: Arc<PoolHandle>,
    /// The name that clients use, as a metric label.
    pub model: Arc<str>,
    /// The model behind it; the same for a base model.
    pub base: Arc<str>,
    /// Set for an adapter: its name.
    pub adapter: Option<Arc<str>>,
    /// `model` as a header.
    pub model_header: HeaderValue,
    /// `base` as a header.
    pub base_header: HeaderValue,
    /// The scheduler's `logLevel`, 0 to 5; from [`EXPLAINING_LOG_LEVEL`] on, a request's line says why its endpoint was picked.
    pub log_level: u8,
    /// Longest life of a request; `None` for no limit.
    pub route_timeout: Option<Duration>,
    /// Limits that may count for its requests.
    pub limits: Matching,
    /// Which claim of its caller bounds a request's band. Without one a caller that had to be let in is no more than standard.
    pub band_claim: Option<Arc<api::BandClaim>>,
    /// Priorities of the objectives that requests of its pool may name.
    pub objectives: Arc<Objectives>,
    /// What its endpoints are.
    pub backing: Backing,
    /// Who picks one of them.
    pub picker: Picker,
    /// Its series.
    pub metrics: Arc<ModelMetrics>,
}

/// Rewrites by the name of their pool.
pub type RewritesOfPools = HashMap<Box<str>, Rewrites>;

/// Priorities by the objective's name.
pub type Objectives = HashMap<Box<str>, i32>;

impl Routes {
    /// Before the first configuration: nothing is served.
    pub fn none() -> Self {
        Self {
            auth: None,
            models: BTreeMap::new(),
            fallback: None,
            only: None,
            pools: Vec::new(),
            by_hand: None,
            aliases: BTreeMap::new(),
            rewrites: Arc::default(),
            body_based: true,
            extra_paths: Vec::new(),
            stream_keep_alive: None,
            body_bytes_max: 0,
            limits: Vec::new(),
            usage: api::Usage::AsAsked,
            timeouts: proxy::client::Timeouts::default(),
            since_unix_s: 0,
        }
    }

    /// The model that a client named, or who takes it instead.
    pub fn find(&self, model: &str) -> Option<&Arc<Served>> {
        self.models.get(model).or_else(|| self.fallback.as_ref().map(Fallback::served))
    }

    /// Models and adapters of pools with at least one usable endpoint.
    pub fn available(&self) -> impl Iterator<Item = &Arc<Served>> {
        self.models.values().filter(|served| served.pool.is_usable())
    }

    /// How a model stands in `/v1/models`.
    pub fn card<'a>(&self, served: &'a Served) -> Card<'a> {
        Card {
            id: &served.model,
            parent: served.adapter.as_ref().map(|_| &*served.base),
            created_s: self.since_unix_s,
            owned_by: "inference-gateway",
        }
    }
}
