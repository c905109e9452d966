//! Histograms of SGLang and TGI, whose buckets are not vLLM's: filled from the engine's events.

use engine::{EventKind, Histogram};
use pool::Moment;

use crate::options::Face;

/// What one rank observed.
#[derive(Clone, Debug)]
pub(crate) struct Latencies {
    pub(crate) time_to_first_token: Histogram,
    pub(crate) inter_token: Histogram,
    pub(crate) e2e: Histogram,
    pub(crate) queue: Histogram,
    pub(crate) inference: Histogram,
    /// Mean time per token of one request.
    pub(crate) per_token: Histogram,
    pub(crate) prompt_tokens: Histogram,
    pub(crate) generated_tokens: Histogram,
    pub(crate) tokens_max: Histogram,
}

/// One request on its way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Marks {
    arrived: Moment,
    scheduled: Moment,
    last_token: Option<Moment>,
    prompt_tokens: u32,
    tokens_max: Option<u32>,
    generated: u32,
}

const SGLANG_TTFT_S: &[f64] =
    &[0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 2.0, 4.0, 6.0, 8.0, 10.0, 20.0, 40.0, 60.0, 80.0, 100.0, 200.0, 400.0];
const SGLANG_E2E_MORE_S: &[f64] = &[600.0, 1200.0, 1800.0, 2400.0];
const SGLANG_ITL_S: &[f64] = &[
    0.002, 0.004, 0.006, 0.008, 0.01, 0.015, 0.02, 0.025, 0.03, 0.035, 0.04, 0.06, 0.08, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0,
    2.0, 4.0, 6.0, 8.0,
];

impl Latencies {
    pub(crate) fn new(face: Face, context_tokens_max: u32) -> Self {
        let e2e: Vec<f64> = SGLANG_TTFT_S.iter().chain(SGLANG_E2E_MORE_S).copied().collect();
        // TGI: 0.0001 × 1.5^k seconds, and a hundred linear steps of tokens.
        let durations: Vec<f64> = (1..=35).map(|k| 0.0001 * 1.5_f64.powi(k)).collect();
        let tokens: Vec<f64> = (1..=100).map(|k| f64::from(context_tokens_max) * f64::from(k) / 100.0).collect();
        let [ttft, itl, long] = match face {
            Face::Tgi => [durations.as_slice(); 3],
            Face::Vllm | Face::Sglang => [SGLANG_TTFT_S, SGLANG_ITL_S, e2e.as_slice()],
        }
        .map(Histogram::new);
        let tokens = Histogram::new(&tokens);
        Self {
            time_to_first_token: ttft.clone(),
            inter_token: itl.clone(),
            e2e: long.clone(),
            queue: ttft,
            inference: long,
            per_token: itl,
            prompt_tokens: tokens.clone(),
            generated_tokens: tokens.clone(),
            tokens_max: tokens,
        }
    }

    /// Notes what happened to a request.
    pub(crate) fn note(&mut self, marks: &mut Marks, at: Moment, kind: EventKind) {
        let seconds = |from: Moment| at.since(from).as_secs_f64();
        match kind {
            EventKind::Scheduled { .. } => {
                marks.scheduled = at;
                self.queue.observe(seconds(marks.arrived));
            }
            EventKind::FirstToken => {
                self.time_to_first_token.observe(seconds(marks.arrived));
                marks.generated += 1;
                marks.last_token = Some(at);
            }
            EventKind::Tokens(tokens) => {
                self.inter_token.observe(seconds(marks.last_token.unwrap_or(at)));
                marks.generated += tokens;
                marks.last_token = Some(at);
            }
            EventKind::Finished(_) => {
                self.e2e.observe(seconds(marks.arrived));
                self.inference.observe(seconds(marks.scheduled));
                self.per_token.observe(seconds(marks.scheduled) / f64::from(marks.generated.max(1)));
                self.prompt_tokens.observe(f64::from(marks.prompt_tokens));
                self.generated_tokens.observe(f64::from(marks.generated));
                if let Some(max) = marks.tokens_max {
                    self.tokens_max.observe(f64::from(max));
                }
            }
            EventKind::Preempted => {}
        }
    }
}

impl Marks {
    pub(crate) fn new(arrived: Moment, prompt_tokens: u32, tokens_max: Option<u32>) -> Self {
        Self { arrived, scheduled: arrived, last_token: None, prompt_tokens, tokens_max, generated: 0 }
    }
}
