//! Makes the calls of one run: a function of the workload, the rate and the seed.

use std::time::Duration;

use fastrand::Rng;
use pool::Moment;

use super::{
    arrivals::Arrivals,
    scenario::{Kind, Shared, Turns, Workload},
    text::{Piece, draft},
    trace::Trace,
};
use crate::world::call::{Answers, Call, Draft, mix};

/// Draws the requests of a workload, one after the other, or takes them from its trace.
#[derive(Clone, Debug)]
pub struct Source<'a> {
    trace: Option<&'a Trace>,
    /// Where in the trace it is: each seed begins elsewhere.
    place: usize,
    kinds: Vec<(&'a Kind, Vec<Conversation>)>,
    rng: Rng,
    /// Numbers of pieces of text that nobody has used.
    texts: u64,
}

/// What has been said in a conversation that may go on.
#[derive(Clone, Debug)]
struct Conversation {
    said: Vec<Piece>,
    adapter: Option<u32>,
}

/// Calls come in order at this rate until there are enough of them; then the run has this length.
pub fn calls(workload: &Workload, rate_per_s: f64, seed: u64) -> (Vec<Call>, Duration) {
    let requests = f64::from(workload.requests).max(workload.seconds_min * rate_per_s);
    let length = Duration::from_secs_f64(requests / rate_per_s);
    let mut source = Source::new(workload, seed);
    let (arrivals, mut rng) = (Arrivals::new(rate_per_s, workload.arrivals_cv), Rng::with_seed(mix(seed, 1)));
    let mut gap = |source: &Source<'_>| match source.trace {
        Some(trace) if trace.has_arrivals => Duration::from_secs_f64(trace.relative_gap(source.place) / rate_per_s),
        Some(_) | None => arrivals.gap(&mut rng),
    };
    let mut calls = Vec::with_capacity(requests as usize);
    let mut at = Moment::ORIGIN + gap(&source);
    while at.since_origin() < length {
        calls.push(source.call(at));
        at = at + gap(&source);
    }
    (calls, length)
}

impl<'a> Source<'a> {
    pub fn new(workload: &'a Workload, seed: u64) -> Self {
        let kinds = workload.kinds.values().map(|kind| (kind, Vec::new())).collect();
        let trace = workload.trace.as_ref();
        let place = trace.map_or(0, |trace| (mix(seed, 3) % trace.len() as u64) as usize);
        Self { trace, place, kinds, rng: Rng::with_seed(mix(seed, 2)), texts: 0 }
    }

    fn call(&mut self, at: Moment) -> Call {
        let (class, draft) = self.draw();
        Call {
            at,
            class,
            flow: class as u64,
            priority: self.kinds[class].0.priority,
            draft,
            deadline: None,
            leaves: None,
            answers: Answers::Streamed,
            only: None,
        }
    }

    /// The next request's kind and content.
    pub fn draw(&mut self) -> (usize, Draft) {
        if let Some(trace) = self.trace {
            self.place += 1;
            // A trace that begins again is another time of the same texts.
            return (0, trace.get(self.place - 1).draft(self.place as u64, self.kinds[0].0.longest));
        }
        let class = weighted(self.kinds.iter().map(|(kind, _)| kind.share), &mut self.rng);
        let kind = self.kinds[class].0;
        let (mut prompt_tokens, mut output_tokens) = kind.lengths.draw(&mut self.rng);
        if let Some((prompt_max, output_max)) = kind.longest {
            (prompt_tokens, output_tokens) = (prompt_tokens.min(prompt_max), output_tokens.min(output_max));
        }
        let adapter =
            (!kind.adapters.is_empty()).then(|| weighted(kind.adapters.iter().copied(), &mut self.rng) as u32);
        let draft = match (kind.turns, kind.shared) {
            (Some(turns), _) => self.turn(class, turns, prompt_tokens, output_tokens, adapter),
            (None, Some(shared)) => self.with_shared(class, shared, prompt_tokens, output_tokens, adapter),
            (None, None) => {
                let prompt = [self.piece(prompt_tokens)];
                draft(&prompt, self.piece(output_tokens), 0, adapter)
            }
        };
        (class, draft)
    }

    /// A beginning that others have too, then a question of its own.
    fn with_shared(&mut self, class: usize, shared: Shared, own: u32, output: u32, adapter: Option<u32>) -> Draft {
        let weights = (1..=shared.groups).map(|group| f64::from(group).powf(-shared.zipf));
        let group = weighted(weights, &mut self.rng);
        let beginning = Piece { text: !mix(class as u64, group as u64), tokens: shared.tokens };
        let prompt = [beginning, self.piece(own)];
        draft(&prompt, self.piece(output), shared.tokens, adapter)
    }

