//! From attachments to the order in which matches are tried.

use std::{cmp::Reverse, collections::BTreeMap, sync::Arc};

use api::{
    cluster::{HttpRoute, ObjectKey, Objects},
    names,
};

use super::{Entry, Listener, Table};
use crate::{
    Hostname,
    attach::{Attached, ListenerState},
    compile::{self, Compiled},
    matching::{Match, Precedence},
};

/// Everything that decides between two matches of one host. Total: the place of a match in the cluster's routes is in it.
type Order<'o> = (Precedence, &'o str, &'o ObjectKey, usize, usize);

/// A match that waits for its place.
struct Waiting<'o> {
    order: Order<'o>,
    test: Arc<Match>,
    rule: usize,
}

/// What one listener has gathered, by hostname.
type Gathered<'o> = BTreeMap<Hostname, Vec<Waiting<'o>>>;

impl Table {
    /// The table of `gateway`; empty if it is not ours.
    ///
    /// Routes that the controller made for a config are left out: their Gateway routes by its config.
    #[must_use]
    pub fn of(objects: &Objects, attached: &Attached, gateway: &ObjectKey) -> Self {
        let mut table = Self::default();
        let Some(state) = attached.gateways.get(gateway) else {
            return table;
        };
        let mut gathered: BTreeMap<usize, Gathered<'_>> = BTreeMap::new();
        for (key, parents) in &attached.routes {
            let Some(route) = objects.routes.get(key).filter(|it| !is_made_for_a_config(it)) else {
                continue;
            };
            let ours = parents.iter().filter(|it| it.gateway == *gateway);
            let on: Vec<_> = ours
                .flat_map(|it| &it.on)
                .filter(|it| state.listeners.get(it.listener).is_some_and(ListenerState::serves))
                .collect();
            if on.is_empty() {
                continue;
            }
            let compiled = compile::route(objects, route);
            let first = table.rules.len();
            table.rules.extend(compiled.rules.iter().map(|it| Arc::clone(&it.rule)));
            for attachment in on {
                let listener = gathered.entry(attachment.listener).or_default();
                for hostname in &attachment.hostnames {
                    gather(listener.entry(hostname.clone()).or_default(), key, route, &compiled, first);
                }
            }
        }
        for (at, listener) in state.listeners.iter().enumerate().filter(|(_, it)| it.serves()) {
            let routes = gathered.remove(&at).unwrap_or_default();
            table.ports.entry(listener.port).or_default().push(sorted(listener.hostname.clone(), routes));
        }
        for listeners in table.ports.values_mut() {
            listeners.sort_by_key(|it| Reverse(it.hostname.precision()));
        }
        table
    }
}

/// Whether the controller made the route to show what a config does. Who could forge this on a route could as well
/// delete it.
fn is_made_for_a_config(route: &HttpRoute) -> bool {
    route.metadata.label(names::MANAGED_BY_LABEL) == Some(names::MANAGED_BY)
        && route.metadata.label(names::CONFIG_NAME_LABEL).is_some()
        && route
            .metadata
            .owner_references
            .iter()
            .any(|it| it.kind == "InferenceGatewayConfig" && it.api_version.split('/').next() == Some(names::GROUP))
}

fn gather<'o>(
    into: &mut Vec<Waiting<'o>>,
    key: &'o ObjectKey,
    route: &'o HttpRoute,
    compiled: &Compiled,
    first: usize,
) {
    // Of an object that was not yet created nothing is older: it comes last.
    let created = route.metadata.creation_timestamp.as_deref().unwrap_or("~");
    for (rule, it) in compiled.rules.iter().enumerate() {
        let matches = it.matches.iter().enumerate();
        into.extend(matches.map(|(at, test)| Waiting {
            order: (test.precedence(), created, key, rule, at),
            test: Arc::clone(test),
            rule: first + rule,
        }));
    }
}

fn sorted(hostname: Hostname, gathered: Gathered<'_>) -> Listener {
    let mut listener = Listener { hostname, exact: Vec::new(), wide: Vec::new() };
    for (hostname, mut waiting) in gathered {
        waiting.sort_by(|one, two| one.order.cmp(&two.order));
        // A route that names a listener twice hangs on it once.
        waiting.dedup_by(|one, two| one.order == two.order);
        let entries = waiting.into_iter().map(|it| Entry { test: it.test, rule: it.rule }).collect();
        match hostname {
            Hostname::Exact(name) => listener.exact.push((name, entries)),
            Hostname::Suffix(_) | Hostname::Any => listener.wide.push((hostname, entries)),
        }
    }
    listener.exact.sort_by(|one, two| one.0.cmp(&two.0));
    listener.wide.sort_by_key(|(hostname, _)| Reverse(hostname.precision()));
    listener
}
