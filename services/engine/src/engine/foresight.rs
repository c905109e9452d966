//! When the first token of a request would come, were it submitted now and nothing after it.
//!
//! The engine's own rules are run ahead on counts instead of blocks: who computes how much in each step, who waits for
//! room, who ends when. Steps take their mean time. Sharing of blocks among live requests is kept as the ratio that it
//! has now. So it costs microseconds, changes nothing, and is what a router that knows everything could know.

use std::collections::{BTreeSet, VecDeque};

use pool::Moment;

use super::{Engine, Sequence};
use crate::{AdapterId, Batch, Request};

/// Steps looked ahead, at most: beyond, any answer is as bad as another.
const STEPS_MAX: usize = 20_000;

/// One request, in numbers.
#[derive(Clone, Copy, Debug)]
struct Runner<'a> {
    /// What it may find in the cache when it is admitted; `None` once it has been.
    sequence: Option<&'a Sequence>,
    adapter: Option<AdapterId>,
    /// Tokens known, and those among them that are computed.
    known: u32,
    computed: u32,
    /// Tokens it will still generate.
    left: u32,
    scheduled: u32,
    blocks: f64,
    /// Computed tokens whose blocks it lost, and will find in the cache again.
    lost: u32,
    is_asked_about: bool,
}

struct Ahead<'a> {
    engine: &'a Engine,
    at: Moment,
    running: Vec<Runner<'a>>,
    waiting: VecDeque<Runner<'a>>,
    arriving: VecDeque<(Moment, Runner<'a>)>,
    free: f64,
    /// Distinct blocks ÷ blocks, over all that decode.
    distinct: f64,
}

impl Engine {
    /// When `request`, submitted at `at`, would have its first token if no other came after it. `None` when that is not
    /// before `limit`, or never.
    pub fn foresee(&self, request: &Request, at: Moment, limit: Moment) -> Option<Moment> {
        self.check(request).ok()?;
        let api_us = self.profile.api.base_us + self.profile.api.per_token_us * f64::from(request.prompt_tokens);
        let queued = at + std::time::Duration::from_secs_f64(api_us / 1e6);
        let sequence = Sequence::new(request.clone(), self.serial + 1, at, queued);
        let mut ahead = Ahead::of(self);
        let place = ahead.arriving.iter().position(|(due, _)| *due > queued).unwrap_or(ahead.arriving.len());
        let asked = Runner { is_asked_about: true, ..Runner::of(&sequence) };
        ahead.arriving.insert(place, (queued, asked));
        ahead.first_token(limit)
    }
}

impl<'a> Runner<'a> {
    fn of(sequence: &'a Sequence) -> Self {
        Self {
            sequence: Some(sequence),
            adapter: sequence.adapter(),
            known: sequence.known(),
            computed: sequence.computed,
            left: sequence.request.output_tokens.saturating_sub(sequence.generated),
            scheduled: sequence.scheduled,
            blocks: sequence.blocks.len() as f64,
            lost: 0,
            is_asked_about: false,
        }
    }

    fn missing(&self) -> u32 {
        self.known - self.computed
    }
}

impl<'a> Ahead<'a> {
    fn of(engine: &'a Engine) -> Self {
        let read: usize = engine.running.iter().filter(|s| s.decoding).map(|s| s.blocks.len()).sum();
        let distinct = if read > 0 { f64::from(engine.readers.distinct()) / read as f64 } else { 1.0 };
        let admitted = |sequence: &'a Sequence| Runner { sequence: None, ..Runner::of(sequence) };
        let running = engine.running.iter().filter(|sequence| !sequence.aborted).map(admitted);
        let arriving = engine.arriving.iter().map(|((due, _), sequence)| (*due, Runner::of(sequence)));
        Self {
            engine,
            at: Moment::ORIGIN,
            running: running.collect(),
            waiting: engine.waiting.iter().map(Runner::of).collect(),
            arriving: arriving.collect(),
            free: f64::from(engine.blocks.free()),
            distinct,
        }
    }

