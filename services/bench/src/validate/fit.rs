//! Fits the five costs of a step to one part of a run.
//!
//! The costs make up for each other, so that going up and down with one at a time gets stuck. A simplex of six trials
//! (Nelder and Mead's) follows such a valley, needs no slope, and goes the same way every time.

use engine::{Profile, StepTime};

use super::{
    hardware::Scale,
    measured::{Run, Timing},
    replay::replay,
    setup::Setup,
};

/// Trials after the first simplex: more do not change the first two digits of any factor.
const TRIALS_MAX: usize = 160;
/// The costs in the first simplex, each in its turn over those of the data sheet.
const FIRST_FACTORS: [f64; N] = [1.3, 3.0, 1.3, 1.5, 1.3];
/// Beyond these a factor would explain what something else causes.
const FACTOR: std::ops::RangeInclusive<f64> = 0.3..=6.0;

/// How many costs there are.
const N: usize = 5;
/// A trial: the logarithms of its factors, which can then be neither zero nor less.
type Point = [f64; N];

/// The factors with which the requests in `part` come out best.
pub fn fit(setup: &Setup, run: &Run, part: std::ops::Range<usize>) -> Scale {
    least(|point| {
        let profile = setup.profile(&scale(point));
        let steady = Profile { step: StepTime { jitter_sigma: 0.0, ..profile.step }, ..profile };
        distance(run, &replay(run, &steady, setup.ranks).timings, part.clone())
    })
}

fn scale(point: &Point) -> Scale {
    let mut scale = Scale::ONE;
    for (factor, logarithm) in scale.each().into_iter().zip(point) {
        *factor = logarithm.exp().clamp(*FACTOR.start(), *FACTOR.end());
    }
    scale
}

/// Where `cost` is least, as far as a simplex finds it from the data sheets' costs.
fn least(cost: impl Fn(&Point) -> f64) -> Scale {
    let trial = |point: Point| (cost(&point), point);
    let mut simplex = vec![trial([0.0; N])];
    simplex.extend(FIRST_FACTORS.iter().enumerate().map(|(index, factor)| {
        let mut point = [0.0; N];
        point[index] = factor.ln();
        trial(point)
    }));
    let mut trials = 0;
    while trials < TRIALS_MAX {
        simplex.sort_by(|a, b| a.0.total_cmp(&b.0));
        let worst = simplex[N];
        let centre: Point =
            std::array::from_fn(|i| simplex[..N].iter().map(|(_, point)| point[i]).sum::<f64>() / N as f64);
        let along = |by: f64| trial(std::array::from_fn(|i| centre[i] + by * (worst.1[i] - centre[i])));
        let reflected = along(-1.0);
        let better = match () {
            () if reflected.0 < simplex[0].0 => [along(-2.0), reflected].into_iter().min_by(|a, b| a.0.total_cmp(&b.0)),
            () if reflected.0 < simplex[N - 1].0 => Some(reflected),
            () => Some(along(if reflected.0 < worst.0 { -0.5 } else { 0.5 })).filter(|inner| inner.0 < worst.0),
        };
        trials += 2;
        match better {
            Some(better) => simplex[N] = better,
            None => {
                let best = simplex[0].1;
                for corner in &mut simplex[1..] {
                    *corner = trial(std::array::from_fn(|i| f64::midpoint(best[i], corner.1[i])));
                }
                trials += N;
            }
        }
    }
    simplex.sort_by(|a, b| a.0.total_cmp(&b.0));
    scale(&simplex[0].1)
}

/// How far the simulated requests are from the measured ones, one by one: first tokens and ends in shares of the mean
/// end-to-end time, time per token in shares of itself.
fn distance(run: &Run, simulated: &[Timing], part: std::ops::Range<usize>) -> f64 {
    let requests = &run.requests[part.clone()];
    let mean = requests.iter().map(|r| r.timing.last_token - r.timing.arrival).sum::<f64>() / requests.len() as f64;
    let each = requests.iter().zip(&simulated[part]).map(|(request, simulated)| {
        let per_token = |timing: &Timing| timing.last_token - timing.first_token;
        (simulated.first_token - request.timing.first_token).abs() / mean
            + (simulated.last_token - request.timing.last_token).abs() / mean
            + (per_token(simulated) / per_token(&request.timing).max(1e-9)).max(1e-9).ln().abs()
    });
    each.sum::<f64>() / requests.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::validate::measured::Measured;
    use crate::validate::setup::SETUPS;

    /// A run that the model itself made with other factors: what one half teaches must hold for the other.
    #[test]
    fn a_fit_to_one_half_is_good_for_the_other() {
        let truth = Scale { weights: 1.3, prefill: 0.8, ..Scale::ONE };
        let requests = (0..40).map(|index| Measured {
            prompt_tokens: 300 + 37 * (index % 7),
            output_tokens: 20 + 11 * (index % 5),
            shared_tokens: 0,
            timing: Timing { arrival: f64::from(index) * 0.05, ..Timing::default() },
        });
        let mut run = Run { requests: requests.collect(), ticks: Vec::new() };
        let profile = SETUPS[0].profile(&truth);
        let steady = Profile { step: StepTime { jitter_sigma: 0.0, ..profile.step }, ..profile };
        let timings = replay(&run, &steady, 1).timings;
        run.requests.iter_mut().zip(timings).for_each(|(request, timing)| request.timing = timing);
        let distance = |scale: &Scale| {
            let profile = SETUPS[0].profile(scale);
            let steady = Profile { step: StepTime { jitter_sigma: 0.0, ..profile.step }, ..profile };
            distance(&run, &replay(&run, &steady, 1).timings, 20..40)
        };
        assert!(distance(&truth) < 1e-9);
        let (before, after) = (distance(&Scale::ONE), distance(&fit(&SETUPS[0], &run, 0..20)));
        assert!(before > 0.1 && after < before / 5.0, "{before} {after}");
    }
}
