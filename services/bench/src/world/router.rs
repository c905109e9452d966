//! Who routes.

use dispatch::Settings;

/// Who decides where a request goes.
#[derive(Clone, Debug, PartialEq)]
pub enum Router {
    /// The product: so many gateways, each of which sees only its own work, behind a load balancer that goes through
    /// them in turn.
    Product { settings: Box<Settings>, gateways: usize },
    /// One drawn at random, as kube-proxy does for each new connection.
    Random,
    /// One after the other.
    RoundRobin,
    /// The endpoint with fewest requests in flight; chance decides among equals.
    LeastRequest,
    /// The one of two drawn at random that has fewer requests in flight, as Envoy's `LEAST_REQUEST` does.
    RandomOfTwo,
    /// A bound: knows every true length and each engine's exact state, and sends each request where its first token comes
    /// soonest.
    Clairvoyant,
    /// The endpoint of each request, by number: a schedule made beforehand.
    Schedule(Vec<usize>),
}
