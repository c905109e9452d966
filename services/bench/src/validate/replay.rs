//! Plays a measured run to the engine model: the same requests at the same moments, with as much in common.
//!
//! Prefixes that requests share are known by their length alone. Each is taken from the earlier request whose text is just
//! long enough for it, which is what the next turn of a conversation looks like.

use std::time::Duration;

use engine::{BlockHash, Engine, EventKind, Profile, RankChoice, RankLoad, Request, RequestId};
use pool::Moment;

use super::measured::{Measured, Run, Tick, Timing};

/// Of the chance in the step times. Any other gives figures within a percent or so of these.
const SEED: u64 = 19;
/// Blocks of one request that are told apart; none of the runs has a context near it.
const BLOCKS_PER_REQUEST_MAX: u64 = 1 << 20;

/// What the model made of a run.
#[derive(Debug)]
pub struct Replayed {
    /// In the order of the run's requests.
    pub timings: Vec<Timing>,
    /// At the run's own moments.
    pub ticks: Vec<Tick>,
    pub preemptions: u64,
    /// Prompt tokens found in the prefix cache.
    pub cached_tokens: u64,
}

/// Plays `run` to as many engines of `profile` as there are `ranks`.
pub fn replay(run: &Run, profile: &Profile, ranks: usize) -> Replayed {
    let mut engines: Vec<Engine> = (0..ranks).map(|rank| Engine::new(profile.clone(), SEED + rank as u64)).collect();
    let contents = contents(&run.requests, profile.block_tokens);
    let mut timings: Vec<Timing> =
        run.requests.iter().map(|r| Timing { arrival: r.timing.arrival, ..Timing::default() }).collect();
    let mut choice = RankChoice::new(ranks);
    let mut ticks = Vec::with_capacity(run.ticks.len());
    let mut arrivals = (0..run.requests.len()).peekable();
    loop {
        let tick_at = run.ticks.get(ticks.len()).map(|tick| moment(tick.at));
        let arrival_at = arrivals.peek().map(|index| moment(run.requests[*index].timing.arrival));
        let step_at = engines.iter().filter_map(Engine::next_step_at).min();
        let Some(now) = [tick_at, arrival_at, step_at].into_iter().flatten().min() else { break };
        if step_at == Some(now) {
            engines.iter_mut().for_each(|engine| note(engine.step(now), &mut timings));
        } else if arrival_at == Some(now) {
            let index = arrivals.next().expect("an arrival was just looked at");
            let rank = choice.choose(now, |rank| engines[rank].live(), |rank| RankLoad::of(&engines[rank]));
            // A request that the engine would not take never ends, which the figures then show.
            let _ = engines[rank].submit(request(index, &run.requests[index], contents[index].clone()), now);
        } else {
            ticks.push(gauges(&engines, now));
        }
    }
    let counters = || engines.iter().map(|engine| engine.stats().counters);
    Replayed {
        timings,
        ticks,
        preemptions: counters().map(|counters| counters.preemptions).sum(),
        cached_tokens: counters().map(|counters| counters.prompt_tokens_cached).sum(),
    }
}

fn note(events: &[engine::Event], timings: &mut [Timing]) {
    for event in events {
        let timing = &mut timings[event.id.0 as usize];
        let at = event.at.since_origin().as_secs_f64();
        match event.kind {
            EventKind::FirstToken => timing.first_token = at,
            EventKind::Finished(_) => timing.last_token = at,
            EventKind::Scheduled { .. } | EventKind::Tokens(_) | EventKind::Preempted => {}
        }
    }
}

fn gauges(engines: &[Engine], now: Moment) -> Tick {
    let sum = |get: fn(&engine::Gauges) -> f64| engines.iter().map(|engine| get(&engine.stats().gauges)).sum::<f64>();
    Tick {
        at: now.since_origin().as_secs_f64(),
        running: sum(|gauges| f64::from(gauges.running)),
        waiting: sum(|gauges| f64::from(gauges.waiting)),
        kv_usage: sum(|gauges| gauges.kv_usage) / engines.len() as f64,
    }
}

fn request(index: usize, measured: &Measured, blocks: Vec<BlockHash>) -> Request {
    Request {
        id: RequestId(index as u64),
        blocks,
        prompt_tokens: measured.prompt_tokens,
        output_tokens: measured.output_tokens,
        max_tokens: Some(measured.output_tokens),
        adapter: None,
        priority: 0,
    }
}

/// The blocks of each request's prompt and output, those of a shared prefix being the earlier request's own.
fn contents(requests: &[Measured], block_tokens: u32) -> Vec<Vec<BlockHash>> {
    let total = |request: &Measured| request.prompt_tokens + request.output_tokens;
    let mut all: Vec<Vec<BlockHash>> = Vec::with_capacity(requests.len());
    for (index, request) in requests.iter().enumerate() {
        let shared = (request.shared_tokens / block_tokens) as usize;
        let donors =
            requests[..index].iter().enumerate().filter(|(_, earlier)| total(earlier) >= request.shared_tokens);
        let donor = donors.min_by_key(|(_, earlier)| total(earlier)).filter(|_| shared > 0).map(|(donor, _)| donor);
        let own = |block: u64| BlockHash(index as u64 * BLOCKS_PER_REQUEST_MAX + block);
        let mut blocks: Vec<BlockHash> = (0..u64::from(total(request) / block_tokens)).map(own).collect();
        if let Some(donor) = donor {
            blocks[..shared].copy_from_slice(&all[donor][..shared]);
        }
        all.push(blocks);
    }
    all
}

fn moment(seconds: f64) -> Moment {
    Moment::from_origin(Duration::from_secs_f64(seconds.max(0.0)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::validate::{
        hardware::Scale,
        measured::tests::{LENGTHS, REQUESTS, TICKS},
        setup::SETUPS,
    };

    fn run() -> Run {
        Run::parse(REQUESTS, TICKS, LENGTHS).unwrap()
    }

    #[test]
    fn every_request_is_played_at_its_moment_and_ends() {
        let (run, profile) = (run(), SETUPS[0].profile(&Scale::ONE));
        let replayed = replay(&run, &profile, 1);
        for (timing, request) in replayed.timings.iter().zip(&run.requests) {
            assert!((timing.arrival - request.timing.arrival).abs() < 1e-9);
            assert!(timing.first_token > timing.arrival && timing.last_token > timing.first_token, "{timing:?}");
        }
        assert_eq!(replayed.ticks.len(), 1);
        assert!((replayed.ticks[0].at - 1.0).abs() < 1e-9);
    }

    #[test]
    fn what_requests_share_is_found_in_the_cache() {
        let (run, profile) = (run(), SETUPS[0].profile(&Scale::ONE));
        assert_eq!(replay(&run, &profile, 1).cached_tokens, 32);
        let strangers =
            Run { requests: run.requests.iter().map(|r| Measured { shared_tokens: 0, ..*r }).collect(), ..run };
        assert_eq!(replay(&strangers, &profile, 1).cached_tokens, 0);
    }

    #[test]
    fn the_same_run_gives_the_same_figures() {
        let (run, profile) = (run(), SETUPS[3].profile(&Scale::ONE));
        assert_eq!(replay(&run, &profile, 2).timings, replay(&run, &profile, 2).timings);
    }
}
