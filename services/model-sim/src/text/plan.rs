//! Decides an answer before it is generated: which words, how many, and why it ends.
//!
//! The engine simulates when tokens come; which tokens they are is known from the start, so that blocks of generated
//! text can be found in the prefix cache, and stop strings can be placed.

use fastrand::Rng;

use super::WORDS;

/// What decides an answer.
#[derive(Clone, Debug, Default)]
pub(crate) struct PlanRequest<'a> {
    /// Hash of the prompt, the seed and the choice's number.
    pub(crate) seed: u64,
    /// The most tokens it may have, at least 1.
    pub(crate) tokens_max: u32,
    /// The least it must have before it ends by itself.
    pub(crate) tokens_min: u32,
    /// How it may end.
    pub(crate) ending: Ending,
    /// Texts at which it ends, before them.
    pub(crate) stop: &'a [String],
}

/// Whether an answer ends by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Ending {
    /// After its natural length.
    #[default]
    Natural,
    /// Only at the limit (`ignore_eos`).
    AtLimit,
}

/// An answer to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    /// Its tokens. The last is empty, the end-of-turn token, when it ended by itself; a stop string may cut it.
    pub(crate) pieces: Vec<&'static str>,
    /// Bytes of text that are shown.
    pub(crate) shown_bytes: usize,
    /// The stop string that ended it.
    pub(crate) stopped_by: Option<String>,
    /// Whether the limit ended it.
    pub(crate) at_limit: bool,
}

/// Middle of natural answer lengths, tokens; the logarithm varies by [`NATURAL_SIGMA`].
const NATURAL_MEDIAN: f64 = 120.0;
const NATURAL_SIGMA: f64 = 0.6;
/// One word and the end of the turn.
const NATURAL_MIN: u32 = 2;
/// Its text is empty; the prompt's template writes it after each turn.
pub(crate) const END_OF_TURN: &str = "";
/// Words between full stops, at least and at most.
const SENTENCE_WORDS: std::ops::RangeInclusive<u32> = 6..=14;

/// Decides the answer.
pub(crate) fn plan(request: &PlanRequest<'_>) -> Plan {
    let mut rng = Rng::with_seed(request.seed);
    let natural = natural_tokens(&mut rng).max(request.tokens_min + 1).max(NATURAL_MIN);
    let (length, at_limit) = match request.ending {
        Ending::Natural if natural < request.tokens_max => (natural, false),
        Ending::Natural | Ending::AtLimit => (request.tokens_max, true),
    };
    let mut pieces = words(length, &mut rng);
    if let Some(last) = pieces.last_mut().filter(|_| !at_limit) {
        *last = END_OF_TURN;
    }
    let shown_bytes = pieces.iter().map(|piece| piece.len()).sum();
    let whole = Plan { pieces, shown_bytes, stopped_by: None, at_limit };
    if request.stop.is_empty() { whole } else { stop_early(whole, request) }
}

impl Plan {
    /// Text of the tokens `from..to`, as far as it is shown.
    pub(crate) fn text(&self, from: usize, to: usize) -> String {
        let start: usize = self.pieces[..from].iter().map(|piece| piece.len()).sum();
        let mut text = self.pieces[from..to].concat();
        text.truncate(self.shown_bytes.saturating_sub(start));
        text
    }

    /// How many tokens it has.
    pub(crate) fn tokens(&self) -> u32 {
        self.pieces.len() as u32
    }
}

fn natural_tokens(rng: &mut Rng) -> u32 {
    // Twelve uniform deviates make a normal one that is good enough for lengths.
    let normal = (0..12).map(|_| rng.f64()).sum::<f64>() - 6.0;
    (NATURAL_MEDIAN * (NATURAL_SIGMA * normal).exp()) as u32
}

