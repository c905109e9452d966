//! From a route as it is written to rules that can be followed, and what is wrong with it.
//!
//! Both the statuses and the table are made of this, so that they agree.

mod backend;
mod edits;

use std::sync::Arc;

use api::{
    GatewayDuration,
    cluster::{HttpRoute, ObjectKey, Objects, RouteMatch, RouteRule, RouteTimeouts},
};

pub(crate) use backend::picker_fault;

use crate::{
    matching::Match,
    rule::{Backend, Rule, Target, Timeouts},
};

/// A route, ready.
#[derive(Clone, Debug)]
pub(crate) struct Compiled {
    pub rules: Vec<CompiledRule>,
    /// References that lead nowhere, in order.
    pub unresolved: Vec<Fault>,
    /// Pools that it names and may name.
    pub pools: Vec<ObjectKey>,
}

/// One rule, ready.
#[derive(Clone, Debug)]
pub(crate) struct CompiledRule {
    pub rule: Arc<Rule>,
    /// Any of these takes a request. Those that cannot be understood are missing: they take none.
    pub matches: Vec<Arc<Match>>,
    /// What of it cannot be done.
    pub fault: Option<Fault>,
}

/// What is wrong, in the words of a condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub reason: &'static str,
    pub message: String,
}

impl Fault {
    /// Something that we cannot do.
    fn unsupported(message: impl Into<String>) -> Self {
        Self { reason: "UnsupportedValue", message: message.into() }
    }
}

/// Makes a route ready.
pub(crate) fn route(objects: &Objects, route: &HttpRoute) -> Compiled {
    let key = Arc::new(route.key());
    let mut compiled = Compiled { rules: Vec::new(), unresolved: Vec::new(), pools: Vec::new() };
    for (index, written) in route.spec.rules.iter().enumerate() {
        let rule = rule(objects, &key, index, written, &mut compiled);
        compiled.rules.push(rule);
    }
    compiled.pools.sort();
    compiled.pools.dedup();
    compiled
}

fn rule(
    objects: &Objects,
    route: &Arc<ObjectKey>,
    index: usize,
    written: &RouteRule,
    out: &mut Compiled,
) -> CompiledRule {
    let mut resolve = backend::Resolver { objects, namespace: &route.namespace, out };
    let (filters, flaw_of_filters) = edits::filters(&written.filters);
    let (timeouts, flaw_of_timeouts) = timeouts(written.timeouts.as_ref());
    let mut fault = flaw_of_filters.or(flaw_of_timeouts);
    let refused = fault.as_ref().map(|it| it.message.clone());
    let mut backends = Vec::with_capacity(written.backend_refs.len());
    for backend in &written.backend_refs {
        let target = resolve.target(backend);
        let (filters, flaw) = edits::filters(&backend.filters);
        // A filter that cannot be applied costs its backend, not the rule.
        let target = flaw.as_ref().map_or(target, |flaw| Target::Invalid(flaw.message.clone()));
        fault = fault.or(flaw);
        backends.push(Backend { weight: backend.weight.unwrap_or(1), target, filters });
    }
    let (matches, flaw_of_matches) = matches(&written.matches);
    let rule =
        Rule { route: Arc::clone(route), index, name: written.name.clone(), filters, backends, timeouts, refused };
    CompiledRule { rule: Arc::new(rule), matches, fault: fault.or(flaw_of_matches) }
}

/// No match at all means every path.
fn matches(written: &[RouteMatch]) -> (Vec<Arc<Match>>, Option<Fault>) {
    if written.is_empty() {
        return (vec![Arc::new(Match::default())], None);
    }
    let mut fault = None;
    let mut matches = Vec::with_capacity(written.len());
    for read in written.iter().map(Match::read) {
        match read {
            Ok(read) => matches.push(Arc::new(read)),
            Err(message) => fault = fault.or(Some(Fault::unsupported(message))),
        }
    }
    (matches, fault)
}

fn timeouts(written: Option<&RouteTimeouts>) -> (Timeouts, Option<Fault>) {
    let mut fault = None;
    let mut read = |text: Option<&String>| {
        let text = text?;
        let Some(duration) = GatewayDuration::parse(text) else {
            fault = Some(Fault::unsupported(format!("`{text}` is no duration")));
            return None;
        };
        duration.limit()
    };
    let (request, backend_request) =
        written.map(|it| (read(it.request.as_ref()), read(it.backend_request.as_ref()))).unwrap_or_default();
    (Timeouts { request, backend_request }, fault)
}
