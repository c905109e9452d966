//! The live series behind the catalogue.
//!
//! Built on the `metrics` handles and `metrics-util`'s registry instead of the Prometheus exporter's own: the exporter
//! can forget a series only when it was idle, which would also reset the counters of a quiet endpoint, and it keeps
//! raw observations until an upkeep task runs (`docs/adr/0002-metrics-registry.md`).

use std::sync::{Arc, atomic::AtomicU64};

pub use metrics::{Counter, Gauge, Histogram};
use metrics::{Key, Label as KeyLabel};
use metrics_util::registry::{Registry, Storage};

use crate::{
    catalog::{self, Kind, Metric},
    histogram::Buckets,
    page::{self, Format},
};

/// All series of the process. Cheap to clone; handles outlive it.
#[derive(Clone, Debug)]
pub struct Metrics {
    registry: Arc<Registry<Key, Series>>,
}

impl Default for Metrics {
    fn default() -> Self {
        Self { registry: Arc::new(Registry::new(Series)) }
    }
}

impl Metrics {
    /// The counter of `metric` with these label values, in the catalogue's order; made at 0 if it is new.
    pub fn counter(&self, metric: &'static Metric, values: &[&str]) -> Counter {
        debug_assert_eq!(metric.kind, Kind::Counter, "{}", metric.name);
        self.registry.get_or_create_counter(&key(metric, values), |c| Counter::from_arc(Arc::clone(c)))
    }

    /// The gauge (or counter with fractions) of `metric` with these label values.
    pub fn gauge(&self, metric: &'static Metric, values: &[&str]) -> Gauge {
        debug_assert!(matches!(metric.kind, Kind::Gauge | Kind::FractionCounter), "{}", metric.name);
        self.registry.get_or_create_gauge(&key(metric, values), |g| Gauge::from_arc(Arc::clone(g)))
    }

    /// The histogram of `metric` with these label values.
    pub fn histogram(&self, metric: &'static Metric, values: &[&str]) -> Histogram {
        debug_assert!(matches!(metric.kind, Kind::Histogram(_)), "{}", metric.name);
        self.registry.get_or_create_histogram(&key(metric, values), |h| Histogram::from_arc(Arc::clone(h)))
    }

    /// Drops the one gauge series, so that a value which is no longer known does not stay on the page.
    pub fn forget_gauge(&self, metric: &'static Metric, values: &[&str]) {
        self.registry.delete_gauge(&key(metric, values));
    }

    /// Drops every series whose labels hold all of `labels`: what is left of a removed endpoint or pool. A handle still
    /// held keeps working and shows nowhere.
    pub fn forget(&self, labels: &[(&str, &str)]) {
        let keep = |key: &Key| {
            !labels.iter().all(|(name, value)| key.labels().any(|l| l.key() == *name && l.value() == *value))
        };
        self.registry.retain_counters(|key, _| keep(key));
        self.registry.retain_gauges(|key, _| keep(key));
        self.registry.retain_histograms(|key, _| keep(key));
    }

    /// The page of all series, ordered by the catalogue and then by labels.
    pub fn render(&self, format: Format) -> String {
        page::render(&self.registry, format)
    }
}

fn key(metric: &'static Metric, values: &[&str]) -> Key {
    debug_assert_eq!(metric.labels.len(), values.len(), "{}", metric.name);
    let labels: Vec<KeyLabel> =
        metric.labels.iter().zip(values).map(|(label, value)| KeyLabel::new(label.name, (*value).to_owned())).collect();
    Key::from_parts(metric.name, labels)
}

/// Where values live: plain atomics for counters and gauges, fixed buckets for histograms.
#[derive(Debug)]
pub(crate) struct Series;

impl Storage<Key> for Series {
    type Counter = Arc<AtomicU64>;
    type Gauge = Arc<AtomicU64>;
    type Histogram = Arc<Buckets>;

    fn counter(&self, _: &Key) -> Self::Counter {
        Arc::default()
    }

    fn gauge(&self, _: &Key) -> Self::Gauge {
        Arc::default()
    }

    fn histogram(&self, key: &Key) -> Self::Histogram {
        match catalog::find(key.name()).map(|metric| metric.kind) {
            Some(Kind::Histogram(bounds)) => Buckets::new(bounds),
            Some(Kind::Counter | Kind::FractionCounter | Kind::Gauge) | None => Buckets::new(&[]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::{ENDPOINT_WAITING, PICKS, REQUEST_DURATION, SCRAPE_FAILURES};

    fn busy() -> Metrics {
        let metrics = Metrics::default();
        metrics.counter(&PICKS, &["llama", "llama-0"]).increment(3);
        metrics.counter(&PICKS, &["llama", "llama-1"]).increment(4);
        metrics.gauge(&ENDPOINT_WAITING, &["llama", "llama-0"]).set(2.0);
        metrics.counter(&SCRAPE_FAILURES, &["llama-0", "timeout"]).increment(1);
        metrics.histogram(&REQUEST_DURATION, &["llama", "m"]).record(0.3);
        metrics
    }

    #[test]
    fn the_same_labels_are_the_same_series() {
        let metrics = busy();
        metrics.counter(&PICKS, &["llama", "llama-0"]).increment(1);
        assert!(
            metrics
                .render(Format::Text)
                .contains("inference_gateway_picks_total{pool=\"llama\",endpoint=\"llama-0\"} 4\n")
        );
    }

    #[test]
    fn series_of_a_removed_endpoint_go_and_the_others_stay() {
        let metrics = busy();
        let kept_handle = metrics.counter(&PICKS, &["llama", "llama-0"]);
        metrics.forget(&[("endpoint", "llama-0")]);
        kept_handle.increment(1);
        let page = metrics.render(Format::Text);
        assert!(!page.contains("llama-0"), "{page}");
        assert!(page.contains("llama-1"));
        assert!(page.contains("inference_gateway_request_duration_seconds_count{pool=\"llama\",model=\"m\"} 1\n"));
    }

    #[test]
    fn an_endpoint_that_comes_back_counts_from_zero() {
        let metrics = busy();
        metrics.forget(&[("pool", "llama"), ("endpoint", "llama-0")]);
        metrics.counter(&PICKS, &["llama", "llama-0"]).increment(1);
        assert!(metrics.render(Format::Text).contains("picks_total{pool=\"llama\",endpoint=\"llama-0\"} 1\n"));
    }

    #[test]
    fn a_value_no_longer_known_leaves_the_page() {
        let metrics = busy();
        metrics.forget_gauge(&ENDPOINT_WAITING, &["llama", "llama-0"]);
        assert!(!metrics.render(Format::Text).contains("endpoint_waiting"));
    }
}
