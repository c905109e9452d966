//! The runs that are known: which model on which GPU they are of, and the flags their servers were started with.
//!
//! All are runs of vLLM 0.19 with 300 ShareGPT conversations, published with LLMServingSim 2; the flags are those that its
//! files of each run tell.

use engine::{ApiOverhead, Policy, Profile, Scheduling};

use super::hardware::{Costs, Gpu, LLAMA_8B, Model, QWEN_30B_A3B_DP2, QWEN_32B_TP2, RTX_4090, RTX_PRO_6000, Scale};

/// One run that may lie in the folder.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// Its files are `measured_<stem>_requests.jsonl` and `measured_<stem>_timeseries.csv`.
    pub stem: &'static str,
    /// Its plan is `<lengths>.csv`.
    pub lengths: &'static str,
    pub gpu: &'static Gpu,
    pub model: &'static Model,
    /// Data-parallel ranks.
    pub ranks: usize,
    /// KV blocks of each rank.
    pub kv_blocks: u32,
    pub max_seqs: u32,
    pub max_model_tokens: u32,
}

const LLAMA_LENGTHS: &str = "sharegpt_300_llama_31_8b_lengths";
const QWEN_LENGTHS: &str = "sharegpt_300_qwen3_32b_lengths";

/// All of them.
pub const SETUPS: &[Setup] = &[
    Setup {
        stem: "vllm019_rtx4090_llama_31_8b",
        lengths: LLAMA_LENGTHS,
        gpu: &RTX_4090,
        model: &LLAMA_8B,
        ranks: 1,
        kv_blocks: 2_588,
        max_seqs: 256,
        max_model_tokens: 32_768,
    },
    Setup {
        stem: "vllm019_rtxpro6000_llama_31_8b",
        lengths: LLAMA_LENGTHS,
        gpu: &RTX_PRO_6000,
        model: &LLAMA_8B,
        ranks: 1,
        kv_blocks: 35_913,
        max_seqs: 128,
        max_model_tokens: 131_072,
    },
    Setup {
        stem: "vllm019_rtxpro6000_qwen3_32b",
        lengths: QWEN_LENGTHS,
        gpu: &RTX_PRO_6000,
        model: &QWEN_32B_TP2,
        ranks: 1,
        kv_blocks: 28_884,
        max_seqs: 128,
        max_model_tokens: 40_960,
    },
    Setup {
        stem: "vllm019_rtxpro6000_qwen3_30b_a3b_instruct_2507",
        lengths: QWEN_LENGTHS,
        gpu: &RTX_PRO_6000,
        model: &QWEN_30B_A3B_DP2,
        ranks: 2,
        kv_blocks: 37_819,
        max_seqs: 128,
        max_model_tokens: 262_144,
    },
];

impl Setup {
    /// `RTX 4090, Llama-3.1-8B`.
    pub fn title(&self) -> String {
        format!("{}, {}", self.gpu.name, self.model.name)
    }

    /// The engine of one rank. Arrivals are those at the engine, so the API server takes no time.
    pub fn profile(&self, scale: &Scale) -> Profile {
        Profile {
            name: self.stem,
            step: Costs::derived(self.gpu, self.model).scaled(scale),
            kv_blocks: self.kv_blocks,
            block_tokens: 16,
            max_batched_tokens: 2_048,
            max_seqs: self.max_seqs,
            max_loras: 1,
            max_model_tokens: self.max_model_tokens,
            api: ApiOverhead { base_us: 0.0, per_token_us: 0.0, spread: 0.0 },
            policy: Policy::Fcfs,
            // What the release does unless told otherwise.
            scheduling: Scheduling::Ahead,
        }
    }
}
