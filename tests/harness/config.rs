//! Configurations for tests, as the YAML an operator would write.

use std::{fmt::Write, net::SocketAddr};

/// A configuration: one gateway, its schedulers and their endpoints.
#[derive(Clone, Debug)]
pub struct Config {
    /// Lines below `spec:`, indented by two.
    pub spec: String,
    /// Its schedulers.
    pub schedulers: Vec<Scheduler>,
    /// Further documents.
    pub documents: String,
}

/// A scheduler with endpoints.
#[derive(Clone, Debug)]
pub struct Scheduler {
    /// Model and name.
    pub model: String,
    /// Where its endpoints are; they are called `<model>-0`, `<model>-1`, ...
    pub endpoints: Vec<SocketAddr>,
    /// Lines of the scheduler, indented by four.
    pub lines: String,
    /// Lines of each endpoint's `spec`, indented by two.
    pub endpoint_lines: String,
}

impl Scheduler {
    /// A scheduler of `model` with these endpoints.
    pub fn new(model: &str, endpoints: impl IntoIterator<Item = SocketAddr>) -> Self {
        Self {
            model: model.into(),
            endpoints: endpoints.into_iter().collect(),
            lines: String::new(),
            endpoint_lines: String::new(),
        }
    }

    /// Adds a line to the scheduler, such as `weights: {queue: 3}`.
    #[must_use]
    pub fn line(mut self, line: &str) -> Self {
        writeln!(self.lines, "    {line}").expect("a string takes it");
        self
    }

    /// Adds a line to each endpoint's spec.
    #[must_use]
    pub fn endpoint_line(mut self, line: &str) -> Self {
        writeln!(self.endpoint_lines, "  {line}").expect("a string takes it");
        self
    }
}

impl Config {
    /// Body-based routing over these schedulers.
    pub fn new(schedulers: impl IntoIterator<Item = Scheduler>) -> Self {
        Self {
            spec: "  bbr: {enabled: true}\n".into(),
            schedulers: schedulers.into_iter().collect(),
            documents: String::new(),
        }
    }

    /// One model on these endpoints, which have no metrics page.
    pub fn plain(model: &str, endpoints: impl IntoIterator<Item = SocketAddr>) -> Self {
        Self::new([Scheduler::new(model, endpoints).line("engineType: none")])
    }

    /// Replaces `bbr`.
    #[must_use]
    pub fn bbr(mut self, bbr: &str) -> Self {
        self.spec = self
            .spec
            .lines()
            .filter(|line| !line.starts_with("  bbr:"))
            .fold(String::new(), |all, line| all + line + "\n");
        self.line(&format!("bbr: {bbr}"))
    }

    /// Adds a line below `spec:`.
    #[must_use]
    pub fn line(mut self, line: &str) -> Self {
        writeln!(self.spec, "  {line}").expect("a string takes it");
        self
    }

    /// Adds a document.
    #[must_use]
    pub fn document(mut self, yaml: &str) -> Self {
        write!(self.documents, "---\n{yaml}\n").expect("a string takes it");
        self
    }

    /// The text.
    pub fn yaml(&self) -> String {
        let mut yaml = format!(
            "apiVersion: inference.sagemaker.aws.amazon.com/v1alpha1\nkind: InferenceGatewayConfig\n\
             metadata: {{name: test}}\nspec:\n{}  schedulers:\n",
            self.spec
        );
        for Scheduler { model, lines, .. } in &self.schedulers {
            let name = name(model);
            write!(
                yaml,
                "  - name: {name}\n    modelName: {model:?}\n    modelSelector: {{matchLabels: {{app: {name}}}}}\n{lines}"
            )
            .expect("a string takes it");
        }
        for Scheduler { model, endpoints, endpoint_lines, .. } in &self.schedulers {
            let name = name(model);
            for (index, at) in endpoints.iter().enumerate() {
                write!(
                    yaml,
                    "---\napiVersion: inference-gateway/v1alpha1\nkind: Endpoint\n\
                     metadata: {{name: {name}-{index}, labels: {{app: {name}}}}}\n\
                     spec:\n  address: \"{}\"\n  port: {}\n{endpoint_lines}",
                    at.ip(),
                    at.port()
                )
                .expect("a string takes it");
            }
        }
        yaml + &self.documents
    }
}

/// A Kubernetes name for a model: its letters and digits.
fn name(model: &str) -> String {
    let plain = model.to_ascii_lowercase().replace(|c: char| !c.is_ascii_alphanumeric(), "-");
    plain.trim_matches('-').to_owned()
}
