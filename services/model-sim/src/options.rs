//! What a simulated server is: which engine's face it wears, which model on which GPUs it claims to be.

use std::{net::SocketAddr, str::FromStr, time::Duration};

use engine::Profile;

/// Everything that can be chosen at start. Build it with [`Options::new`] and change fields.
#[derive(Clone, Debug)]
pub struct Options {
    /// Whose endpoints, metrics page and error bodies it shows.
    pub face: Face,
    /// Release whose details are shown; decides metric names, error shapes and chunk fields of vLLM.
    pub version: Version,
    /// Model and GPUs: step times and cache size.
    pub profile: Profile,
    /// Path of the model (`--model`), shown as `root`.
    pub model: String,
    /// Names it is served under; the first is shown in metrics. Never empty.
    pub served_names: Vec<String>,
    /// Adapters that are there from the start.
    pub adapters: Vec<Adapter>,
    /// Whether adapters can be used at all; implied by `adapters`.
    pub lora: bool,
    /// Where it listens; port 0 takes a free one.
    pub listen: SocketAddr,
    /// A second address, for `/sim/…`, which stays reachable while the first refuses connections.
    pub admin: Option<SocketAddr>,
    /// Seconds of real time per second of the engine: 0.1 runs ten times faster.
    pub time_scale: f64,
    /// Seed of jitter and texts.
    pub seed: u64,
    /// Key that paths under `/v1` and the like ask for.
    pub api_key: Option<String>,
    /// Data-parallel ranks behind the one port.
    pub ranks: usize,
    /// Whether answers carry `x-request-id` (`--enable-request-id-headers`).
    pub request_id_headers: bool,
    /// vLLM refuses with 503 beyond so many queued requests (`--max-num-queued-reqs`).
    pub queued_requests_max: Option<usize>,
    /// TGI refuses with 429 beyond so many requests in flight (`--max-concurrent-requests`).
    pub concurrent_requests_max: usize,
    /// Idle connections are closed after this, in real time, as uvicorn does.
    pub keep_alive: Duration,
    /// How long SIGTERM lets requests in flight go on, in real time; zero drops them.
    pub shutdown_timeout: Duration,
    /// KV-cache events over ZMQ (`--kv-events-config`); vLLM only.
    pub kv_events: Option<KvEvents>,
}

/// How KV-cache events are published: the fields and defaults of vLLM's configuration.
#[derive(Clone, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(default)]
pub struct KvEvents {
    /// Without it nothing is published.
    pub enable_kv_cache_events: bool,
    /// `zmq`, `null` or unset, which means zmq.
    pub publisher: Option<String>,
    /// Bound to if its host is a wildcard or its port 0, else connected to. Rank r takes the r-th port after it.
    pub endpoint: String,
    /// Where missed batches can be asked for.
    pub replay_endpoint: Option<String>,
    /// Batches kept for that.
    pub buffer_steps: usize,
    /// Batches a subscriber may lag behind; here the socket's own bound, which is vLLM's default.
    pub hwm: usize,
    /// Batches that may wait to be sent.
    pub max_queue_size: usize,
    /// First frame of each message.
    pub topic: String,
}

impl Default for KvEvents {
    fn default() -> Self {
        Self {
            enable_kv_cache_events: false,
            publisher: None,
            endpoint: "tcp://*:5557".to_owned(),
            replay_endpoint: None,
            buffer_steps: 10_000,
            hwm: 100_000,
            max_queue_size: 100_000,
            topic: String::new(),
        }
    }
}

impl KvEvents {
    /// Whether it publishes at all.
    pub fn publishes(&self) -> bool {
        self.enable_kv_cache_events && self.publisher.as_deref().is_none_or(|publisher| publisher == "zmq")
    }
}

/// Which model server's outside is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Face {
    /// vLLM's OpenAI-compatible server.
    Vllm,
    /// SGLang.
    Sglang,
    /// Hugging Face text-generation-inference.
    Tgi,
}

/// A LoRA adapter on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Adapter {
    /// The model name it is asked for by.
    pub name: String,
    /// Where its weights would be.
    pub path: String,
}

