//! From data sheets to step times: what one step must cost on a GPU that nobody has measured for us.
//!
//! Reading weights and KV takes their bytes over the memory's bandwidth, computing prefill takes its operations over the
//! tensor cores' speed, each times a share that real kernels reach; what tensor parallelism sends between GPUs is added
//! to every token. Nothing here has seen a run that it is compared with.

use engine::{DecodeTime, StepTime};

/// One GPU, from its data sheet.
#[derive(Clone, Copy, Debug)]
pub struct Gpu {
    pub name: &'static str,
    /// Memory bandwidth, GB/s.
    pub memory_gb_s: f64,
    /// Dense BF16 with FP32 accumulation, TFLOPS.
    pub tensor_tflops: f64,
    /// What a collective of two reaches between two of them, GB/s; unused by one alone.
    pub link_gb_s: f64,
}

/// 1,008 GB/s, 165.2 TFLOPS (Ada architecture white paper); PCIe 4.
pub const RTX_4090: Gpu = Gpu { name: "RTX 4090", memory_gb_s: 1_008.0, tensor_tflops: 165.2, link_gb_s: 3.7 };
/// 1,792 GB/s, 503.8 TFLOPS (RTX PRO Blackwell data sheet: 4,030 FP4 sparse is eight times that); PCIe 5. The link is
/// twice the 3.7 GB/s that AIConfigurator's times for four L40S over PCIe 4 come to.
pub const RTX_PRO_6000: Gpu = Gpu { name: "RTX PRO 6000", memory_gb_s: 1_792.0, tensor_tflops: 503.8, link_gb_s: 7.4 };

/// One model on some number of GPUs: what each of them reads, computes and sends.
#[derive(Clone, Copy, Debug)]
pub struct Model {
    pub name: &'static str,
    /// Parameters that each token is multiplied with, per GPU.
    pub active_params: f64,
    /// Parameters that every step reads, per GPU.
    pub read_params: f64,
    /// Parameters of all experts on one GPU, of which a step reads those that its tokens are sent to.
    pub expert_params: f64,
    /// Share of the experts that one token is sent to.
    pub expert_share: f64,
    /// Query heads × head size × layers, per GPU.
    pub attention_width: f64,
    /// KV of one token, bytes, per GPU.
    pub kv_token_bytes: f64,
    /// What a token makes each GPU send, bytes.
    pub sent_token_bytes: f64,
    /// Collectives in one step.
    pub collectives: f64,
}

/// Llama-3.1-8B: 32 layers, 32 query heads and 8 KV heads of 128, 6.98e9 parameters in the layers, 0.53e9 in the head.
pub const LLAMA_8B: Model = Model {
    name: "Llama-3.1-8B",
    active_params: 6.98e9,
    read_params: 7.5e9,
    expert_params: 0.0,
    expert_share: 0.0,
    attention_width: 4_096.0 * 32.0,
    kv_token_bytes: 131_072.0,
    sent_token_bytes: 0.0,
    collectives: 0.0,
};
/// Qwen3-32B on two GPUs: 64 layers, hidden 5,120, 64 query heads and 8 KV heads of 128, 31.2e9 parameters in the layers,
/// 0.78e9 in the head. Two all-reduces in each layer, of 2 (n−1)/n of what they add up.
pub const QWEN_32B_TP2: Model = Model {
    name: "Qwen3-32B, TP 2",
    active_params: 31.2e9 / 2.0,
    read_params: 32.0e9 / 2.0,
    expert_params: 0.0,
    expert_share: 0.0,
    attention_width: 8_192.0 * 64.0 / 2.0,
    kv_token_bytes: 262_144.0 / 2.0,
    sent_token_bytes: 5_120.0 * 2.0 * 64.0 * 2.0,
    collectives: 128.0,
};
/// Qwen3-30B-A3B on two GPUs as two data-parallel ranks that share the experts: 48 layers, hidden 2,048, 32 query heads
/// and 4 KV heads of 128, 128 experts of 4.72e6 of which 8 are active; attention 0.91e9, head 0.31e9. Each layer gathers
/// the other rank's tokens and sends their results back.
pub const QWEN_30B_A3B_DP2: Model = Model {
    name: "Qwen3-30B-A3B, DP 2 + EP",
    active_params: 0.91e9 + 8.0 * 4.72e6 * 48.0,
    read_params: 0.91e9 + 0.31e9,
    expert_params: 128.0 * 4.72e6 * 48.0 / 2.0,
    expert_share: 8.0 / 128.0,
    attention_width: 4_096.0 * 48.0,
    kv_token_bytes: 98_304.0,
    sent_token_bytes: 2_048.0 * 2.0 * 48.0 * 2.0,
    collectives: 96.0,
};

/// Share of its bandwidth that reading weights and KV reaches, and of its tensor speed that a long prefill does.
const BANDWIDTH_SHARE: f64 = 0.85;
const TENSOR_SHARE: f64 = 0.8;
/// Of the same for attention: what the step table's A10G row comes to.
const ATTENTION_SHARE: f64 = 0.4;
/// a of the step table's rows for one GPU, ms.
const PREFILL_BASE_MS: f64 = 4.0;
/// cd, µs: between the step table's rows for one H100 and one A10G, by their cp.
const SEQUENCE_BASE_US: f64 = 8.6;
const SEQUENCE_PER_PREFILL_TOKEN: f64 = 0.128;
/// What starting one collective over PCIe takes, µs.
const COLLECTIVE_US: f64 = 30.0;

