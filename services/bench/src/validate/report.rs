//! The figures as Markdown: a table per run, one of the gauges, one of the published pools.

use std::fmt::Write as _;

use super::{
    Validated, Validation,
    figures::{Figure, Gauge},
    hardware::Scale,
    published::Row,
};

/// All tables.
pub fn markdown(validation: &Validation) -> String {
    let mut text = String::new();
    for run in &validation.runs {
        one_run(&mut text, run);
    }
    published(&mut text, &validation.published);
    text
}

fn one_run(text: &mut String, run: &Validated) {
    // Writing to a string cannot fail, here and below.
    let _ = writeln!(text, "### {} ({} requests)\n", run.title, run.requests);
    let _ = writeln!(
        text,
        "| figure | measured | data sheet | error | measured, later half | data sheet, error | fitted to the earlier \
         half, error | earlier half, fitted to the later, error |\n|---|---|---|---|---|---|---|---|"
    );
    let halves = run.sheet_later.iter().zip(&run.fitted_later).zip(&run.fitted_earlier);
    for (all, ((sheet, fitted), earlier)) in run.sheet.latencies.iter().zip(halves) {
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} |",
            opening(all),
            number(sheet.measured),
            percent(sheet),
            percent(fitted),
            percent(earlier),
        );
    }
    for (sheet, fitted) in run.sheet.totals.iter().zip(&run.fitted.totals) {
        let _ = writeln!(text, "| {} | – | – | {} | – |", opening(sheet), percent(fitted));
    }
    let _ = writeln!(text, "\n{}", costs(&run.scales));
    let _ =
        writeln!(text, "\n| gauge, mean | measured | data sheet | apart | fitted | apart |\n|---|---|---|---|---|---|");
    for (sheet, fitted) in run.sheet.gauges.iter().zip(&run.fitted.gauges) {
        let pair = |gauge: &Gauge| format!("{} | {}", number(gauge.simulated), number(gauge.apart));
        let _ = writeln!(text, "| {} | {} | {} | {} |", sheet.name, number(sheet.measured), pair(sheet), pair(fitted));
    }
    let _ = writeln!(text, "\nPreemptions: {} and {}.\n", run.sheet.preemptions, run.fitted.preemptions);
}

/// `TTFT mean, s | 65.5 | 70.3 | +7.4 %`.
fn opening(figure: &Figure) -> String {
    let [measured, simulated] = [figure.measured, figure.simulated].map(number);
    format!("{}, {} | {measured} | {simulated} | {}", figure.name, figure.unit, percent(figure))
}

fn costs(scales: &[Scale; 2]) -> String {
    let one = |scale: &Scale| {
        format!(
            "weights ×{:.2}, prefill step ×{:.2}, prefill token ×{:.2}, sequence ×{:.2}, KV ×{:.2}",
            scale.weights, scale.base, scale.prefill, scale.sequence, scale.kv
        )
    };
    format!("Costs over those of the data sheet: {} (earlier half); {} (later half).", one(&scales[0]), one(&scales[1]))
}

fn published(text: &mut String, rows: &[Row]) {
    for (index, row) in rows.iter().enumerate() {
        if index == 0 || rows[index - 1].pool != row.pool {
            let _ = writeln!(
                text,
                "### {}\n\n| req/s | ITL, published | ITL, simulated, ms | error | TTFT, published | TTFT, simulated, ms \
                 |\n|---|---|---|---|---|---|",
                row.pool
            );
        }
        let error = row.itl_ms / row.published_itl_ms - 1.0;
        let ttft = row.published_ttft_ms.map_or("–".to_owned(), number);
        let _ = writeln!(
            text,
            "| {} | {} | {} | {:+.1} % | {ttft} | {} |",
            row.requests_per_second,
            number(row.published_itl_ms),
            number(row.itl_ms),
            error * 100.0,
            number(row.ttft_ms),
        );
        if rows.get(index + 1).is_none_or(|next| next.pool != row.pool) {
            text.push('\n');
        }
    }
}

fn percent(figure: &Figure) -> String {
    format!("{:+.1} %", figure.error() * 100.0)
}

/// Three figures that count, or all before the point.
fn number(value: f64) -> String {
    let decimals = match value.abs() {
        value if value >= 100.0 => 0,
        value if value >= 10.0 => 1,
        _ => 2,
    };
    format!("{value:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_is_shown_with_its_error() {
        let figure = Figure { name: "TTFT mean".to_owned(), unit: "s", measured: 65.46, simulated: 70.31 };
        assert_eq!(opening(&figure), "TTFT mean, s | 65.5 | 70.3 | +7.4 %");
        assert_eq!([0.123, 12.34, 123.4].map(number), ["0.12", "12.3", "123"]);
    }
}
