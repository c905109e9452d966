//! The metrics page, in the Prometheus text format and in OpenMetrics.

use std::{collections::BTreeMap, fmt::Write as _, sync::atomic::Ordering};

use metrics::Key;
use metrics_exporter_prometheus::formatting::{sanitize_description, sanitize_label_value};
use metrics_util::registry::Registry;

use crate::{
    catalog::{self, Kind, Metric},
    histogram::Reading,
    registry::Series,
};

/// How to write the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Prometheus text format 0.0.4.
    Text,
    /// OpenMetrics 1.0.0.
    OpenMetrics,
}

impl Format {
    /// What an `Accept` header asks for. Prometheus names both and gives weights; OpenMetrics is taken when it is named
    /// at least as strongly as plain text.
    pub fn asked_by(accept: Option<&str>) -> Self {
        let weight = |kind: &str| {
            accept.into_iter().flat_map(|a| a.split(',')).filter(|part| part.trim().starts_with(kind)).fold(
                0.0_f32,
                |best, part| {
                    let q = part.split(';').find_map(|p| p.trim().strip_prefix("q=")?.trim().parse().ok());
                    best.max(q.unwrap_or(1.0))
                },
            )
        };
        let open = weight("application/openmetrics-text");
        if open > 0.0 && open >= weight("text/plain") { Self::OpenMetrics } else { Self::Text }
    }

    /// The `Content-Type` of such a page.
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

enum Value {
    Count(u64),
    Level(f64),
    Histogram(Reading),
}

pub(crate) fn render(registry: &Registry<Key, Series>, format: Format) -> String {
    let mut families: BTreeMap<&str, BTreeMap<String, Value>> = BTreeMap::new();
    let mut put = |key: &Key, value| {
        if let Some(metric) = catalog::find(key.name()) {
            families.entry(metric.name).or_default().insert(labels(key), value);
        }
    };
    registry.visit_counters(|key, value| put(key, Value::Count(value.load(Ordering::Relaxed))));
    registry.visit_gauges(|key, value| put(key, Value::Level(f64::from_bits(value.load(Ordering::Relaxed)))));
    registry.visit_histograms(|key, value| put(key, Value::Histogram(value.read())));

    let mut page = String::with_capacity(16 * 1024);
    for metric in catalog::ALL {
        if let Some(series) = families.get(metric.name) {
            write_family(&mut page, metric, series, format);
        }
    }
    if format == Format::OpenMetrics {
        page.push_str("# EOF\n");
    }
    page
}

fn labels(key: &Key) -> String {
    let mut text = String::new();
    for label in key.labels() {
        let comma = if text.is_empty() { "" } else { "," };
        let _ = write!(text, "{comma}{}=\"{}\"", label.key(), sanitize_label_value(label.value()));
    }
    text
}

fn write_family(page: &mut String, metric: &Metric, series: &BTreeMap<String, Value>, format: Format) {
    // In OpenMetrics a counter's family is named without `_total`; its samples keep it.
    let family = match (format, metric.kind) {
        (Format::OpenMetrics, Kind::Counter | Kind::FractionCounter) => metric.name.trim_end_matches("_total"),
        (Format::OpenMetrics | Format::Text, _) => metric.name,
    };
    let kind = match metric.kind {
        Kind::Counter | Kind::FractionCounter => "counter",
        Kind::Gauge => "gauge",
        Kind::Histogram(_) => "histogram",
    };
    let _ = writeln!(page, "# HELP {family} {}\n# TYPE {family} {kind}", sanitize_description(metric.help));
    for (labels, value) in series {
        match value {
            Value::Count(count) => sample(page, metric.name, "", labels, "", count),
            Value::Level(level) => sample(page, metric.name, "", labels, "", level),
            Value::Histogram(reading) => write_histogram(page, metric.name, labels, reading),
        }
    }
}

fn write_histogram(page: &mut String, name: &str, labels: &str, reading: &Reading) {
    let total = reading.cumulative.last().copied().unwrap_or(0);
    for (bound, count) in reading.bounds.iter().zip(&reading.cumulative) {
        sample(page, name, "_bucket", labels, &format!("le=\"{bound:?}\""), count);
    }
    sample(page, name, "_bucket", labels, "le=\"+Inf\"", &total);
    sample(page, name, "_sum", labels, "", &reading.sum);
    sample(page, name, "_count", labels, "", &total);
}

fn sample(page: &mut String, name: &str, suffix: &str, labels: &str, extra: &str, value: &dyn std::fmt::Display) {
    let comma = if labels.is_empty() || extra.is_empty() { "" } else { "," };
    let _ = match (labels.is_empty(), extra.is_empty()) {
        (true, true) => writeln!(page, "{name}{suffix} {value}"),
        (true, false) | (false, true) | (false, false) => {
            writeln!(page, "{name}{suffix}{{{labels}{comma}{extra}}} {value}")
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Metrics,
        catalog::{CONFIG_GENERATION, PICKS, TIME_TO_FIRST_TOKEN},
    };

    fn metrics() -> Metrics {
        let metrics = Metrics::default();
        metrics.counter(&PICKS, &["p", "a\"b\\c\nd"]).increment(2);
        metrics.gauge(&CONFIG_GENERATION, &[]).set(7.0);
        metrics.histogram(&TIME_TO_FIRST_TOKEN, &["p", "m"]).record(0.07);
        metrics
    }

    #[test]
    fn the_text_format() {
        let page = metrics().render(Format::Text);
        assert!(page.contains("# TYPE inference_gateway_picks_total counter\n"), "{page}");
        assert!(page.contains(r#"inference_gateway_picks_total{pool="p",endpoint="a\"b\\c\nd"} 2"#), "{page}");
        assert!(page.contains("inference_gateway_config_generation 7\n"));
        assert!(page.contains(r#"_seconds_bucket{pool="p",model="m",le="0.06"} 0"#), "{page}");
        assert!(page.contains(r#"_seconds_bucket{pool="p",model="m",le="0.08"} 1"#));
        assert!(page.contains(r#"_seconds_bucket{pool="p",model="m",le="1.0"} 1"#));
        assert!(page.contains(r#"_seconds_bucket{pool="p",model="m",le="+Inf"} 1"#));
        assert!(!page.contains("# EOF"));
    }

    #[test]
    fn openmetrics() {
        let page = metrics().render(Format::OpenMetrics);
        assert!(page.contains("# TYPE inference_gateway_picks counter\n"), "{page}");
        assert!(page.contains("inference_gateway_picks_total{"));
        assert!(page.ends_with("# EOF\n"));
    }

    #[test]
    fn what_the_reader_asks_for() {
        let prometheus = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.1";
        assert_eq!(Format::asked_by(Some(prometheus)), Format::OpenMetrics);
        assert_eq!(Format::asked_by(Some("text/plain, application/openmetrics-text;q=0.1")), Format::Text);
        assert_eq!(Format::asked_by(Some("*/*")), Format::Text);
        assert_eq!(Format::asked_by(None), Format::Text);
    }
}
