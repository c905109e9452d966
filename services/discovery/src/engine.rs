//! Which model server an endpoint runs, as far as that decides where its metrics page is and by which names it is read.

/// The operator's `engineType`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Engine {
    /// vLLM 0.8 and later.
    Vllm,
    /// SGLang with `--enable-metrics`.
    Sglang,
    /// Hugging Face text-generation-inference.
    Tgi,
    /// NVIDIA `trtllm-serve`.
    Trtllm,
    /// NVIDIA Triton, with or without its TensorRT-LLM backend.
    Triton,
    /// llama.cpp's server with `--metrics`.
    Llamacpp,
    /// Whichever of the above the page turns out to be from.
    Auto,
    /// No metrics page: the endpoint is health-checked instead.
    None,
}

/// The path on which most engines publish.
pub const USUAL_METRICS_PATH: &str = "/metrics";

/// The path on which `trtllm-serve` publishes; its `/metrics` is a list of iterations in JSON.
pub const TRTLLM_METRICS_PATH: &str = "/prometheus/metrics";

/// Triton's default `--metrics-port`; it never publishes on its serving port.
pub const TRITON_METRICS_PORT: u16 = 8002;

impl Engine {
    /// Where the page is when the operator does not say.
    pub const fn metrics_path(self) -> &'static str {
        match self {
            Self::Trtllm => TRTLLM_METRICS_PATH,
            Self::Vllm | Self::Sglang | Self::Tgi | Self::Triton | Self::Llamacpp | Self::Auto | Self::None => {
                USUAL_METRICS_PATH
            }
        }
    }

    /// The port of the page when the operator does not say; `None` = the serving port.
    pub const fn metrics_port(self) -> Option<u16> {
        match self {
            Self::Triton => Some(TRITON_METRICS_PORT),
            Self::Vllm | Self::Sglang | Self::Tgi | Self::Trtllm | Self::Llamacpp | Self::Auto | Self::None => None,
        }
    }
}
