//! The pool in front of small simulated engines: what the rules come to over time.

use std::collections::VecDeque;

use super::*;

const TICK: Duration = Duration::from_millis(10);

/// Runs so many at once, each for a second, and keeps the rest waiting. The first token comes when a request begins.
#[derive(Default)]
struct Engine {
    running: Vec<(Permit, Moment, Moment)>,
    waiting: VecDeque<(Permit, Moment)>,
    slots: usize,
}

impl Engine {
    fn tick(&mut self, rig: &mut Rig, latencies: &mut Vec<Duration>) {
        let now = rig.now;
        while let Some(done) = self.running.iter().position(|(_, ends, _)| *ends <= now) {
            let (permit, _, sent) = self.running.swap_remove(done);
            latencies.push(now.since(sent));
            rig.complete(permit);
        }
        while self.running.len() < self.slots
            && let Some((permit, sent)) = self.waiting.pop_front()
        {
            rig.pool.answered(&permit, now);
            rig.pool.prefilled(&permit, now);
            self.running.push((permit, now + ms(1_000), sent));
        }
    }

    fn page(&self) -> Page {
        Page { waiting: self.waiting.len() as f64, running: self.running.len() as f64, ..Page::default() }
    }
}

/// 200 calls that share an 8,000-token prefix, 40 in parallel, on four engines.
fn hot_prefix(slots: usize, reports: bool) -> (Vec<usize>, Vec<Duration>, Rig) {
    let settings = Settings { full: crate::Full { waiting: 1_000, kv_cache: 0.8 }, ..Settings::default() };
    let mut rig = Rig::unread(4, settings);
    let mut engines: Vec<_> = (0..4).map(|_| Engine { slots, ..Engine::default() }).collect();
    let shared = prompt(1, 125);
    let (mut picks, mut latencies, mut tick) = (Vec::new(), Vec::new(), 0u64);
    while latencies.len() < 200 {
        if reports && tick % 20 == 0 {
            for (number, engine) in engines.iter().enumerate() {
                rig.report(number, engine.page());
            }
        }
        while picks.len() < 200 && picks.len() - latencies.len() < 40 {
            let (to, permit) = rig.send(&continued(&shared, picks.len() as u64, 1));
            engines[to].waiting.push_back((permit, rig.now));
            picks.push(to);
        }
        for engine in &mut engines {
            engine.tick(&mut rig, &mut latencies);
        }
        rig.pass(TICK);
        tick += 1;
    }
    (picks, latencies, rig)
}

#[test]
fn e03_a_hot_prefix_spills_over_and_low_load_returns_to_affinity() {
    for (slots, reports) in [(8, true), (12, true), (12, false)] {
        let (picks, mut latencies, mut rig) = hot_prefix(slots, reports);
        let counts = counts(&picks, 4);
        let case = format!("{slots} slots, reports: {reports}: {counts:?}");
        assert!(*counts.iter().max().unwrap() < 120, "the warm endpoint has less than 60 %: {case}");
        assert!(counts.iter().filter(|&&c| c > 0).count() >= 2, "more than one is warm: {case}");
        latencies.sort();
        assert!(latencies[197] < ms(3_000), "{case}: {:?}", latencies[197]);

        let shared = prompt(1, 125);
        let mut calm = Vec::new();
        for i in 0..100 {
            rig.pass(ms(200));
            rig.report_all(&[Page::default(); 4]);
            let (to, permit) = rig.send(&continued(&shared, 1_000 + i, 1));
            rig.answer_and_complete(permit);
            calm.push(to);
        }
        let warm = (0..4).map(|n| calm.iter().filter(|&&c| c == n).count()).max().unwrap();
        assert!(warm > 90, "{case}: then {warm} of 100");
    }
}

#[test]
fn faster_engines_get_more_without_being_told() {
    let mut rig = Rig::idle(2);
    let mut engines = [Engine { slots: 12, ..Engine::default() }, Engine { slots: 4, ..Engine::default() }];
    let mut latencies = Vec::new();
    let mut picks = Vec::new();
    for tick in 0..3_000u64 {
        if tick % 20 == 0 {
            for (number, engine) in engines.iter().enumerate() {
                rig.report(number, engine.page());
            }
        }
        // 14 a second, where 16 can be served.
        if tick % 7 == 0 {
            let prefix = rig.new_prompt(3);
            let (to, permit) = rig.send(&prefix);
            engines[to].waiting.push_back((permit, rig.now));
            picks.push(to);
        }
        for engine in &mut engines {
            engine.tick(&mut rig, &mut latencies);
        }
        rig.pass(TICK);
    }
    let counts = counts(&picks, 2);
    assert!(counts[0] as f64 > 2.0 * counts[1] as f64, "{counts:?}");
    latencies.sort();
    assert!(latencies[latencies.len() * 99 / 100] < ms(2_500), "{:?}", latencies[latencies.len() * 99 / 100]);
}
