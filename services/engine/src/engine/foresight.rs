//! When the first token of a request would come, were it submitted now and nothing after it.
//!
//! The engine's own rules are run ahead on counts instead of blocks: who computes how much in each step, who waits for
//! room, who ends when. Steps take their mean time. Sharing of blocks among live requests is kept as the ratio that it
//! has now. So it costs microseconds, changes nothing, and is what a router that knows everything could know.

use std::collections::{BTreeSet, VecDeque};

use pool::Moment;

use super::{Engine, Sequence};
use crate::{AdapterId, Batch, Request, Scheduling};

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
    /// Tokens of the step in flight, and of the one after it where that is formed ahead.
    scheduled: u32,
    ahead: u32,
    decoding: bool,
    blocks: f64,
    /// Computed tokens whose blocks it lost, and will find in the cache again.
    lost: u32,
    is_asked_about: bool,
}

/// When a batch is formed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Formed {
    /// With no step in flight.
    Now,
    /// As the one after that in flight.
    Ahead,
}

struct Ahead<'a> {
    engine: &'a Engine,
    at: Moment,
    running: Vec<Runner<'a>>,
    waiting: VecDeque<Runner<'a>>,
    arriving: VecDeque<(Moment, Runner<'a>)>,
    /// The batch after the one in flight, where it is formed ahead.
    prepared: Option<Batch>,
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
            ahead: sequence.ahead,
            decoding: sequence.decoding,
            blocks: sequence.blocks.len() as f64,
            lost: 0,
            is_asked_about: false,
        }
    }

    fn schedule(&mut self, tokens: u32, formed: Formed) {
        match formed {
            Formed::Now => self.scheduled = tokens,
            Formed::Ahead => self.ahead = tokens,
        }
    }

    fn missing(&self) -> u32 {
        self.known - self.computed
    }

    fn brings_token(&self) -> bool {
        self.scheduled > 0 && self.scheduled == self.missing()
    }

    /// Tokens to compute after the step in flight.
    fn missing_after(&self) -> u32 {
        if self.brings_token() { u32::from(self.left > 1) } else { self.missing() - self.scheduled }
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
            prepared: engine.prepared,
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
            self.admit_arrivals();
            let batch = self.prepared.take().unwrap_or_else(|| self.form(Formed::Now));
            if batch.is_empty() {
                self.at = self.arriving.front()?.0;
                continue;
            }
            if self.engine.profile.scheduling == Scheduling::Ahead {
                self.prepared = Some(self.form(Formed::Ahead)).filter(|next| !next.is_empty());
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
            let scheduled = std::mem::replace(&mut runner.scheduled, std::mem::take(&mut runner.ahead));
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
            runner.decoding = true;
            true
        });
        self.free += freed * self.distinct;
        found
    }

    fn admit_arrivals(&mut self) {
        while self.arriving.front().is_some_and(|(due, _)| *due <= self.at) {
            let (_, runner) = self.arriving.pop_front().expect("it was just looked at");
            self.waiting.push_back(runner);
        }
    }

    fn form(&mut self, formed: Formed) -> Batch {
        let mut budget = self.engine.profile.max_batched_tokens;
        if self.schedule_running(&mut budget, formed) {
            self.schedule_waiting(&mut budget, formed);
        }
        self.describe(formed)
    }

    /// True when nobody had to give way.
    fn schedule_running(&mut self, budget: &mut u32, formed: Formed) -> bool {
        let (mut place, mut nobody_gave_way) = (0, true);
        while place < self.running.len() && *budget > 0 {
            let runner = &self.running[place];
            let missing = match formed {
                Formed::Now => runner.missing(),
                Formed::Ahead => runner.missing_after(),
            };
            let tokens = missing.min(*budget);
            let short = self.short(runner, tokens);
            if tokens > 0 && short > self.free && self.running.len() > 1 {
                *budget += self.preempt_last(formed);
                nobody_gave_way = false;
                continue;
            }
            self.take(if tokens > 0 { short } else { 0.0 });
            let runner = &mut self.running[place];
            if tokens > 0 {
                runner.blocks += short;
                runner.decoding |= runner.brings_token();
                runner.schedule(tokens, formed);
            }
            *budget -= tokens;
            place += 1;
        }
        nobody_gave_way
    }

    /// The last one gives way. Returns the tokens that it had in the batch being formed.
    fn preempt_last(&mut self, formed: Formed) -> u32 {
        let mut victim = self.running.pop().expect("somebody runs");
        let (scheduled, ahead) = (std::mem::take(&mut victim.scheduled), std::mem::take(&mut victim.ahead));
        self.free += std::mem::take(&mut victim.blocks) * self.distinct;
        victim.lost = std::mem::take(&mut victim.computed);
        victim.decoding = false;
        self.waiting.push_front(victim);
        match formed {
            Formed::Now => scheduled,
            Formed::Ahead => ahead,
        }
    }

    fn schedule_waiting(&mut self, budget: &mut u32, formed: Formed) {
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
            runner.computed += std::mem::take(&mut runner.lost) / profile.block_tokens * profile.block_tokens;
            // The whole prompt must fit, not only the chunk that is computed now.
            if self.short(&runner, runner.missing()) > self.free {
                break;
            }
            let tokens = runner.missing().min(*budget);
            let short = self.short(&runner, tokens);
            self.take(short);
            runner.sequence = None;
            runner.schedule(tokens, formed);
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
        let needed = (runner.computed + runner.scheduled + tokens).div_ceil(self.engine.profile.block_tokens);
        (f64::from(needed) - runner.blocks).max(0.0)
    }

    fn take(&mut self, blocks: f64) {
        self.free = (self.free - blocks).max(0.0);
    }

    fn describe(&self, formed: Formed) -> Batch {
        let mut batch = Batch::default();
        let mut read = 0.0;
        for runner in &self.running {
            let (before, tokens) = match formed {
                Formed::Now => (runner.computed, runner.scheduled),
                Formed::Ahead => (runner.computed + runner.scheduled, runner.ahead),
            };
            let (before, chunk) = (f64::from(before), f64::from(tokens));
            if runner.decoding {
                batch.decodes += u32::from(tokens > 0);
                read += before + chunk;
            } else {
                batch.prefill_tokens += u64::from(tokens);
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
