//! By which names each engine says what we want to know. A new engine, or a renamed family, is a row here.

use crate::Engine;

/// The engine whose names are on a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Dialect {
    /// `vllm:…`
    Vllm,
    /// `sglang:…`
    Sglang,
    /// `tgi_…`
    Tgi,
    /// `trtllm_…`
    Trtllm,
    /// `nv_trt_llm_…`, `nv_inference_…`
    Triton,
    /// `llamacpp:…`
    Llamacpp,
}

/// What a family tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tells {
    /// Requests queued.
    Waiting,
    /// Requests in the batch.
    Running,
    /// Share of the KV cache in use, 0–1.
    KvCache,
    /// Tokens held in the KV cache, of those that [`Tells::Tokens`] says.
    KvTokens,
    /// Tokens in one KV block.
    BlockTokens,
    /// KV blocks.
    Blocks,
    /// Tokens that the KV cache holds.
    Tokens,
    /// Both of the cache's dimensions, in labels.
    CacheInfo {
        /// Label with the tokens in one block.
        block_tokens: &'static [u8],
        /// Label with the number of blocks.
        blocks: &'static [u8],
    },
    /// LoRA adapters with work, in labels; the value is the Unix time at which that was so.
    Adapters,
}

/// What an operator hears about a page: which of these it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Topic {
    Waiting,
    Running,
    KvCache,
    CacheShape,
    Adapters,
}

/// One family, or one label's worth of it.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) name: &'static str,
    pub(super) tells: Tells,
    /// Only series with this label value.
    pub(super) only: Option<(&'static [u8], &'static [u8])>,
}

/// No dialect has more rows.
pub(super) const ROWS_MAX: usize = 8;

impl Dialect {
    /// In this order a page with the names of several is taken for the first.
    pub const ALL: [Self; 6] = [Self::Vllm, Self::Sglang, Self::Tgi, Self::Trtllm, Self::Triton, Self::Llamacpp];

    /// What every name of the dialect begins with.
    pub(super) const fn prefix(self) -> &'static [u8] {
        match self {
            Self::Vllm => b"vllm:",
            Self::Sglang => b"sglang:",
            Self::Tgi => b"tgi_",
            Self::Trtllm => b"trtllm_",
            Self::Triton => b"nv_",
            Self::Llamacpp => b"llamacpp:",
        }
    }

    /// Its families. Where several tell the same, the first that has a usable value wins: newest names first.
    pub(super) const fn rows(self) -> &'static [Row] {
        match self {
            Self::Vllm => VLLM,
            Self::Sglang => SGLANG,
            Self::Tgi => TGI,
            Self::Trtllm => TRTLLM,
            Self::Triton => TRITON,
            Self::Llamacpp => LLAMACPP,
        }
    }
}

impl Engine {
    /// The dialects that a page of this engine may be in.
    pub(super) const fn dialects(self) -> &'static [Dialect] {
        match self {
            Self::Vllm => &[Dialect::Vllm],
            Self::Sglang => &[Dialect::Sglang],
            Self::Tgi => &[Dialect::Tgi],
            Self::Trtllm => &[Dialect::Trtllm],
            Self::Triton => &[Dialect::Triton],
            Self::Llamacpp => &[Dialect::Llamacpp],
            Self::Auto => &Dialect::ALL,
            Self::None => &[],
        }
    }
}

impl Tells {
    pub(super) const fn topic(self) -> Topic {
        match self {
            Self::Waiting => Topic::Waiting,
            Self::Running => Topic::Running,
            Self::KvCache | Self::KvTokens => Topic::KvCache,
            Self::BlockTokens | Self::Blocks | Self::Tokens | Self::CacheInfo { .. } => Topic::CacheShape,
            Self::Adapters => Topic::Adapters,
        }
    }
}

impl Topic {
    pub(super) const ALL: [Self; 5] = [Self::Waiting, Self::Running, Self::KvCache, Self::CacheShape, Self::Adapters];
}

const fn row(name: &'static str, tells: Tells) -> Row {
    Row { name, tells, only: None }
}

const fn series(name: &'static str, label: &'static [u8], value: &'static [u8], tells: Tells) -> Row {
    Row { name, tells, only: Some((label, value)) }
}

const VLLM: &[Row] = &[
    row("vllm:num_requests_waiting", Tells::Waiting),
    row("vllm:num_requests_running", Tells::Running),
    // Since 0.9.2; the other until 0.11 (both are there in between).
    row("vllm:kv_cache_usage_perc", Tells::KvCache),
    row("vllm:gpu_cache_usage_perc", Tells::KvCache),
    row("vllm:cache_config_info", Tells::CacheInfo { block_tokens: b"block_size", blocks: b"num_gpu_blocks" }),
    row("vllm:lora_requests_info", Tells::Adapters),
];

const SGLANG: &[Row] = &[
    row("sglang:num_queue_reqs", Tells::Waiting),
    row("sglang:num_running_reqs", Tells::Running),
    row("sglang:token_usage", Tells::KvCache),
    row("sglang:page_size", Tells::BlockTokens),
    row("sglang:num_pages", Tells::Blocks),
    // Only around 0.5.9.
    row("sglang:cache_config_info", Tells::CacheInfo { block_tokens: b"page_size", blocks: b"num_pages" }),
    row("sglang:max_total_num_tokens", Tells::Tokens),
];

const TGI: &[Row] = &[
    row("tgi_queue_size", Tells::Waiting),
    row("tgi_batch_current_size", Tells::Running),
    row("tgi_batch_current_max_tokens", Tells::KvTokens),
    row("tgi_batch_max_total_tokens", Tells::Tokens),
];

const TRTLLM: &[Row] = &[
    row("trtllm_num_requests_waiting", Tells::Waiting),
    row("trtllm_num_requests_running", Tells::Running),
    row("trtllm_kv_cache_utilization", Tells::KvCache),
    row("trtllm_kv_cache_tokens_per_block", Tells::BlockTokens),
    row("trtllm_kv_cache_max_blocks", Tells::Blocks),
];

const TRITON_REQUESTS: &str = "nv_trt_llm_request_metrics";
const TRITON_BLOCKS: &str = "nv_trt_llm_kv_cache_block_metrics";
const TRITON_BLOCK_LABEL: &[u8] = b"kv_cache_block_type";

const TRITON: &[Row] = &[
    series(TRITON_REQUESTS, b"request_type", b"waiting", Tells::Waiting),
    series(TRITON_REQUESTS, b"request_type", b"scheduled", Tells::Running),
    // Backends other than TensorRT-LLM have this one alone. `nv_inference_exec_count` counts up and is no running batch.
    row("nv_inference_pending_request_count", Tells::Waiting),
    series(TRITON_BLOCKS, TRITON_BLOCK_LABEL, b"fraction", Tells::KvCache),
    series(TRITON_BLOCKS, TRITON_BLOCK_LABEL, b"tokens_per", Tells::BlockTokens),
    series(TRITON_BLOCKS, TRITON_BLOCK_LABEL, b"max", Tells::Blocks),
];

const LLAMACPP: &[Row] = &[
    row("llamacpp:requests_deferred", Tells::Waiting),
    row("llamacpp:requests_processing", Tells::Running),
    // Gone from current builds.
    row("llamacpp:kv_cache_usage_ratio", Tells::KvCache),
];
