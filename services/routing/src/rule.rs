//! One rule of a route, ready to be used: plain data that needs no look at the objects again.

use std::{sync::Arc, time::Duration};

use api::cluster::ObjectKey;

use crate::filter::Filters;

/// What happens to a request that one of the rule's matches takes.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// The route that it is of.
    pub route: Arc<ObjectKey>,
    /// Its place in the route, from 0.
    pub index: usize,
    /// `name`, where it has one.
    pub name: Option<String>,
    pub filters: Filters,
    /// In the order of the route. May be empty: then every request is answered with 500 (unless redirected).
    pub backends: Vec<Backend>,
    pub timeouts: Timeouts,
    /// Why every request of this rule is answered with 500: something in it that we cannot do, and must not leave out.
    pub refused: Option<String>,
}

/// One of the places that requests are shared among.
#[derive(Clone, Debug, PartialEq)]
pub struct Backend {
    /// Its share is this over the sum. 0 takes nothing.
    pub weight: u32,
    pub target: Target,
    /// Applied after those of the rule.
    pub filters: Filters,
}

/// Where requests go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// An InferencePool.
    Pool(ObjectKey),
    /// A port of a Service.
    Service { key: ObjectKey, port: u16, protocol: AppProtocol },
    /// Nowhere: its share of the requests is answered with 500, and this says why.
    Invalid(String),
}

/// What is spoken behind a Service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AppProtocol {
    #[default]
    Http1,
    /// HTTP/2 without TLS, with prior knowledge.
    H2c,
}

/// Time limits. `None` is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timeouts {
    /// From the request's arrival to the end of its answer.
    pub request: Option<Duration>,
    /// From one forwarding to the end of its answer.
    pub backend_request: Option<Duration>,
}

impl Rule {
    /// The backend that a random number falls on, each as often as its weight says; `None` if there is none with a weight.
    #[must_use]
    pub fn share(&self, random: u64) -> Option<&Backend> {
        let sum: u64 = self.backends.iter().map(|it| u64::from(it.weight)).sum();
        let mut rest = random.checked_rem(sum)?;
        self.backends.iter().find(|it| match rest.checked_sub(u64::from(it.weight)) {
            Some(less) => {
                rest = less;
                false
            }
            None => true,
        })
    }
}
