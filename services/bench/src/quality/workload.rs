//! Makes the calls of one run: a function of the workload, the rate and the seed.

use std::time::Duration;

use fastrand::Rng;
use pool::Moment;

use super::{
    arrivals::Arrivals,
    scenario::{Kind, Shared, Turns, Workload},
    text::{Piece, draft},
};
use crate::world::call::{Answers, Call, Draft, mix};

/// Draws the requests of a workload, one after the other.
#[derive(Clone, Debug)]
pub struct Source<'a> {
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
    let mut calls = Vec::with_capacity(requests as usize);
    let mut at = Moment::ORIGIN + arrivals.gap(&mut rng);
    while at.since_origin() < length {
        calls.push(source.call(at));
        at = at + arrivals.gap(&mut rng);
    }
    (calls, length)
}

impl<'a> Source<'a> {
    pub fn new(workload: &'a Workload, seed: u64) -> Self {
        let kinds = workload.kinds.values().map(|kind| (kind, Vec::new())).collect();
        Self { kinds, rng: Rng::with_seed(mix(seed, 2)), texts: 0 }
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