    fn first_token(mut self, limit: Moment) -> Option<Moment> {
        let in_flight = self.engine.in_flight.as_ref().map(|step| step.ends);
        self.at = in_flight.or_else(|| self.arriving.front().map(|(due, _)| *due))?;
        if in_flight.is_some() && self.end_step() {
            return Some(self.at).filter(|at| *at < limit);
        }
        for _ in 0..STEPS_MAX {
            if self.at >= limit {
                return None;
            }
            let batch = self.begin_step();
            if batch.is_empty() {
                self.at = self.arriving.front()?.0;
                continue;
            }
            let took_ms = self.engine.profile.step.mean_ms(&batch);
            self.at = self.at + std::time::Duration::from_secs_f64(took_ms / 1e3);
            if self.end_step() {
                return Some(self.at).filter(|at| *at < limit);
            }
        }
        None
    }

    /// Books a step. True when the first token asked about was in it.
    fn end_step(&mut self) -> bool {
        let (mut found, mut freed) = (false, 0.0);
        self.running.retain_mut(|runner| {
            let scheduled = std::mem::take(&mut runner.scheduled);
            runner.computed += scheduled;
            if scheduled == 0 || runner.missing() > 0 {
                return true;
            }
            found |= runner.is_asked_about;
            runner.left = runner.left.saturating_sub(1);
            if runner.left == 0 {
                freed += runner.blocks;
                return false;
            }
            runner.known += 1;
            true
        });
        self.free += freed * self.distinct;
        found
    }

    fn begin_step(&mut self) -> Batch {
        while self.arriving.front().is_some_and(|(due, _)| *due <= self.at) {
            let (_, runner) = self.arriving.pop_front().expect("it was just looked at");
            self.waiting.push_back(runner);
        }
        let mut budget = self.engine.profile.max_batched_tokens;
        if self.schedule_running(&mut budget) {
            self.schedule_waiting(&mut budget);
        }
        self.describe()
    }

    /// True when nobody had to give way.
    fn schedule_running(&mut self, budget: &mut u32) -> bool {
        let (mut place, mut nobody_gave_way) = (0, true);
        while place < self.running.len() && *budget > 0 {
            let tokens = self.running[place].missing().min(*budget);
            let short = self.short(&self.running[place], tokens);
            if short > self.free && self.running.len() > 1 {
                let mut victim = self.running.pop().expect("there is more than one");
                *budget += std::mem::take(&mut victim.scheduled);
                self.free += std::mem::take(&mut victim.blocks) * self.distinct;
                victim.lost = std::mem::take(&mut victim.computed);
                self.waiting.push_front(victim);
                nobody_gave_way = false;
                continue;
            }
            self.take(short);
            let runner = &mut self.running[place];
            runner.blocks += short;
            runner.scheduled = tokens;
            *budget -= tokens;
            place += 1;
        }
        nobody_gave_way
    }

    fn schedule_waiting(&mut self, budget: &mut u32) {
        let profile = &self.engine.profile;
        let mut adapters: BTreeSet<AdapterId> = self.running.iter().filter_map(|runner| runner.adapter).collect();
        let mut place = 0;
        while *budget > 0 && place < self.waiting.len() && self.running.len() < profile.max_seqs as usize {
            let mut runner = self.waiting[place];
            let deferred =
                runner.adapter.is_some_and(|a| adapters.len() >= profile.max_loras as usize && !adapters.contains(&a));
            if deferred {
                place += 1;
                continue;
            }
            if let Some(sequence) = runner.sequence {
                let found = self.cached_blocks(sequence);
                (runner.computed, runner.blocks) = (found * profile.block_tokens, f64::from(found));
            }
            let block_tokens = profile.block_tokens;
            runner.computed += std::mem::take(&mut runner.lost) / block_tokens * block_tokens;
            let tokens = runner.missing().min(*budget);
            let short = self.short(&runner, tokens);
            if short > self.free {
                break;
            }
            self.take(short);
            (runner.sequence, runner.scheduled) = (None, tokens);
            runner.blocks += short;
            *budget -= tokens;
            adapters.extend(runner.adapter);
            self.waiting.remove(place);
            self.running.push(runner);
        }
    }

