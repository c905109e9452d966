//! The queue beside a plain list that says the same in the slowest way.

use std::collections::{BTreeMap, VecDeque};

use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
enum Step {
    Join {
        flow: u64,
        priority: i32,
        bytes: u64,
        choice: Choice,
        deadline_ms: Option<u64>,
    },
    Leave(usize),
    /// Room for those without wishes, and for those with wishes whose name divides by this.
    Next {
        band: usize,
        room: bool,
        every: u32,
    },
    Expire,
    Pass(u64),
    Reorder(bool),
}

fn step() -> impl Strategy<Value = Step> {
    let choice = prop_oneof![3 => Just(Choice::Any), 1 => Just(Choice::Some)];
    let join = (0u64..5, -2i32..3, 0u64..60, choice, prop::option::of(0u64..5_000));
    prop_oneof![
        5 => join.prop_map(|(flow, priority, bytes, choice, deadline_ms)| {
            Step::Join { flow, priority, bytes, choice, deadline_ms }
        }),
        1 => (0usize..100).prop_map(Step::Leave),
        3 => (0usize..3, prop::bool::weighted(0.8), 1u32..4).prop_map(|(band, room, every)| {
            Step::Next { band, room, every }
        }),
        1 => Just(Step::Expire),
        1 => (1u64..400).prop_map(Step::Pass),
        1 => any::<bool>().prop_map(Step::Reorder),
    ]
}

#[derive(Clone, Debug)]
struct Plain {
    ticket: Ticket,
    name: u32,
    ask: Ask,
    choice: Choice,
    expires_at: Moment,
}

/// The model: who waits in the order of joining, and whose turn it is.
struct Model {
    settings: Settings,
    waiting: Vec<Plain>,
    turns: BTreeMap<i32, VecDeque<Flow>>,
}

impl Model {
    fn key(&self, plain: &Plain) -> (Moment, u32) {
        match self.settings.ordering {
            Ordering::Fcfs => (Moment::ORIGIN, plain.name),
            Ordering::Deadline => (plain.ask.deadline.unwrap_or(plain.expires_at), plain.name),
        }
    }

    fn line(&self, priority: i32, flow: Flow) -> Vec<&Plain> {
        let mut line: Vec<_> =
            self.waiting.iter().filter(|w| w.ask.priority == priority && w.ask.flow == flow).collect();
        line.sort_by_key(|w| self.key(w));
        line
    }

    fn count(&self, band: Band, flow: Option<Flow>) -> (u32, u64) {
        let of = self.waiting.iter().filter(|w| w.ask.band() == band && flow.is_none_or(|flow| w.ask.flow == flow));
        of.fold((0, 0), |(requests, bytes), w| (requests + 1, bytes + w.ask.bytes))
    }

    fn expected(&self, band: Band, room: impl Fn(&Plain) -> bool) -> Option<u32> {
        for (&priority, turns) in self.turns.iter().rev().filter(|(p, _)| Band::of_priority(**p) == band) {
            for &flow in turns {
                for plain in self.line(priority, flow) {
                    if room(plain) {
                        return Some(plain.name);
                    }
                    if plain.choice == Choice::Any {
                        return None;
                    }
                }
            }
        }
        None
    }

    fn remove(&mut self, ticket: Ticket) -> Plain {
        let at = self.waiting.iter().position(|w| w.ticket == ticket).expect("it waits");
        let plain = self.waiting.remove(at);
        let (priority, flow) = (plain.ask.priority, plain.ask.flow);
        if self.line(priority, flow).is_empty() {
            self.turns.get_mut(&priority).unwrap().retain(|&f| f != flow);
        }
        plain
    }

    fn add(&mut self, plain: Plain) {
        let turns = self.turns.entry(plain.ask.priority).or_default();
        if !turns.contains(&plain.ask.flow) {
            turns.push_back(plain.ask.flow);
        }
        self.waiting.push(plain);
    }

    fn turn_is_over(&mut self, plain: &Plain) {
        let turns = self.turns.get_mut(&plain.ask.priority).unwrap();
        if let Some(at) = turns.iter().position(|&flow| flow == plain.ask.flow) {
            turns.remove(at);
            turns.push_back(plain.ask.flow);
        }
    }
}

fn settings() -> Settings {
    let mut settings = Settings::default();
    for band in &mut settings.bands {
        (band.queued_requests_max, band.queued_bytes_max) = (8, 150);
        band.max_wait = Duration::from_millis(1_000);
    }
    settings
}

