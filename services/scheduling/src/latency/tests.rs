//! What can be said of the model without an engine: it is bounded, monotone, finds prices and pace, and keeps its head.

use proptest::prelude::*;

use super::*;

/// An engine whose first tokens take exactly what it says, times a jitter.
#[derive(Clone, Copy)]
struct Truth {
    base_s: f64,
    token_us: f64,
    running_s: f64,
}

impl Truth {
    const FAST: Self = Self { base_s: 0.012, token_us: 20.0, running_s: 0.000_3 };

    fn slower(self, factor: f64) -> Self {
        Self { base_s: self.base_s, token_us: self.token_us * factor, running_s: self.running_s * factor }
    }

    fn ttft(self, work: &Work, jitter: f64) -> Duration {
        let tokens_s = (work.uncached_tokens + work.ahead_tokens) * self.token_us / 1e6;
        Duration::from_secs_f64((self.base_s + tokens_s + work.running * self.running_s) * (1.0 + jitter))
    }
}

/// Numbers that look like chance, 0–1.
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }

    fn work(&mut self) -> Work {
        Work {
            cached_tokens: self.next() * 500.0,
            uncached_tokens: 50.0 + self.next() * 4_000.0,
            ahead_tokens: if self.next() < 0.5 { 0.0 } else { self.next() * 8_000.0 },
            running: (self.next() * 40.0).floor(),
            overflow_tokens: 0.0,
        }
    }
}

struct Rig {
    chance: Chance,
    pool: PoolLatency,
}

impl Rig {
    fn new(seed: u64) -> Self {
        Self { chance: Chance(seed), pool: PoolLatency::default() }
    }

    fn feed(&mut self, endpoint: &mut EndpointLatency, truth: Truth, samples: usize) {
        for _ in 0..samples {
            let work = self.chance.work();
            let ttft = truth.ttft(&work, 0.2 * (self.chance.next() - 0.5));
            self.sample(endpoint, &work, ttft);
        }
    }

    fn sample(&mut self, endpoint: &mut EndpointLatency, work: &Work, ttft: Duration) {
        let features = Features::of(work);
        endpoint.learn(&features, ttft, &self.pool);
        self.pool.learn(&features, ttft);
    }

    /// Mean |predicted − actual| ÷ mean actual.
    fn error(&mut self, endpoint: &EndpointLatency, truth: Truth) -> f64 {
        let (mut missed, mut actual) = (0.0, 0.0);
        for _ in 0..500 {
            let work = self.chance.work();
            let ttft_s = truth.ttft(&work, 0.0).as_secs_f64();
            missed += (endpoint.predict_s(&Features::of(&work)) - ttft_s).abs();
            actual += ttft_s;
        }
        missed / actual
    }
}

#[test]
fn prices_are_found() {
    let mut rig = Rig::new(1);
    let mut endpoint = EndpointLatency::new(&rig.pool);
    assert_eq!(endpoint.confidence(), 0.0);
    assert_eq!(endpoint.error(), None);
    rig.feed(&mut endpoint, Truth::FAST, 300);
    let error = rig.error(&endpoint, Truth::FAST);
    assert!(error < 0.03, "{error}");
    assert!(endpoint.confidence() > 0.85, "{}", endpoint.confidence());
    assert!((0.02..0.12).contains(&endpoint.error().unwrap()), "the jitter's: {:?}", endpoint.error());
}

/// With nothing but first tokens to go by, after a handful of them.
#[test]
fn a_slower_gpu_is_found_out() {
    let mut rig = Rig::new(2);
    let mut fast = EndpointLatency::new(&rig.pool);
    rig.feed(&mut fast, Truth::FAST, 300);
    let slow_truth = Truth::FAST.slower(16.0);
    let mut slow = EndpointLatency::new(&rig.pool);
    let typical = Features::of(&Work { uncached_tokens: 1_000.0, ..Work::default() });
    assert_eq!(slow.predict_s(&typical), rig.pool.learner.predict_s(&typical), "taken for one like the others");
    rig.feed(&mut slow, slow_truth, 5);
    let (slow_s, fast_s) = (slow.predict_s(&typical), fast.predict_s(&typical));
    assert!(slow_s > 3.0 * fast_s, "{slow_s} {fast_s}");
    rig.feed(&mut slow, slow_truth, 100);
    let error = rig.error(&slow, slow_truth);
    assert!(error < 0.1, "{error}");
    let error = rig.error(&fast, Truth::FAST);
    assert!(error < 0.05, "and the fast one is known as well as before: {error}");
}

#[test]
fn a_new_endpoint_begins_with_what_others_taught() {
    let mut rig = Rig::new(3);
    let mut old = EndpointLatency::new(&rig.pool);
    rig.feed(&mut old, Truth::FAST, 300);
    let new = EndpointLatency::new(&rig.pool);
    let error = rig.error(&new, Truth::FAST);
    assert!(error < 0.05, "{error}");
    assert_eq!(new.confidence(), 0.0, "which it cannot know to be true");
}

#[test]
fn outliers_move_little() {
    let mut rig = Rig::new(4);
    let mut endpoint = EndpointLatency::new(&rig.pool);
    rig.feed(&mut endpoint, Truth::FAST, 300);
    let typical = Work { uncached_tokens: 1_000.0, ..Work::default() };
    let before = endpoint.predict_s(&Features::of(&typical));
    rig.sample(&mut endpoint, &typical, Duration::from_secs(60));
    let after = endpoint.predict_s(&Features::of(&typical));
    assert!((after / before - 1.0).abs() < 0.1, "one of 60 s: {before} {after}");
    for _ in 0..10 {
        rig.feed(&mut endpoint, Truth::FAST, 19);
        rig.sample(&mut endpoint, &typical, Duration::from_secs(60));
    }
    let error = rig.error(&endpoint, Truth::FAST);
    assert!(error < 0.15, "one in twenty: {error}");
}