    /// Leading blocks of a sequence that are cached now, as far as somebody described them.
    fn cached_blocks(&self, sequence: &Sequence) -> u32 {
        let usable = ((sequence.known() - 1) / self.engine.profile.block_tokens) as usize;
        let described = usable.min(sequence.request.blocks.len().max(sequence.chains.len()));
        self.engine.blocks.count_found(sequence.chains_up_to(described))
    }

    fn short(&self, runner: &Runner<'_>, tokens: u32) -> f64 {
        let needed = (runner.computed + tokens).div_ceil(self.engine.profile.block_tokens);
        (f64::from(needed) - runner.blocks).max(0.0)
    }

    fn take(&mut self, blocks: f64) {
        self.free = (self.free - blocks).max(0.0);
    }

    fn describe(&self) -> Batch {
        let mut batch = Batch::default();
        let mut read = 0.0;
        for runner in &self.running {
            let (before, chunk) = (f64::from(runner.computed), f64::from(runner.scheduled));
            if runner.missing() == 1 && runner.sequence.is_none() && runner.computed > 0 {
                batch.decodes += u32::from(runner.scheduled > 0);
                read += before + chunk;
            } else {
                batch.prefill_tokens += u64::from(runner.scheduled);
                batch.attention_pairs += chunk * (before + chunk / 2.0);
            }
        }
        batch.kv_tokens = (read * self.distinct) as u64;
        batch
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use fastrand::Rng;

    use super::*;
    use crate::{EventKind, Profile, RequestId};

    fn request(id: u64, prompt_tokens: u32, output_tokens: u32) -> Request {
        let id = RequestId(id);
        Request { id, blocks: Vec::new(), prompt_tokens, output_tokens, max_tokens: None, adapter: None, priority: 0 }
    }

    /// Under loads from idle to a queue of many seconds, with steps that do not jitter.
    #[test]
    fn what_is_foreseen_comes_true_when_nothing_comes_after() {
        for (name, live) in [("llama-3.1-8b-a10g", 3), ("llama-3.1-8b-a10g", 60), ("llama-3.1-70b-4xh100", 80)] {
            let mut profile = Profile::named(name).unwrap();
            (profile.step.jitter_sigma, profile.api.spread) = (0.0, 0.0);
            let mut rng = Rng::with_seed(live);
            for trial in 0..20 {
                let mut engine = Engine::new(profile.clone(), trial);
                let mut now = Moment::ORIGIN;
                for id in 0..live {
                    engine.submit(request(id, rng.u32(50..3_000), rng.u32(20..400)), now).unwrap();
                    now = now + Duration::from_millis(rng.u64(0..30));
                    engine.step(now);
                }
                let asked = request(1_000_000, rng.u32(50..3_000), 10);
                let foreseen = engine.foresee(&asked, now, Moment::from_origin(Duration::MAX)).unwrap();
                assert!(engine.foresee(&asked, now, foreseen).is_none(), "the limit is heeded");
                engine.submit(asked.clone(), now).unwrap();
                let came = loop {
                    let at = engine.next_step_at().unwrap();
                    let first = |event: &&crate::Event| event.id == asked.id && event.kind == EventKind::FirstToken;
                    if let Some(event) = engine.step(at).iter().find(first) {
                        break event.at;
                    }
                };
                let (foreseen, came) = (foreseen.since(now).as_secs_f64(), came.since(now).as_secs_f64());
                assert!((foreseen / came - 1.0).abs() < 0.05, "{name} {live} {trial}: {foreseen} for {came}");
            }
        }
    }
}