/// A release number, compared field by field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(pub u32, pub u32, pub u32);

/// Why a word on the command line was not understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidOption {
    /// No such engine.
    #[error("`{0}` is none of vllm, sglang, tgi")]
    Face(String),
    /// Not a release number.
    #[error("`{0}` is no version such as 0.33 or 0.10.2")]
    Version(String),
    /// Not `NAME` or `NAME=PATH`.
    #[error("`{0}` names no adapter: write NAME or NAME=PATH")]
    Adapter(String),
}

/// uvicorn's default (`VLLM_HTTP_TIMEOUT_KEEP_ALIVE`).
const KEEP_ALIVE: Duration = Duration::from_secs(5);
/// TGI's default.
const CONCURRENT_REQUESTS_MAX: usize = 128;

impl Options {
    /// A server for `model` as `face` would be started with defaults, on a free port of the loopback address.
    pub fn new(face: Face, profile: Profile, model: &str) -> Self {
        Self {
            face,
            version: face.newest(),
            profile,
            model: model.to_owned(),
            served_names: vec![model.to_owned()],
            adapters: Vec::new(),
            lora: false,
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            admin: None,
            time_scale: 1.0,
            seed: 0,
            api_key: None,
            ranks: 1,
            request_id_headers: false,
            queued_requests_max: None,
            concurrent_requests_max: CONCURRENT_REQUESTS_MAX,
            keep_alive: KEEP_ALIVE,
            shutdown_timeout: Duration::ZERO,
            kv_events: None,
        }
    }

    /// The name metrics show.
    pub fn shown_name(&self) -> &str {
        self.served_names.first().map_or(self.model.as_str(), String::as_str)
    }
}

impl Face {
    /// The newest release whose behaviour is known.
    pub fn newest(self) -> Version {
        match self {
            Self::Vllm => Version(0, 33, 0),
            Self::Sglang => Version(0, 5, 23),
            Self::Tgi => Version(3, 3, 6),
        }
    }
}

impl FromStr for Face {
    type Err = InvalidOption;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "vllm" => Ok(Self::Vllm),
            "sglang" => Ok(Self::Sglang),
            "tgi" => Ok(Self::Tgi),
            _ => Err(InvalidOption::Face(text.to_owned())),
        }
    }
}

impl FromStr for Version {
    type Err = InvalidOption;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || InvalidOption::Version(text.to_owned());
        let numbers: Result<Vec<u32>, _> = text.split('.').map(str::parse).collect();
        match numbers.map_err(|_| wrong())?.as_slice() {
            [major, minor] => Ok(Self(*major, *minor, 0)),
            [major, minor, patch] => Ok(Self(*major, *minor, *patch)),
            _ => Err(wrong()),
        }
    }
}

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}.{}", self.0, self.1, self.2)
    }
}

impl FromStr for Adapter {
    type Err = InvalidOption;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (name, path) = match text.split_once('=') {
            Some((name, path)) => (name, path.to_owned()),
            None => (text, format!("/adapters/{text}")),
        };
        if name.is_empty() || path.is_empty() {
            return Err(InvalidOption::Adapter(text.to_owned()));
        }
        Ok(Self { name: name.to_owned(), path })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_ordered_by_number() {
        let version = |text: &str| text.parse::<Version>().unwrap();
        assert!(version("0.9") < version("0.9.2") && version("0.9.2") < version("0.10"));
        assert_eq!(version("0.10.2").to_string(), "0.10.2");
        for bad in ["", "1", "0.x", "0.1.2.3"] {
            assert!(bad.parse::<Version>().is_err(), "{bad}");
        }
    }

    #[test]
    fn adapters_have_a_name_and_a_path() {
        let adapter: Adapter = "sql=/weights/sql".parse().unwrap();
        assert_eq!((adapter.name.as_str(), adapter.path.as_str()), ("sql", "/weights/sql"));
        assert_eq!("chat".parse::<Adapter>().unwrap().path, "/adapters/chat");
        assert!("=x".parse::<Adapter>().is_err());
    }
}
