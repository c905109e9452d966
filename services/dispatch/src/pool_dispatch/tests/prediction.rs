//! Predicted times to first token, on simulated engines of every configuration there is.

use std::{cmp::Reverse, collections::BinaryHeap};

use engine::{Engine, EventKind, Profile};

use super::*;

/// Between gateway and engine, one way.
const NETWORK: Duration = Duration::from_micros(300);

/// From look to look.
const LOOK: Duration = Duration::from_millis(200);

/// A request, with what was predicted for it.
struct Call {
    permit: Permit,
    to: usize,
    dispatched_at: Moment,
    predicted_s: f64,
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Happening {
    Look(usize),
    Arrives,
    Reaches(usize, u64, u32),
    Steps(usize),
    First(u64),
    Ends(u64),
}

/// Numbers that look like chance, 0–1.
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Lognormal, about as conversations are: the median, and a tail.
    fn tokens(&mut self, median: f64, max: f64) -> u32 {
        let normal = (0..12).map(|_| self.next()).sum::<f64>() - 6.0;
        (median * (0.9 * normal).exp()).clamp(4.0, max) as u32
    }
}

struct World {
    rig: Rig,
    engines: Vec<Engine>,
    agenda: BinaryHeap<Reverse<(Moment, u64, Happening)>>,
    calls: BTreeMap<u64, Call>,
    chance: Chance,
    serial: u64,
    /// Endpoint, predicted and actual seconds, in the order of first tokens.
    seen: Vec<(usize, f64, f64)>,
}

impl World {
    fn new(profiles: &[&str], weights: Weights) -> Self {
        let settings = Settings { weights, flow_control: crate::FlowControl::Off, ..Settings::default() };
        let engines = profiles.iter().enumerate();
        let engines = engines.map(|(seed, name)| Engine::new(Profile::named(name).unwrap(), seed as u64)).collect();
        let mut world = Self {
            rig: Rig::unread(profiles.len(), settings),
            engines,
            agenda: BinaryHeap::new(),
            calls: BTreeMap::new(),
            chance: Chance(7),
            serial: 0,
            seen: Vec::new(),
        };
        for endpoint in 0..profiles.len() {
            world.put(ms(endpoint as u64), Happening::Look(endpoint));
        }
        world
    }

    fn put(&mut self, after: Duration, what: Happening) {
        self.serial += 1;
        self.agenda.push(Reverse((self.rig.now + after, self.serial, what)));
    }

    /// So many requests, one every `gap_s` on average.
    fn serve(&mut self, requests: usize, gap_s: f64) {
        self.put(LOOK, Happening::Arrives);
        let mut left = requests;
        while let Some(Reverse((at, _, what))) = self.agenda.pop() {
            self.rig.now = at;
            if what == Happening::Arrives {
                if left == 0 {
                    return;
                }
                left -= 1;
                self.send();
                let gap = -gap_s * (1.0 - self.chance.next()).ln();
                self.put(Duration::from_secs_f64(gap), Happening::Arrives);
            } else {
                self.happens(what);
            }
        }
    }

    fn send(&mut self) {
        let prompt_tokens = self.chance.tokens(1_000.0, 4_000.0);
        let prefix = self.rig.new_prompt((prompt_tokens / crate::BLOCK_TOKENS).max(1) as usize);
        let request = Request { prefix: &prefix, prompt_tokens, ..Request::default() };
        let dispatched =
            self.rig.pool.admit(&request, &Ask::default(), self.rig.now, &mut self.rig.decision, &mut self.rig.freed);
        let Admitted::Placed(dispatched) = dispatched else { panic!("nobody waits") };
        let to = dispatched.ranked[0].get() as usize;
        let raw = |scorer| crate::Scorer::ALL.iter().position(|&s| s == scorer).unwrap();
        let predicted_s = self.rig.decision.candidates[0].scores[raw(crate::Scorer::PredictedLatency)].raw;
        let number = self.serial;
        let call = Call { permit: dispatched.permit, to, dispatched_at: self.rig.now, predicted_s };
        self.calls.insert(number, call);
        self.put(NETWORK, Happening::Reaches(to, number, prompt_tokens));
    }

