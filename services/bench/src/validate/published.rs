//! Two published measurements of whole pools whose requests are not to be had, only how they were made: what a precise
//! prefix router got out of pods with a long prefix shared by groups of requests.
//!
//! Each request is sent to the pod that has its group's prefix, which is what such a router does, and arrivals are Poisson.
//! How many groups there were is not told but by the name of the test, as a share of the pool's KV memory that prefixes
//! and five questions of each group fill (which gives the second test the 150 groups it is known to have had). The gateway's own time (prompts were tokenised twice) is in the published TTFT and not in this one.

use std::time::Duration;

use engine::{BlockHash, Engine, EventKind, Profile, Request, RequestId};
use fastrand::Rng;
use pool::Moment;
use serde::Serialize;

/// One pool and what was measured on it.
struct Published {
    title: &'static str,
    profile: &'static str,
    pods: usize,
    prefix_tokens: u32,
    question_tokens: u32,
    output_tokens: u32,
    /// Share of the pool's KV memory that all prefixes and questions together fill.
    working_set: f64,
    /// Requests per second on the whole pool, ITL in ms, TTFT in ms where it was published.
    rows: &'static [(f64, f64, Option<f64>)],
}

const PUBLISHED: &[Published] = &[
    Published {
        title: "4 pods, Llama-3.1-70B on 4 H100 each, 8k prefix + 1k question + 1k output",
        profile: "llama-3.1-70b-4xh100",
        pods: 4,
        prefix_tokens: 8_000,
        question_tokens: 1_000,
        output_tokens: 1_000,
        working_set: 0.37,
        rows: &[
            (3.0, 13.0, Some(144.0)),
            (5.0, 15.0, Some(188.0)),
            (8.0, 18.0, Some(199.0)),
            (10.0, 20.0, Some(202.0)),
            (12.0, 21.0, Some(202.0)),
            (15.0, 24.0, Some(210.0)),
        ],
    },
    Published {
        title: "8 pods, Qwen3-32B on 2 H100 each, 6k prefix + 1.2k question + 1k output",
        profile: "qwen3-32b-2xh100",
        pods: 8,
        prefix_tokens: 6_000,
        question_tokens: 1_200,
        output_tokens: 1_000,
        working_set: 0.73,
        rows: &[(3.0, 11.0, None), (10.0, 13.0, None), (15.0, 15.0, None), (20.0, 21.0, None), (22.0, 20.0, None)],
    },
];

/// One row, simulated beside what was published.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    pub pool: &'static str,
    pub requests_per_second: f64,
    pub itl_ms: f64,
    pub published_itl_ms: f64,
    pub ttft_ms: f64,
    pub published_ttft_ms: Option<f64>,
}

/// Requests before the ones that count, and those: the pool is then as full as it gets.
const WARM_UP_S: f64 = 60.0;
const COUNTED_S: f64 = 120.0;
const QUESTIONS_PER_GROUP: u32 = 5;
const SEED: u64 = 37;

/// All rows.
pub fn rows() -> anyhow::Result<Vec<Row>> {
    let mut all = Vec::new();
    for published in PUBLISHED {
        let profile = Profile::named(published.profile)?;
        for &(requests_per_second, published_itl_ms, published_ttft_ms) in published.rows {
            let (itl_ms, ttft_ms) = measure(published, &profile, requests_per_second);
            let pool = published.title;
            all.push(Row { pool, requests_per_second, itl_ms, published_itl_ms, ttft_ms, published_ttft_ms });
        }
    }
    Ok(all)
}

