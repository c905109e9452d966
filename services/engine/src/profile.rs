//! Which model on which GPUs: the numbers an engine runs on.
//!
//! Step parameters are fits to AIConfigurator 0.12 (H100, vLLM 0.24 kernels) lowered to measured single-stream
//! decode times where those exist, or derived from data sheets (A10G). KV sizes are measured where the comment says
//! so, else computed from memory, weights and head sizes. Good for ranking routing policies, within 5–10 % on
//! throughput; not for quoting absolute numbers.

use crate::step_time::{DecodeTime, StepTime};

/// Everything that makes one engine differ from another.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// Model, precision and GPUs, as a name for the command line.
    pub name: &'static str,
    /// How long a step takes.
    pub step: StepTime,
    /// KV blocks in GPU memory, one of them the reserved null block.
    pub kv_blocks: u32,
    /// Tokens per KV block.
    pub block_tokens: u32,
    /// Token budget of one step (`--max-num-batched-tokens`).
    pub max_batched_tokens: u32,
    /// Requests in one batch (`--max-num-seqs`).
    pub max_seqs: u32,
    /// Different adapters in one batch (`--max-loras`).
    pub max_loras: u32,
    /// Longest prompt plus output, in tokens (`--max-model-len`).
    pub max_model_tokens: u32,
    /// What a request costs before the scheduler sees it.
    pub api: ApiOverhead,
    /// Order of the queue.
    pub policy: Policy,
    /// When the batch of a step is formed.
    pub scheduling: Scheduling,
}

/// HTTP, tokenising and hand-over, before a request reaches the scheduler: `base + per_token × prompt`, spread evenly.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ApiOverhead {
    /// Per request, µs.
    pub base_us: f64,
    /// Per prompt token, µs.
    pub per_token_us: f64,
    /// Largest relative deviation to either side.
    pub spread: f64,
}

/// Order in which waiting requests are taken, and whom preemption hits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// By arrival; the last one running is preempted.
    Fcfs,
    /// By priority, then arrival; the worst and latest one running is preempted.
    Priority,
}

/// When the batch of a step is formed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheduling {
    /// When the step before it has ended (`--no-async-scheduling`).
    InTurn,
    /// While the step before it runs, so that the GPU never waits for the scheduler: the default since vLLM 0.14. A
    /// request that arrives during a step meets a next batch already formed and joins the one after; blocks and places
    /// of a request that ends are free one step later.
    Ahead,
}

/// No profile has this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no engine profile is called `{0}`; there are: {known}", known = Profile::names().join(", "))]
pub struct UnknownProfile(String);

impl Profile {
    /// The profile called `name`.
    pub fn named(name: &str) -> Result<Self, UnknownProfile> {
        Self::ALL.iter().find(|p| p.name == name).cloned().ok_or_else(|| UnknownProfile(name.to_owned()))
    }