fn words(length: u32, rng: &mut Rng) -> Vec<&'static str> {
    let mut pieces = Vec::with_capacity(length as usize);
    let mut left = rng.u32(SENTENCE_WORDS);
    for index in 0..length {
        if left == 0 {
            pieces.push(".");
            left = rng.u32(SENTENCE_WORDS);
            continue;
        }
        let word = WORDS[rng.usize(..WORDS.len())];
        pieces.push(if index == 0 { word.trim_start() } else { word });
        left -= 1;
    }
    pieces
}

/// Cuts a plan at the earliest stop string that ends after `tokens_min` tokens.
fn stop_early(mut plan: Plan, request: &PlanRequest<'_>) -> Plan {
    let mut text = String::new();
    let longest = request.stop.iter().map(String::len).max().unwrap_or(0);
    for index in 0..plan.pieces.len() {
        let before = text.len();
        text.push_str(plan.pieces[index]);
        if (index as u32) < request.tokens_min {
            continue;
        }
        let mut from = before.saturating_sub(longest);
        while !text.is_char_boundary(from) {
            from -= 1;
        }
        let hits = request.stop.iter().filter(|stop| !stop.is_empty());
        let first = hits.filter_map(|stop| text[from..].find(stop.as_str()).map(|at| (from + at, stop))).min();
        if let Some((at, stop)) = first {
            plan.pieces.truncate(index + 1);
            return Plan { shown_bytes: at, stopped_by: Some(stop.clone()), at_limit: false, ..plan };
        }
    }
    plan
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::pieces;

    fn request(seed: u64, tokens_max: u32) -> PlanRequest<'static> {
        PlanRequest { seed, tokens_max, ..PlanRequest::default() }
    }

    #[test]
    fn an_answer_read_again_has_the_tokens_it_was_made_of() {
        for seed in 0..50 {
            let plan = plan(&request(seed, 400));
            let text = plan.text(0, plan.pieces.len());
            let words: Vec<_> = plan.pieces.iter().copied().filter(|piece| *piece != END_OF_TURN).collect();
            assert_eq!(pieces(&text).collect::<Vec<_>>(), words);
        }
    }

    #[test]
    fn answers_repeat_and_differ() {
        assert_eq!(plan(&request(1, 50)), plan(&request(1, 50)));
        assert_ne!(plan(&request(1, 50)).pieces, plan(&request(2, 50)).pieces);
    }

    #[test]
    fn an_answer_ends_by_itself_or_at_its_limit() {
        let natural = plan(&request(1, 10_000));
        assert!(!natural.at_limit && natural.tokens() < 2_000);
        let cut = plan(&request(1, natural.tokens() - 1));
        assert!(cut.at_limit && cut.tokens() == natural.tokens() - 1);
        assert!(!plan(&request(1, natural.tokens() + 1)).at_limit);
        assert_eq!((natural.pieces.last(), cut.pieces.contains(&END_OF_TURN)), (Some(&END_OF_TURN), false));
        let full = plan(&PlanRequest { ending: Ending::AtLimit, ..request(1, 5_000) });
        assert_eq!((full.tokens(), full.at_limit), (5_000, true));
        let long = plan(&PlanRequest { tokens_min: 3_000, ..request(1, 10_000) });
        assert_eq!((long.tokens(), long.at_limit), (3_001, false));
    }

    #[test]
    fn a_stop_string_ends_it_before_its_own_text() {
        let free = plan(&request(3, 200));
        let text = free.text(0, free.pieces.len());
        // A stop string that begins within one token and ends within a later one.
        let stop = text[20..27].to_owned();
        let stopped = plan(&PlanRequest { stop: std::slice::from_ref(&stop), ..request(3, 200) });
        assert_eq!(stopped.text(0, stopped.pieces.len()), text[..text.find(&stop).unwrap()]);
        assert_eq!(stopped.stopped_by, Some(stop));
        assert!(stopped.tokens() < free.tokens());
        let streamed: String = (0..stopped.pieces.len()).map(|i| stopped.text(i, i + 1)).collect();
        assert_eq!(streamed, stopped.text(0, stopped.pieces.len()));
    }
}