/// The costs of a step, part by part, so that each can be scaled.
#[derive(Clone, Debug, PartialEq)]
pub struct Costs {
    /// Reading the weights, ms, by sequences in the batch: one row when their number does not matter.
    weights_ms: Vec<(u32, f64)>,
    prefill_base_ms: f64,
    prefill_token_us: f64,
    attention_mpair_ms: f64,
    sequence_us: f64,
    kv_ktoken_us: f64,
}

/// How much of each cost there really is.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Scale {
    pub weights: f64,
    /// Of the fixed part of a step that computes prefill.
    pub base: f64,
    pub prefill: f64,
    pub sequence: f64,
    pub kv: f64,
}

impl Scale {
    /// As the data sheets say.
    pub const ONE: Self = Self { weights: 1.0, base: 1.0, prefill: 1.0, sequence: 1.0, kv: 1.0 };

    /// The five factors, to be gone through.
    pub fn each(&mut self) -> [&mut f64; 5] {
        [&mut self.weights, &mut self.base, &mut self.prefill, &mut self.sequence, &mut self.kv]
    }
}

impl Costs {
    /// From the data sheets.
    pub fn derived(gpu: &Gpu, model: &Model) -> Self {
        let read_ms = |bytes: f64| bytes / (gpu.memory_gb_s * 1e9 * BANDWIDTH_SHARE) * 1e3;
        let compute_us = |operations: f64, share: f64| operations / (gpu.tensor_tflops * 1e12 * share) * 1e6;
        let send_us = model.sent_token_bytes / (gpu.link_gb_s * 1e9) * 1e6;
        let start_ms = model.collectives * COLLECTIVE_US / 1e3;
        let weights = |sequences: u32| {
            // Both ranks' tokens meet the experts of each GPU.
            let touched = 1.0 - (1.0 - model.expert_share).powi(2 * sequences as i32);
            (sequences, read_ms(2.0 * (model.read_params + model.expert_params * touched)) + start_ms)
        };
        let batches: &[u32] = if model.expert_params > 0.0 { &[1, 2, 4, 8, 16, 32, 64, 128, 256] } else { &[1] };
        let prefill_us = compute_us(2.0 * model.active_params, TENSOR_SHARE);
        Self {
            weights_ms: batches.iter().map(|sequences| weights(*sequences)).collect(),
            prefill_base_ms: PREFILL_BASE_MS + start_ms,
            prefill_token_us: prefill_us + send_us,
            attention_mpair_ms: compute_us(4.0 * model.attention_width * 1e6, ATTENTION_SHARE) / 1e3,
            sequence_us: SEQUENCE_BASE_US + SEQUENCE_PER_PREFILL_TOKEN * prefill_us + send_us,
            kv_ktoken_us: read_ms(model.kv_token_bytes * 1e3) * 1e3,
        }
    }

    /// As the engine takes them.
    pub fn scaled(&self, scale: &Scale) -> StepTime {
        let sequence_us = self.sequence_us * scale.sequence;
        let row =
            |&(sequences, ms): &(u32, f64)| (sequences, ms * scale.weights + sequence_us * f64::from(sequences) / 1e3);
        let decode = match self.weights_ms.as_slice() {
            [(_, floor)] => DecodeTime::Line { floor_ms: floor * scale.weights, sequence_us },
            // The engine's tables are constants of programs that run for long; this one ends soon.
            rows => DecodeTime::Table(Box::leak(rows.iter().map(row).collect())),
        };
        StepTime {
            decode,
            ..StepTime::new(
                0.0,
                self.prefill_base_ms * scale.base,
                self.prefill_token_us * scale.prefill,
                self.attention_mpair_ms * scale.prefill,
                0.0,
                self.kv_ktoken_us * scale.kv,
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::Batch;

    #[test]
    fn data_sheets_give_the_times_that_a_pencil_gives() {
        let step = Costs::derived(&RTX_4090, &LLAMA_8B).scaled(&Scale::ONE);
        // 15 GB over 857 GB/s, and 2 × 6.98e9 × 2,048 operations over 132 TFLOPS.
        let decode = step.mean_ms(&Batch { decodes: 1, ..Batch::default() });
        assert!((decode - 17.5).abs() < 0.1, "{decode}");
        let prefill = step.mean_ms(&Batch { prefill_tokens: 2_048, ..Batch::default() });
        assert!((prefill - 220.3).abs() < 0.5, "{prefill}");
        // 131 MB over 857 GB/s.
        assert!((step.kv_ktoken_us - 153.0).abs() < 0.2, "{}", step.kv_ktoken_us);
    }

    #[test]
    fn a_small_batch_reads_few_experts_and_a_large_one_all() {
        let step = Costs::derived(&RTX_PRO_6000, &QWEN_30B_A3B_DP2).scaled(&Scale::ONE);
        let [one, sixteen, many] = [1, 16, 256].map(|decodes| step.mean_ms(&Batch { decodes, ..Batch::default() }));
        assert!(one < sixteen && sixteen < many, "{one} {sixteen} {many}");
        assert!(one < 8.5 && many > 24.0, "{one} {many}");
    }

    #[test]
    fn scaling_a_part_scales_that_part_alone() {
        let costs = Costs::derived(&RTX_4090, &LLAMA_8B);
        let twice = costs.scaled(&Scale { kv: 2.0, ..Scale::ONE });
        let once = costs.scaled(&Scale::ONE);
        assert!((twice.kv_ktoken_us / once.kv_ktoken_us - 2.0).abs() < 1e-9);
        assert_eq!(StepTime { kv_ktoken_us: once.kv_ktoken_us, ..twice }, once);
    }
}