    /// All names, in table order.
    pub fn names() -> Vec<&'static str> {
        Self::ALL.iter().map(|p| p.name).collect()
    }

    /// Blocks that requests can hold: all but the null block.
    pub fn usable_blocks(&self) -> u32 {
        self.kv_blocks.saturating_sub(1)
    }

    /// Longest prompt plus output that can run to its end, in tokens.
    pub fn context_tokens_max(&self) -> u32 {
        self.max_model_tokens.min(self.usable_blocks().saturating_mul(self.block_tokens))
    }

    /// Every profile.
    pub const ALL: &'static [Self] = &[
        // d0 agrees with a measured 29 tokens/s single stream on a g5.4xlarge.
        Self {
            step: StepTime::new(33.0, 4.0, 322.0, 18.7, 50.0, 257.0),
            kv_blocks: 1_750,
            max_model_tokens: 16_384,
            ..Self::base("llama-3.1-8b-a10g", Gpu::Small)
        },
        Self {
            step: StepTime::new(6.2, 4.5, 18.5, 1.05, 11.0, 41.0),
            kv_blocks: 28_100,
            max_model_tokens: 131_072,
            ..Self::base("llama-3.1-8b-h100", Gpu::Large)
        },
        // KV measured: 307,328 tokens.
        Self {
            step: StepTime::new(10.6, 11.0, 43.8, 2.19, 20.0, 42.0),
            kv_blocks: 19_208,
            max_model_tokens: 40_960,
            ..Self::base("qwen3-32b-2xh100", Gpu::Large)
        },
        Self {
            step: StepTime::new(7.0, 8.8, 27.5, 1.03, 19.0, 22.0),
            kv_blocks: 55_600,
            max_model_tokens: 40_960,
            ..Self::base("qwen3-32b-4xh100", Gpu::Large)
        },
        // All-reduce over PCIe dominates: cp lies between 650 and 1,100.
        Self {
            step: StepTime::new(40.0, 8.0, 850.0, 18.7, 530.0, 129.0),
            kv_blocks: 3_125,
            max_model_tokens: 32_768,
            ..Self::base("qwen3-32b-4xa10g", Gpu::Small)
        },
        // Low confidence: cp lies between 600 and 1,300.
        Self {
            step: StepTime::new(24.0, 8.0, 1000.0, 9.4, 800.0, 64.0),
            kv_blocks: 21_900,
            max_model_tokens: 40_960,
            ..Self::base("qwen3-32b-8xa10g", Gpu::Small)
        },
        // KV measured: 461,376 tokens.
        Self {
            step: StepTime::new(11.8, 11.0, 56.5, 1.39, 20.0, 26.5),
            kv_blocks: 28_836,
            max_model_tokens: 131_072,
            ..Self::base("llama-3.1-70b-4xh100", Gpu::Large)
        },
        Self {
            step: StepTime::new(8.2, 8.7, 38.0, 0.60, 20.0, 13.6),
            kv_blocks: 87_000,
            max_model_tokens: 131_072,
            ..Self::base("llama-3.1-70b-8xh100", Gpu::Large)
        },
        // Low confidence: expert routing makes small batches 10–25 % faster than this on real engines.
        Self {
            step: StepTime {
                decode: DecodeTime::Table(QWEN3_235B_DECODE_MS),
                ..StepTime::new(18.0, 37.0, 25.0, 0.9, 0.0, 14.0)
            },
            kv_blocks: 58_000,
            max_model_tokens: 40_960,
            ..Self::base("qwen3-235b-a22b-fp8-8xh100", Gpu::Large)
        },
    ];

    const fn base(name: &'static str, gpu: Gpu) -> Self {
        // vLLM's defaults for its API server by GPU memory, and its default block size on CUDA.
        let (max_batched_tokens, max_seqs) = match gpu {
            Gpu::Small => (2_048, 256),
            Gpu::Large => (8_192, 1_024),
        };
        Self {
            name,
            step: StepTime::new(1.0, 0.0, 0.0, 0.0, 0.0, 0.0),
            kv_blocks: 2,
            block_tokens: 16,
            max_batched_tokens,
            max_seqs,
            max_loras: 4,
            max_model_tokens: 1,
            api: ApiOverhead { base_us: 10_000.0, per_token_us: 1.2, spread: 0.2 },
            policy: Policy::Fcfs,
            scheduling: Scheduling::Ahead,
        }
    }
}

/// Decode time of a step by batch size, ms (AIConfigurator, 256-token contexts).
const QWEN3_235B_DECODE_MS: &[(u32, f64)] =
    &[(1, 18.0), (2, 19.3), (4, 22.4), (8, 22.6), (16, 24.4), (32, 33.4), (64, 33.7), (128, 37.4), (256, 40.4)];

#[derive(Clone, Copy)]
enum Gpu {
    /// Below 70 GiB.
    Small,
    /// H100 class.
    Large,
}
