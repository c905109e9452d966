//! What a fleet can do at most, measured: each engine by itself, with no gateway in front that could hold it back.
//!
//! An engine is kept at a number of live requests for a while, at several numbers; the best rate of ends is its
//! capacity for that class of requests. So "10 × capacity" and "95 % of capacity" are said of the engines, and a
//! gateway that starves them cannot hide it.

use std::time::Duration;

use engine::{Engine, EventKind, Profile};
use pool::Moment;

use super::call::Draft;

/// Live requests tried. The largest is beyond every profile's batch at the lengths in use.
const LIVE: [usize; 6] = [16, 32, 64, 128, 256, 512];
/// Then these multiples of the best of them.
const AROUND: [f64; 5] = [0.6, 0.7, 0.8, 1.2, 1.4];
/// Ends counted per trial, after as many that are not: at least this many, and several times all that are live, since those
/// that begin together end together.
const ENDS_MIN: usize = 500;
const ENDS_PER_LIVE: usize = 4;
/// A trial gives up after this; then its rate is that of the time passed.
const TRIAL: Duration = Duration::from_secs(600);

/// Requests and output tokens per second.
#[derive(Clone, Copy, Debug, Default)]
pub struct Capacity {
    pub requests_per_s: f64,
    pub tokens_per_s: f64,
}

/// Of one engine, for the requests that `source` makes anew for each trial, by their number.
pub fn of_engine<D: FnMut(u64) -> Draft>(profile: &Profile, source: impl Fn() -> D, seed: u64) -> Capacity {
    let at = |live: usize| (live, trial(profile, source(), live, seed));
    let best_of = |trials: Vec<(usize, Capacity)>| {
        let best = trials.into_iter().max_by(|(_, a), (_, b)| a.requests_per_s.total_cmp(&b.requests_per_s));
        best.expect("trials were made")
    };
    let coarse = best_of(LIVE.map(at).into());
    let around = AROUND.map(|factor| at((coarse.0 as f64 * factor) as usize));
    best_of([&around[..], &[coarse]].concat()).1
}

/// Of a fleet of so many engines of each kind.
pub fn of_fleet<D: FnMut(u64) -> Draft>(fleet: &[(Profile, usize)], source: impl Fn() -> D, seed: u64) -> Capacity {
    let mut sum = Capacity::default();
    for (profile, count) in fleet {
        let one = of_engine(profile, &source, seed);
        sum.requests_per_s += one.requests_per_s * *count as f64;
        sum.tokens_per_s += one.tokens_per_s * *count as f64;
    }
    sum
}

fn trial(profile: &Profile, mut source: impl FnMut(u64) -> Draft, live: usize, seed: u64) -> Capacity {
    let mut engine = Engine::new(profile.clone(), seed);
    let mut outputs: Vec<u32> = Vec::new();
    let mut now = Moment::ORIGIN;
    let (mut ends, mut tokens, mut counting_since) = (0, 0u64, now);
    let warm = ENDS_MIN.max(ENDS_PER_LIVE * live);
    while ends < 2 * warm && now.since_origin() < TRIAL {
        while engine.live() < live {
            let serial = outputs.len() as u64;
            let draft = source(serial);
            outputs.push(draft.output_tokens);
            engine.submit(draft.for_engine(serial), now).expect("a scenario's lengths fit its engines");
        }
        now = engine.next_step_at().expect("an engine with live requests has a next step");
        for event in engine.step(now) {
            if matches!(event.kind, EventKind::Finished(_)) {
                ends += 1;
                tokens += u64::from(outputs[event.id.0 as usize]);
                if ends == warm {
                    (counting_since, tokens) = (now, 0);
                }
            }
        }
    }
    let seconds = now.since(counting_since).as_secs_f64().max(f64::MIN_POSITIVE);
    let counted = if ends >= warm { ends - warm } else { ends };
    Capacity { requests_per_s: counted as f64 / seconds, tokens_per_s: tokens as f64 / seconds }
}
