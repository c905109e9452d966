//! The tables, in Markdown: one for each load, then what was published beside what was measured.

use std::fmt::Write as _;

use super::{
    Measured, Measurement, RouterFigures,
    cell::Setting,
    figures::Figures,
    scenario::{PodClass, Scenario},
    summary,
};
use crate::{report::cell, statistics::Spread};

/// One column.
struct Column {
    title: &'static str,
    decimals: usize,
    of: fn(&Figures) -> f64,
}

const COLUMNS: [Column; 12] = [
    Column { title: "TTFT P50 ms", decimals: 0, of: |f| f.ttft_p50 },
    Column { title: "P95", decimals: 0, of: |f| f.ttft_p95 },
    Column { title: "P99", decimals: 0, of: |f| f.ttft_p99 },
    Column { title: "ITL P50 ms", decimals: 1, of: |f| f.itl_p50 },
    Column { title: "P99", decimals: 1, of: |f| f.itl_p99 },
    Column { title: "goodput %", decimals: 1, of: |f| f.goodput * 100.0 },
    Column { title: "shed %", decimals: 1, of: |f| f.shed * 100.0 },
    Column { title: "failed %", decimals: 2, of: |f| f.failed * 100.0 },
    Column { title: "tokens/s", decimals: 0, of: |f| f.throughput },
    Column { title: "idle GPUs %", decimals: 1, of: |f| f.idle_gpus * 100.0 },
    Column { title: "imbalance", decimals: 2, of: |f| f.imbalance },
    Column { title: "prefix hits %", decimals: 1, of: |f| f.prefix_hits * 100.0 },
];

/// Writing to a string cannot fail, here and below.
pub fn markdown(scenario: &Scenario, setting: &Setting, measured: &Measured) -> String {
    let mut text = preamble(scenario, setting, measured);
    for measurement in &measured.points {
        text += &at_load(setting, measurement);
    }
    text += &summary::markdown(scenario, setting, measured);
    text
}

fn preamble(scenario: &Scenario, setting: &Setting, measured: &Measured) -> String {
    let pod =
        |(pod, capacity): (&PodClass, &f64)| format!("{} × {} ({capacity:.2} requests/s each)", pod.count, pod.name);
    let pods: Vec<String> = setting.pods.iter().zip(&setting.capacity_per_pod).map(pod).collect();
    let (first, last) = (measured.seeds.first().unwrap_or(&0), measured.seeds.last().unwrap_or(&0));
    format!(
        "# {}\n\n{}: {}; capacity {:.2} requests/s, measured. An answer is good with its first token within {:.0} ms and \
         {:.0} ms per further token. {}, seeds {first}–{last}; medians, least and most in brackets.\n",
        scenario.title,
        scenario.model,
        pods.join(" + "),
        measured.capacity_per_s,
        scenario.slo.first_token_ms,
        scenario.slo.token_ms,
        measured.scenario,
    )
}

fn at_load(setting: &Setting, measurement: &Measurement) -> String {
    let Measurement { point, routers } = measurement;
    let requests = routers.first().and_then(|router| router.runs.first()).map_or(0, |run| run.requests);
    let mut text = format!(
        "\n## {}: {:.2} requests/s, {:.0} % of the fleet's capacity, {requests} requests\n\n| router |",
        point.name,
        point.rate_per_s,
        point.load * 100.0
    );
    let shares: Vec<String> = setting.pods.iter().map(|pod| format!("to {} %", pod.name)).collect();
    for title in COLUMNS.iter().map(|column| column.title).chain(shares.iter().map(String::as_str)) {
        let _ = write!(text, " {title} |");
    }
    text += &format!("\n|{}\n", "---|".repeat(1 + COLUMNS.len() + shares.len()));
    for router in routers {
        let _ = write!(text, "| {} |", router.router);
        for Column { decimals, of, .. } in &COLUMNS {
            let _ = write!(text, " {} |", spread(router, of).map_or("–".to_owned(), |s| cell(&s, *decimals)));
        }
        for class in 0..shares.len() {
            let share = spread(router, &|figures: &Figures| figures.shares[class] * 100.0);
            let _ = write!(text, " {} |", share.map_or("–".to_owned(), |s| cell(&s, 1)));
        }
        text += "\n";
    }
    text
}

/// Over a router's runs.
pub fn spread(router: &RouterFigures, of: &dyn Fn(&Figures) -> f64) -> Option<Spread> {
    Spread::of(&router.runs.iter().map(of).collect::<Vec<_>>())
}
