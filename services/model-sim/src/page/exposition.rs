//! The Prometheus text format as the Python client writes it: labels sorted by name, values as Python floats.

use engine::Histogram;

/// A page being written.
#[derive(Debug, Default)]
pub(super) struct Page(String);

/// Labels of one sample.
pub(super) type Labels<'a> = &'a [(&'a str, &'a str)];

impl Page {
    pub(super) fn with_capacity(bytes: usize) -> Self {
        Self(String::with_capacity(bytes))
    }

    /// The two lines before a family.
    pub(super) fn family(&mut self, name: &str, kind: &str, help: &str) {
        self.0.push_str("# HELP ");
        self.0.push_str(name);
        self.0.push(' ');
        self.0.push_str(help);
        self.0.push_str("\n# TYPE ");
        self.0.push_str(name);
        self.0.push(' ');
        self.0.push_str(kind);
        self.0.push('\n');
    }

    /// One line.
    pub(super) fn sample(&mut self, name: &str, labels: Labels<'_>, value: f64) {
        self.0.push_str(name);
        if !labels.is_empty() {
            let mut sorted = labels.to_vec();
            sorted.sort_unstable_by_key(|(name, _)| *name);
            for (index, (name, value)) in sorted.into_iter().enumerate() {
                self.0.push(if index == 0 { '{' } else { ',' });
                self.0.push_str(name);
                self.0.push_str("=\"");
                escape(&mut self.0, value);
                self.0.push('"');
            }
            self.0.push('}');
        }
        self.0.push(' ');
        self.0.push_str(&python_float(value));
        self.0.push('\n');
    }

    /// The lines of a histogram.
    pub(super) fn histogram(&mut self, name: &str, labels: Labels<'_>, histogram: &Histogram) {
        let bucket = format!("{name}_bucket");
        let open = (f64::INFINITY, histogram.count());
        for (bound, count) in histogram.cumulative().chain([open]) {
            let bound = python_float(bound);
            let with_bound: Vec<(&str, &str)> = labels.iter().copied().chain([("le", bound.as_str())]).collect();
            self.sample(&bucket, &with_bound, count as f64);
        }
        self.sample(&format!("{name}_count"), labels, histogram.count() as f64);
        self.sample(&format!("{name}_sum"), labels, histogram.sum());
    }

    pub(super) fn finish(self) -> String {
        self.0
    }
}

/// Backslash, quote and line feed are escaped in label values.
fn escape(text: &mut String, value: &str) {
    for character in value.chars() {
        match character {
            '\\' => text.push_str("\\\\"),
            '"' => text.push_str("\\\""),
            '\n' => text.push_str("\\n"),
            other => text.push(other),
        }
    }
}

/// A float as prometheus_client writes it: Python's shortest form, with an exponent from a million on.
pub(super) fn python_float(value: f64) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    if value != 0.0 && value.abs() < 1e-4 {
        let text = format!("{value:e}");
        let (mantissa, exponent) = text.split_once("e-").unwrap_or((&text, "0"));
        return format!("{mantissa}e-{exponent:0>2}");
    }
    let text = format!("{value:?}");
    match text.find('.') {
        Some(dot) if value > 0.0 && dot > 6 => {
            let mantissa = format!("{}.{}{}", &text[..1], &text[1..dot], &text[dot + 1..]);
            format!("{}e+0{}", mantissa.trim_end_matches(['0', '.']), dot - 1)
        }
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_look_like_pythons() {
        let rows: [(f64, &str); 10] = [
            (3.0, "3.0"),
            (0.0, "0.0"),
            (1280.0, "1280.0"),
            (1_000_000.0, "1e+06"),
            (985_882_624.0, "9.85882624e+08"),
            (1_796_049_574.794_082_6, "1.7960495747940826e+09"),
            (0.041_589_549_866_585_876, "0.041589549866585876"),
            (0.000_05, "5e-05"),
            (f64::INFINITY, "+Inf"),
            (f64::NAN, "NaN"),
        ];
        for (value, text) in rows {
            assert_eq!(python_float(value), text);
        }
    }

    #[test]
    fn labels_are_sorted_and_escaped() {
        let mut page = Page::default();
        page.sample("a", &[("z", "1"), ("b", "q\"\\\n")], 1.0);
        assert_eq!(page.finish(), "a{b=\"q\\\"\\\\\\n\",z=\"1\"} 1.0\n");
    }
}