    fn happens(&mut self, what: Happening) {
        let now = self.rig.now;
        match what {
            Happening::Arrives => {}
            Happening::Look(endpoint) => {
                let gauges = &self.engines[endpoint].stats().gauges;
                let cache =
                    CacheShape { block_tokens: 16, blocks: self.engines[endpoint].profile().usable_blocks().into() };
                let page = Page {
                    waiting: gauges.waiting.into(),
                    running: gauges.running.into(),
                    kv_cache: gauges.kv_usage,
                    ranks: 1,
                    cache: Some(cache),
                };
                self.rig.report(endpoint, page);
                self.put(LOOK, Happening::Look(endpoint));
            }
            Happening::Reaches(endpoint, number, prompt_tokens) => {
                let output_tokens = self.chance.tokens(150.0, 600.0);
                let request = engine::Request {
                    id: engine::RequestId(number),
                    blocks: Vec::new(),
                    prompt_tokens,
                    output_tokens,
                    max_tokens: None,
                    adapter: None,
                    priority: 0,
                };
                self.engines[endpoint].submit(request, now).unwrap();
                self.plan(endpoint);
            }
            Happening::Steps(endpoint) => {
                for event in self.engines[endpoint].step(now).to_vec() {
                    match event.kind {
                        EventKind::FirstToken => self.put(NETWORK, Happening::First(event.id.0)),
                        EventKind::Finished(_) => self.put(NETWORK, Happening::Ends(event.id.0)),
                        EventKind::Scheduled { .. } | EventKind::Tokens(_) | EventKind::Preempted => {}
                    }
                }
                self.plan(endpoint);
            }
            Happening::First(number) => {
                let call = &self.calls[&number];
                self.rig.pool.answered(&call.permit, now);
                self.rig.pool.prefilled(&call.permit, now);
                self.seen.push((call.to, call.predicted_s, now.since(call.dispatched_at).as_secs_f64()));
            }
            Happening::Ends(number) => {
                let call = self.calls.remove(&number).unwrap();
                self.rig.pool.complete(call.permit, now);
            }
        }
    }

    fn plan(&mut self, endpoint: usize) {
        if let Some(at) = self.engines[endpoint].next_step_at() {
            self.put(at.max(self.rig.now).since(self.rig.now), Happening::Steps(endpoint));
        }
    }

    /// Mean |predicted − actual| ÷ mean actual over the later half of what was seen.
    fn error(&self) -> f64 {
        let steady = &self.seen[self.seen.len() / 2..];
        let missed: f64 = steady.iter().map(|(_, predicted, actual)| (predicted - actual).abs()).sum();
        missed / steady.iter().map(|(_, _, actual)| actual).sum::<f64>()
    }
}

/// Two engines of each configuration at 70 % of what they can serve of such requests (measured with each by itself).
#[test]
fn predictions_are_right_on_every_configuration() {
    let per_s = [
        ("llama-3.1-8b-a10g", 1.6),
        ("llama-3.1-8b-h100", 28.7),
        ("qwen3-32b-2xh100", 14.4),
        ("qwen3-32b-4xh100", 23.4),
        ("qwen3-32b-4xa10g", 0.93),
        ("qwen3-32b-8xa10g", 0.88),
        ("llama-3.1-70b-4xh100", 13.1),
        ("llama-3.1-70b-8xh100", 19.5),
        ("qwen3-235b-a22b-fp8-8xh100", 16.1),
    ];
    assert_eq!(per_s.map(|(name, _)| name).as_slice(), Profile::names().as_slice());
    for (name, per_s) in per_s {
        let mut world = World::new(&[name, name], Weights::LLM_D);
        world.serve(500, 1.0 / per_s);
        let error = world.error();
        assert!(error <= 0.2, "{name}: {error:.3}");
        let view = world.rig.pool.snapshot(world.rig.now);
        let known = view.endpoints.iter().all(|endpoint| endpoint.latency.confidence > 0.7);
        assert!(known, "{name}: {:?}", view.endpoints.iter().map(|endpoint| endpoint.latency).collect::<Vec<_>>());
    }
}

/// Nobody says which is which, and at this load both would be idle nearly always.
#[test]
fn a_slower_gpu_is_avoided_while_the_faster_one_has_room() {
    let mut world = World::new(&["llama-3.1-8b-a10g", "llama-3.1-8b-h100"], Weights::LLM_D);
    world.serve(600, 0.2);
    let slow = |seen: &[(usize, f64, f64)]| seen.iter().filter(|(to, ..)| *to == 0).count();
    assert!(slow(&world.seen) < 30, "{}", slow(&world.seen));
    assert!(slow(&world.seen[300..]) <= 5, "found out for good: {}", slow(&world.seen[300..]));
    let worst = world.seen[300..].iter().map(|(_, _, actual)| *actual).fold(0.0, f64::max);
    let mut plain = World::new(&["llama-3.1-8b-a10g", "llama-3.1-8b-h100"], Weights::PLAIN);
    plain.serve(600, 0.2);
    assert!(slow(&plain.seen[300..]) > 10, "which the plain weights do not see: {}", slow(&plain.seen[300..]));
    assert!(worst < 0.5, "{worst}");
}
