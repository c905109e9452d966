//! Ends a step: tokens appear, requests end, blocks become free, and everything is counted.

use pool::Moment;

use super::{Engine, Sequence, Step};
use crate::{EventKind, FinishReason};

/// What a sequence does after a step.
enum After {
    Stays,
    Leaves(FinishReason),
}

/// Tokens that one step brought.
#[derive(Default)]
struct Produced {
    prompt_computed: u64,
    generated: u64,
}

impl Engine {
    /// Books the results of the step that just ended.
    pub(super) fn end_step(&mut self, step: &Step) {
        let mut produced = Produced::default();
        let mut batch = std::mem::take(&mut self.running);
        batch.retain_mut(|sequence| match self.advance(sequence, step.ends, &mut produced) {
            After::Stays => {
                sequence.scheduled = std::mem::take(&mut sequence.ahead);
                true
            }
            After::Leaves(reason) => {
                self.finish(sequence, reason, step.ends);
                false
            }
        });
        self.running = batch;
        let counters = &mut self.stats.counters;
        counters.steps += 1;
        counters.prefill_steps += u64::from(step.prefill_tokens > 0);
        counters.generation_tokens += produced.generated;
        self.histograms.iteration_tokens.observe((produced.prompt_computed + produced.generated) as f64);
        self.report();
    }

    fn advance(&mut self, sequence: &mut Sequence, at: Moment, produced: &mut Produced) -> After {
        if sequence.aborted {
            return After::Leaves(FinishReason::Abort);
        }
        let scheduled = std::mem::take(&mut sequence.scheduled);
        sequence.computed += scheduled;
        if scheduled == 0 || sequence.missing() > 0 {
            return After::Stays;
        }
        if sequence.generated == 0 {
            self.note_prefill_end(sequence, produced);
        }
        if sequence.request.output_tokens == 0 {
            return After::Leaves(FinishReason::Stop);
        }
        produced.generated += 1;
        self.note_token(sequence, at);
        if sequence.generated == sequence.request.output_tokens {
            return After::Leaves(match sequence.request.max_tokens {
                Some(max) if sequence.generated >= max => FinishReason::Length,
                _ => FinishReason::Stop,
            });
        }
        if !sequence.decoding {
            sequence.decoding = true;
            self.readers.begin(&sequence.blocks);
        }
        After::Stays
    }

    fn note_prefill_end(&mut self, sequence: &Sequence, produced: &mut Produced) {
        let prompt = u64::from(sequence.request.prompt_tokens);
        let cached = u64::from(sequence.cached_tokens);
        produced.prompt_computed += prompt - cached;
        self.stats.counters.prompt_tokens += prompt;
        self.stats.counters.prompt_tokens_cached += cached;
    }

    fn note_token(&mut self, sequence: &mut Sequence, at: Moment) {
        sequence.generated += 1;
        let times = &mut sequence.times;
        match times.last_token {
            None => {
                times.first_token = Some(at);
                self.histograms.time_to_first_token.observe(seconds(times.arrived, at));
                self.emit(sequence.request.id, at, EventKind::FirstToken);
            }
            Some(last) => {
                self.histograms.inter_token_latency.observe(seconds(last, at));
                self.emit(sequence.request.id, at, EventKind::Tokens(1));
            }
        }
        sequence.times.last_token = Some(at);
    }

    fn finish(&mut self, sequence: &mut Sequence, reason: FinishReason, at: Moment) {
        self.let_go(sequence);
        self.stats.counters.count_finished(reason);
        if reason == FinishReason::Abort {
            return;
        }
        self.live.remove(&sequence.request.id);
        self.observe(sequence, at);
        self.emit(sequence.request.id, at, EventKind::Finished(reason));
    }

    /// The per-request histograms, observed once, at a request's end.
    fn observe(&mut self, sequence: &Sequence, at: Moment) {
        let (times, request) = (&sequence.times, &sequence.request);
        let scheduled = times.scheduled.unwrap_or(at);
        let first = times.first_token.unwrap_or(at);
        let histograms = &mut self.histograms;
        histograms.e2e_latency.observe(seconds(times.arrived, at));
        histograms.queue_time.observe(seconds(times.queued, scheduled));
        histograms.inference_time.observe(seconds(scheduled, at));
        histograms.prefill_time.observe(seconds(scheduled, first));
        histograms.decode_time.observe(seconds(first, at));
        let intervals = sequence.generated.saturating_sub(1);
        if intervals > 0 {
            histograms.time_per_output_token.observe(seconds(first, at) / f64::from(intervals));
        }
        histograms.prompt_tokens.observe(f64::from(request.prompt_tokens));
        histograms.generation_tokens.observe(f64::from(sequence.generated));
        histograms.prefill_computed_tokens.observe(f64::from(request.prompt_tokens - sequence.cached_tokens));
        histograms.preemptions.observe(f64::from(sequence.preemptions));
        if let Some(max) = request.max_tokens {
            histograms.params_max_tokens.observe(f64::from(max));
        }
    }
}

fn seconds(from: Moment, to: Moment) -> f64 {
    to.since(from).as_secs_f64()
}