    /// A turn of a conversation. One that would be longer than the drawn prompt allows begins anew.
    fn turn(&mut self, class: usize, turns: Turns, tokens: u32, output: u32, adapter: Option<u32>) -> Draft {
        let goes_on = self.rng.f64() < turns.goes_on;
        let open = &self.kinds[class].1;
        let said = |conversation: &Conversation| conversation.said.iter().map(|piece| piece.tokens).sum::<u32>();
        // The drawn length is kept, so that lengths stay the trace's: the conversation that fits it best goes on.
        let fitting = open.iter().enumerate().filter(|(_, conversation)| said(conversation) < tokens);
        let best = fitting.max_by_key(|(number, conversation)| (said(conversation), *number)).map(|(number, _)| number);
        let (mut said, adapter) = match best.filter(|_| goes_on) {
            Some(number) => {
                let Conversation { said, adapter } = self.kinds[class].1.remove(number);
                (said, adapter)
            }
            None => (Vec::new(), adapter),
        };
        let before: u32 = said.iter().map(|piece| piece.tokens).sum();
        said.push(self.piece((tokens - before).max(1)));
        let answer = self.piece(output);
        let made = draft(&said, answer, u32::MAX, adapter);
        said.push(answer);
        let open = &mut self.kinds[class].1;
        if open.len() >= turns.open as usize {
            open.remove(0);
        }
        open.push(Conversation { said, adapter });
        made
    }

    /// Text that nobody else has.
    fn piece(&mut self, tokens: u32) -> Piece {
        self.texts += 1;
        Piece { text: self.texts, tokens }
    }
}

/// A place in `weights`, drawn in proportion to them.
fn weighted(weights: impl Iterator<Item = f64> + Clone, rng: &mut Rng) -> usize {
    let mut left = rng.f64() * weights.clone().sum::<f64>();
    let mut last = 0;
    for (place, weight) in weights.enumerate() {
        if left < weight {
            return place;
        }
        left -= weight;
        last = place;
    }
    last
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;
    use crate::quality::scenario::Scenario;

    fn workload(file: &str) -> Workload {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/scenarios").join(file);
        Scenario::read(&path).unwrap().workload
    }

    /// Share of prompt tokens that were met before, with a cache that keeps everything.
    fn met_before(calls: &[Call]) -> f64 {
        let (mut known, mut met, mut all) = (HashSet::new(), 0.0, 0.0);
        for call in calls {
            let prompt_blocks = (call.draft.prompt_tokens / 16) as usize;
            let mut chain = 0;
            let mut before = true;
            for block in &call.draft.blocks {
                chain = mix(chain, block.0);
                before &= known.contains(&chain);
                known.insert(chain);
                met += f64::from(u8::from(before)) * 16.0;
            }
            // The blocks of the answer lie behind the prompt's, and nobody has met them before.
            assert!(call.draft.blocks.len() >= prompt_blocks || call.draft.blocks.is_empty());
            all += f64::from(call.draft.prompt_tokens);
        }
        met / all
    }

    /// 37.4 % of input tokens in Mooncake's conversation trace, with an infinite cache.
    #[test]
    fn conversations_reuse_as_much_as_the_trace_they_are_fitted_to() {
        let workload = Workload { requests: 6_000, ..workload("12-conversations-70b.yaml") };
        let seen = met_before(&calls(&workload, 3.4, 7).0);
        assert!((seen - 0.374).abs() < 0.03, "{seen}");
    }

    #[test]
    fn shares_of_kinds_and_adapters_are_the_scenario_s() {
        let workload = Workload { requests: 20_000, ..workload("07-many-adapters-8b.yaml") };
        let (made, _) = calls(&workload, 50.0, 1);
        let share =
            |adapter| made.iter().filter(|call| call.draft.adapter == Some(adapter)).count() as f64 / made.len() as f64;
        assert!((share(0) - 0.6).abs() < 0.02 && (share(1) - 0.3).abs() < 0.02, "{} {}", share(0), share(1));
        assert!(made.iter().all(|call| call.draft.adapter.is_some_and(|adapter| adapter < 15)));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]
        #[test]
        fn calls_come_in_order_at_the_rate_and_fit_the_model(seed: u64, rate in 1.0..200.0_f64) {
            let workload = Workload { requests: 500, seconds_min: 0.0, ..workload("12-conversations-70b.yaml") };
            let (made, length) = calls(&workload, rate, seed);
            prop_assert!(made.windows(2).all(|pair| pair[0].at <= pair[1].at));
            prop_assert!(made.last().is_none_or(|call| call.at.since_origin() < length));
            prop_assert!((made.len() as f64 - 500.0).abs() < 150.0, "{}", made.len());
            prop_assert!(made.iter().all(|call| call.draft.prompt_tokens <= 120_000 && call.draft.output_tokens >= 1));
            prop_assert_eq!(made.len(), calls(&workload, rate, seed).0.len());
        }
    }
}