/// Mean ITL and TTFT, ms. Pods do not touch each other: one is simulated with its share of requests and groups.
fn measure(published: &Published, profile: &Profile, requests_per_second: f64) -> (f64, f64) {
    let mut rng = Rng::with_seed(SEED);
    let pod_tokens = f64::from(profile.kv_blocks * profile.block_tokens);
    let group_tokens = f64::from(published.prefix_tokens + QUESTIONS_PER_GROUP * published.question_tokens);
    let groups = (pod_tokens * published.working_set / group_tokens).round().max(1.0) as u64;
    let mut engine = Engine::new(profile.clone(), SEED);
    // Every prefix is there before the first request that counts.
    for group in 0..groups {
        let _ = engine.submit(request(published, profile, group, group, 1), Moment::ORIGIN);
    }
    while let Some(at) = engine.next_step_at() {
        engine.step(at);
    }
    let start = profile_time(&engine);
    let mut tally = Tally::default();
    let mut at = 0.0;
    let mut id = groups;
    while at < WARM_UP_S + COUNTED_S {
        at += -(1.0 - rng.f64()).ln() * published.pods as f64 / requests_per_second;
        let now = start + Duration::from_secs_f64(at);
        while let Some(step) = engine.next_step_at().filter(|step| *step <= now) {
            tally.note(engine.step(step), start);
        }
        let group = rng.u64(0..groups);
        if engine.submit(request(published, profile, id, group, published.output_tokens), now).is_ok() {
            tally.arrived.push(now);
        }
        tally.base = groups;
        id += 1;
    }
    (tally.itl_ms(), tally.ttft_ms())
}

/// Well after the prefixes were computed.
fn profile_time(engine: &Engine) -> Moment {
    let steps = engine.stats().counters.steps;
    Moment::ORIGIN + Duration::from_secs(60 + steps)
}

fn request(published: &Published, profile: &Profile, id: u64, group: u64, output_tokens: u32) -> Request {
    let prefix = u64::from(published.prefix_tokens / profile.block_tokens);
    Request {
        id: RequestId(id),
        blocks: (0..prefix).map(|block| BlockHash(group << 32 | block)).collect(),
        prompt_tokens: published.prefix_tokens + published.question_tokens,
        output_tokens,
        max_tokens: None,
        adapter: None,
        priority: 0,
    }
}

/// First tokens and the gaps after them, of requests that came after the warm-up.
#[derive(Default)]
struct Tally {
    base: u64,
    arrived: Vec<Moment>,
    last: std::collections::HashMap<u64, Moment>,
    ttft: (f64, u64),
    itl: (f64, u64),
}

impl Tally {
    fn note(&mut self, events: &[engine::Event], start: Moment) {
        let counts = start + Duration::from_secs_f64(WARM_UP_S);
        for event in events {
            let add = |sum: &mut (f64, u64), from: Moment| {
                if from >= counts {
                    *sum = (sum.0 + event.at.since(from).as_secs_f64() * 1e3, sum.1 + 1);
                }
            };
            match event.kind {
                EventKind::FirstToken => {
                    add(&mut self.ttft, self.arrived[(event.id.0 - self.base) as usize]);
                    self.last.insert(event.id.0, event.at);
                }
                EventKind::Tokens(_) => {
                    if let Some(last) = self.last.insert(event.id.0, event.at) {
                        add(&mut self.itl, last);
                    }
                }
                EventKind::Finished(_) => {
                    self.last.remove(&event.id.0);
                }
                EventKind::Scheduled { .. } | EventKind::Preempted => {}
            }
        }
    }

    fn itl_ms(&self) -> f64 {
        self.itl.0 / self.itl.1.max(1) as f64
    }

    fn ttft_ms(&self) -> f64 {
        self.ttft.0 / self.ttft.1.max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_requests_make_every_token_slower() {
        let profile = Profile::named(PUBLISHED[0].profile).unwrap();
        let few = Published { output_tokens: 50, ..Published { rows: &[], ..copy(&PUBLISHED[0]) } };
        let [(slow_itl, slow_ttft), (fast_itl, fast_ttft)] = [20.0, 2.0].map(|rate| measure(&few, &profile, rate));
        assert!(fast_itl > 11.0 && slow_itl > fast_itl, "{fast_itl} {slow_itl}");
        // A thousand tokens of prefill, not nine: the prefix is in the cache.
        assert!(fast_ttft > 40.0 && fast_ttft < 160.0 && slow_ttft > fast_ttft, "{fast_ttft} {slow_ttft}");
    }

    fn copy(published: &Published) -> Published {
        Published { ..*published }
    }
}