#[test]
fn a_step_is_followed_in_both_directions() {
    let mut rig = Rig::new(5);
    let mut endpoint = EndpointLatency::new(&rig.pool);
    for truth in [Truth::FAST, Truth::FAST.slower(8.0), Truth::FAST] {
        rig.feed(&mut endpoint, truth, 400);
        let error = rig.error(&endpoint, truth);
        assert!(error < 0.1, "{error}");
    }
    rig.feed(&mut endpoint, Truth::FAST.slower(8.0), 60);
    let error = rig.error(&endpoint, Truth::FAST.slower(8.0));
    assert!(error < 0.35, "most of it within 60 samples: {error}");
}

#[test]
fn what_is_not_seen_any_more_fades_to_what_the_pool_knows() {
    let mut rig = Rig::new(6);
    let (mut fast, mut slow) = (EndpointLatency::new(&rig.pool), EndpointLatency::new(&rig.pool));
    for _ in 0..100 {
        rig.feed(&mut fast, Truth::FAST, 10);
        rig.feed(&mut slow, Truth::FAST.slower(16.0), 1);
    }
    let typical = Features::of(&Work { uncached_tokens: 1_000.0, ..Work::default() });
    let known_s = slow.predict_s(&typical);
    slow.fade(Duration::from_secs(60), &rig.pool);
    assert!((slow.predict_s(&typical) / known_s - 1.0).abs() < 0.3, "a minute is nothing");
    let confident = slow.confidence();
    for _ in 0..240 {
        slow.fade(Duration::from_secs(5), &rig.pool);
    }
    let pools_s = rig.pool.learner.predict_s(&typical);
    assert!((slow.predict_s(&typical) / pools_s - 1.0).abs() < 0.5, "{} {pools_s}", slow.predict_s(&typical));
    assert!(slow.confidence() < confident / 10.0);
}

#[test]
fn a_restart_keeps_a_little() {
    let mut rig = Rig::new(7);
    let mut endpoint = EndpointLatency::new(&rig.pool);
    rig.feed(&mut endpoint, Truth::FAST, 300);
    let confident = endpoint.confidence();
    endpoint.restarted(&rig.pool);
    assert!((0.1..confident).contains(&endpoint.confidence()));
    let slower = Truth::FAST.slower(4.0);
    rig.feed(&mut endpoint, slower, 60);
    let error = rig.error(&endpoint, slower);
    assert!(error < 0.15, "{error}");
}

fn any_work() -> impl Strategy<Value = Work> {
    let tokens = || prop_oneof![Just(0.0), Just(f64::NAN), 0.0..1e6, -1e3..1e12];
    (tokens(), tokens(), tokens(), tokens(), tokens()).prop_map(
        |(cached_tokens, uncached_tokens, ahead_tokens, running, overflow_tokens)| Work {
            cached_tokens,
            uncached_tokens,
            ahead_tokens,
            running,
            overflow_tokens,
        },
    )
}

#[derive(Clone, Debug)]
enum Deed {
    Sample(Work, Duration),
    OfAnother(Work, Duration),
    Fades(Duration),
    Restarts,
}

fn any_deed() -> impl Strategy<Value = Deed> {
    let time = || {
        let us = prop_oneof![Just(0), 1..1_000_000u64, Just(u64::MAX)];
        us.prop_map(Duration::from_micros)
    };
    prop_oneof![
        6 => (any_work(), time()).prop_map(|(work, time)| Deed::Sample(work, time)),
        3 => (any_work(), time()).prop_map(|(work, time)| Deed::OfAnother(work, time)),
        1 => time().prop_map(Deed::Fades),
        1 => Just(Deed::Restarts),
    ]
}

proptest! {
    /// Whatever it is fed, it predicts something between its bounds, and never less for more work ahead.
    #[test]
    fn predictions_are_bounded_and_grow_with_the_work(
        deeds in prop::collection::vec(any_deed(), 0..60),
        asked in any_work(),
        more in 0.0..1e6,
    ) {
        let mut pool = PoolLatency::default();
        let mut endpoint = EndpointLatency::new(&pool);
        for deed in deeds {
            match deed {
                Deed::Sample(work, time) => {
                    endpoint.learn(&Features::of(&work), time, &pool);
                    pool.learn(&Features::of(&work), time);
                }
                Deed::OfAnother(work, time) => pool.learn(&Features::of(&work), time),
                Deed::Fades(time) => endpoint.fade(time, &pool),
                Deed::Restarts => endpoint.restarted(&pool),
            }
            let predicted_s = endpoint.predict_s(&Features::of(&asked));
            prop_assert!(TTFT_S.contains(&predicted_s), "{predicted_s} {endpoint:?}");
            let longer = [
                Work { ahead_tokens: asked.ahead_tokens.max(0.0) + more, ..asked },
                Work { uncached_tokens: asked.uncached_tokens.max(0.0) + more, ..asked },
                Work { overflow_tokens: asked.overflow_tokens.max(0.0) + more, ..asked },
            ];
            for longer in longer {
                prop_assert!(endpoint.predict_s(&Features::of(&longer)) >= predicted_s);
            }
            prop_assert!((0.0..=1.0).contains(&endpoint.confidence()));
            prop_assert!((0.0..=1.0).contains(&pool.confidence()));
            prop_assert!(endpoint.usual_error().is_finite() && endpoint.usual_error() > 0.0);
            prop_assert!(endpoint.error().is_none_or(|error| error.is_finite() && error >= 0.0));
        }
    }
}
