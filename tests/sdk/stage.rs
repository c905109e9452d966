//! What the clients meet: a simulated vLLM behind a gateway, with pools beside it that are full, down or strict.

use std::net::SocketAddr;

use harness::{Config, Exchange, Gateway, Next, Node, Peer, Python, Scheduler, Sim};
use serde_json::{Value, json};

/// With a slash, as most names on a hub have: it must get through `/v1/models/{id}`.
pub(crate) const MODEL: &str = "meta-llama/Llama-3.1-8B-Instruct";

/// A simulated server and a gateway in front of it.
pub(crate) struct Stage {
    pub(crate) gateway: Gateway,
    pub(crate) sims: Vec<Sim>,
    /// A server whose metrics page says that it is full; it must never be asked.
    pub(crate) full: Peer,
    /// A server that answers 503 and says that trying again is of no use.
    pub(crate) strict: Peer,
}

/// A client's language.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Client {
    OpenAiPython,
    OpenAiNode,
}

impl Client {
    /// Runs a scenario against the stage and gives what the client saw.
    pub(crate) fn run(self, scenario: &str, stage: &Stage) -> Value {
        let (url, admin) = (format!("http://{}/v1", stage.gateway.data), stage.sims[0].admin.to_string());
        let mut arguments = vec![scenario, &url, MODEL];
        if scenario == "leaving" {
            arguments.push(&admin);
        }
        match self {
            Self::OpenAiPython => Python::installed().run("openai_python.py", &arguments),
            Self::OpenAiNode => Node::installed().run("openai_node.mjs", &arguments),
        }
    }
}

impl Stage {
    /// One simulated server.
    pub(crate) fn new() -> Self {
        Self::with(1, "timeouts: {}")
    }

    /// One simulated server that a gateway gives two seconds at a time.
    pub(crate) fn impatient() -> Self {
        Self::with(1, "timeouts: {firstByte: 2s, streamIdle: 2s}")
    }

    /// So many simulated servers of one model.
    pub(crate) fn with_servers(count: usize) -> Self {
        Self::with(count, "timeouts: {}")
    }

    fn with(count: usize, timeouts: &str) -> Self {
        // In the pace of the GPUs, so that a long stream has many events also on a machine under load.
        let options = ["--time-scale", "1", "--model", "llama", "--served-model-name", MODEL, "--lora", "sql-adapter"];
        let sims: Vec<Sim> = (0..count).map(|_| Sim::start(&options)).collect();
        let (full, strict) = (Peer::start(answer_as_full), Peer::start(answer_strictly));
        let config = Config::new([
            Scheduler::new(MODEL, sims.iter().map(|sim| sim.address)).line("loraAdapters: [sql-adapter]"),
            Scheduler::new("full", [full.address]).line("flowControl: {bands: {standard: {maxWait: 0s}}}"),
            Scheduler::new("strict", [strict.address]).line("engineType: none"),
            Scheduler::new("down", [nobody()]).line("engineType: none"),
        ]);
        let config = config.bbr("{enabled: true, maxRequestBodyBytes: 200000}");
        // What is full stays so, however seldom a machine under load comes to look.
        let gateway = Gateway::start(&config.line("signals: {staleAfter: 30s}").line(timeouts));
        Self { gateway, sims, full, strict }
    }

    /// Faults of the first server, each with the text that calls for it.
    pub(crate) fn faults(&self, faults: &Value) {
        self.sims[0].faults(&json!({ "requests": faults }));
    }

    /// The log line of a request that a client told the id of.
    pub(crate) fn logged(&self, told: &Value) -> Value {
        let id = told["request_id"].as_str().unwrap_or_else(|| panic!("no request id in {told}"));
        self.gateway.request(id)
    }

    /// The sum of a metric's series with these labels; 0 without any.
    pub(crate) fn counted(&self, name: &str, labels: &[&str]) -> f64 {
        self.gateway.admin.metric(name, labels).unwrap_or(0.0)
    }
}

fn answer_as_full(exchange: &mut Exchange) -> Next {
    if exchange.request.line.starts_with("GET /metrics") {
        let gauge = |name: &str, value: u32| format!("# TYPE {name} gauge\n{name}{{model_name=\"full\"}} {value}.0\n");
        let page = gauge("vllm:num_requests_running", 256) + &gauge("vllm:num_requests_waiting", 9);
        return exchange.answer("200 OK", &[("content-type", "text/plain; version=0.0.4")], page);
    }
    exchange.answer_plainly()
}

fn answer_strictly(exchange: &mut Exchange) -> Next {
    if exchange.is_look() {
        return exchange.answer_plainly();
    }
    let headers = [("content-type", "application/json"), ("x-should-retry", "false")];
    exchange.answer("503 Service Unavailable", &headers, r#"{"error":{"message":"gone for good","code":"gone"}}"#)
}

/// An address where nobody listens.
fn nobody() -> SocketAddr {
    let peer = Peer::plain();
    peer.address
}

/// A string that a client told.
pub(crate) fn text(told: &Value) -> &str {
    told.as_str().unwrap_or_else(|| panic!("no text: {told}"))
}

/// A list that a client told.
pub(crate) fn list(told: &Value) -> &[Value] {
    told.as_array().unwrap_or_else(|| panic!("no list: {told}"))
}

/// A number that a client told.
pub(crate) fn number(told: &Value) -> f64 {
    told.as_f64().unwrap_or_else(|| panic!("no number: {told}"))
}