fn joined(queue: &mut Queue<u32>, model: &mut Model, (ask, choice, name): (Ask, Choice, u32), now: Moment) {
    let band = ask.band();
    let (requests, bytes) = model.count(band, None);
    let own = model.count(band, Some(ask.flow));
    match queue.join(&ask, choice, || name, now) {
        Ok(joined) => {
            assert_eq!(joined.pushed_out.is_empty(), requests < 8 && bytes + ask.bytes <= 150);
            for left in &joined.pushed_out {
                let theirs = model.count(band, Some(left.ask.flow));
                let longest = (0..5).map(|flow| model.count(band, Some(Flow(flow))));
                assert!(left.ask.flow != ask.flow && left.ask.priority <= ask.priority);
                if bytes + ask.bytes > 150 {
                    assert_eq!(Some(theirs.1), longest.map(|l| l.1).max());
                } else {
                    assert_eq!(Some(theirs.0), longest.map(|l| l.0).max());
                    assert!(own.0 < theirs.0);
                }
            }
            for left in &joined.pushed_out {
                let line = model.line(left.ask.priority, left.ask.flow);
                assert_eq!(line.last().map(|w| w.ticket), Some(left.ticket), "who would have been served last");
                model.remove(left.ticket);
            }
            model.add(Plain { ticket: joined.ticket, name, ask, choice, expires_at: joined.expires_at });
        }
        Err(QueueFull::Requests) => assert_eq!(requests, 8),
        Err(QueueFull::Bytes) => assert!(bytes + ask.bytes > 150),
        Err(why) => panic!("{why:?}"),
    }
}

fn run(queue: &mut Queue<u32>, model: &mut Model, step: Step, name: u32, now: &mut Moment) {
    match step {
        Step::Join { flow, priority, bytes, choice, deadline_ms } => {
            let deadline = deadline_ms.map(at);
            let ask = Ask { priority, flow: Flow(flow), bytes, deadline, wait_until: None };
            joined(queue, model, (ask, choice, name), *now);
        }
        Step::Leave(at) => {
            if let Some(plain) = model.waiting.get(at).cloned() {
                assert_eq!(queue.leave(plain.ticket).map(|left| left.waiting), Some(plain.name));
                assert_eq!(queue.leave(plain.ticket), None);
                model.remove(plain.ticket);
            }
        }
        Step::Next { band, room, every } => {
            let fits = |choice, name: u32| match choice {
                Choice::Any => room,
                Choice::Some => name.is_multiple_of(every),
            };
            let expected = model.expected(Band::ALL[band], |plain| fits(plain.choice, plain.name));
            let choices: BTreeMap<u32, Choice> = model.waiting.iter().map(|w| (w.name, w.choice)).collect();
            let found =
                queue.next(
                    Band::ALL[band],
                    |_, &name| {
                        if fits(choices[&name], name) { Look::Placed(name) } else { Look::NoRoom }
                    },
                );
            assert_eq!(found.as_ref().map(|(_, name)| *name), expected);
            if let Some((left, _)) = found {
                let plain = model.remove(left.ticket);
                model.turn_is_over(&plain);
            }
        }
        Step::Expire => {
            while let Some(left) = queue.leave_expired(*now) {
                assert!(model.remove(left.ticket).expires_at <= *now);
            }
            assert!(model.waiting.iter().all(|w| w.expires_at > *now));
        }
        Step::Pass(ms) => *now = *now + Duration::from_millis(ms),
        Step::Reorder(by_deadline) => {
            let ordering = if by_deadline { Ordering::Deadline } else { Ordering::Fcfs };
            if ordering != model.settings.ordering {
                model.settings.ordering = ordering;
                model.turns.clear();
                for plain in std::mem::take(&mut model.waiting) {
                    model.add(plain);
                }
                queue.configure(model.settings);
            }
        }
    }
}

proptest! {
    #[test]
    fn it_does_what_a_plain_list_does(steps in prop::collection::vec(step(), 1..250)) {
        let mut queue = Queue::new(settings());
        let mut model = Model { settings: settings(), waiting: Vec::new(), turns: BTreeMap::new() };
        let mut now = at(0);
        for (name, step) in steps.into_iter().enumerate() {
            run(&mut queue, &mut model, step, name as u32, &mut now);
            for band in Band::ALL {
                let (requests, bytes) = model.count(band, None);
                assert_eq!((queue.waiting(band), queue.waiting_bytes(band)), (requests, bytes));
                assert!(requests <= 8 && bytes <= 150);
            }
            assert_eq!(queue.next_expiry(), model.waiting.iter().map(|w| w.expires_at).min());
        }
        for plain in model.waiting {
            prop_assert_eq!(queue.leave(plain.ticket).map(|left| left.waiting), Some(plain.name));
        }
        prop_assert!(queue.is_empty());
    }
}
