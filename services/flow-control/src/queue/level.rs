//! The requests of one priority: flows in the order of their turns, and each flow's requests in theirs.

use std::collections::BTreeMap;

use pool::Moment;

use super::{Choice, Ticket};
use crate::Flow;

/// Where a request stands among those of its flow. Smaller goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    pub(super) due: Moment,
    pub(super) joined: u64,
}

/// Where a flow stands among those of its level. Smaller goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Turn {
    /// The bits of a number that is not negative: they are ordered as the numbers are. 0 where service does not count.
    attained_bits: u64,
    number: u64,
}

/// See the module's text.
#[derive(Debug, Default)]
pub(super) struct Level {
    turns: BTreeMap<Turn, Flow>,
    flows: BTreeMap<Flow, Line>,
    requests: u32,
    /// Those among them for which any endpoint will do.
    content: u32,
}

/// One flow's requests. Those with wishes stand in a line of their own, so that they hold up nobody.
#[derive(Debug)]
pub(super) struct Line {
    turn: Turn,
    content: BTreeMap<Key, Ticket>,
    choosy: BTreeMap<Key, Ticket>,
}

impl Level {
    /// `turn` is used if the flow has nothing waiting yet.
    pub(super) fn insert(&mut self, flow: Flow, choice: Choice, key: Key, ticket: Ticket, turn: Turn) {
        let line = self.flows.entry(flow).or_insert_with(|| {
            self.turns.insert(turn, flow);
            Line { turn, content: BTreeMap::new(), choosy: BTreeMap::new() }
        });
        line.of(choice).insert(key, ticket);
        self.requests += 1;
        self.content += u32::from(choice == Choice::Any);
    }

    pub(super) fn remove(&mut self, flow: Flow, choice: Choice, key: Key) {
        let line = self.flows.get_mut(&flow).expect("a waiting request's flow has a line");
        line.of(choice).remove(&key).expect("a waiting request stands in its flow's line");
        self.requests -= 1;
        self.content -= u32::from(choice == Choice::Any);
        if line.len() == 0 {
            self.turns.remove(&line.turn);
            self.flows.remove(&flow);
        }
    }

    /// The flow has had its turn: it goes behind all others, unless service decides.
    pub(super) fn turn_is_over(&mut self, flow: Flow, number: u64) {
        if let Some(line) = self.flows.get_mut(&flow) {
            self.turns.remove(&line.turn);
            line.turn.number = number;
            self.turns.insert(line.turn, flow);
        }
    }

    /// The flow has been served so much by now.
    pub(super) fn attained(&mut self, flow: Flow, attained: f64) {
        if let Some(line) = self.flows.get_mut(&flow) {
            self.turns.remove(&line.turn);
            line.turn.attained_bits = attained.to_bits();
            self.turns.insert(line.turn, flow);
        }
    }

    /// What the flow served least has attained.
    pub(super) fn least_attained(&self) -> Option<f64> {
        self.turns.first_key_value().map(|(turn, _)| f64::from_bits(turn.attained_bits))
    }

    /// The flows in the order of their turns.
    pub(super) fn lines(&self) -> impl Iterator<Item = &Line> {
        self.turns.values().filter_map(|flow| self.flows.get(flow))
    }

    pub(super) fn line(&self, flow: Flow) -> Option<&Line> {
        self.flows.get(&flow)
    }

    /// Requests that certainly go before another one of this flow when flows take turns: each other flow is served once
    /// for each of the flow's own that are before it.
    pub(super) fn ahead_in_turns(&self, flow: Flow) -> u64 {
        let own = self.line(flow).map_or(0, Line::len);
        self.flows.values().map(|line| line.len().min(own) as u64).sum()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.requests == 0
    }

    pub(super) fn requests(&self) -> u32 {
        self.requests
    }

    /// Whether a request waits for which any endpoint will do.
    pub(super) fn has_content(&self) -> bool {
        self.content > 0
    }
}

impl Line {
    pub(super) fn len(&self) -> usize {
        self.content.len() + self.choosy.len()
    }

    /// The first request for which any endpoint will do.
    pub(super) fn first_content(&self) -> Option<Ticket> {
        self.content.values().next().copied()
    }

    /// The requests with wishes that stand before it, in order.
    pub(super) fn choosy_before_content(&self) -> impl Iterator<Item = Ticket> {
        let first_content = self.content.keys().next().copied();
        let before = move |key: &Key| first_content.is_none_or(|first| *key < first);
        self.choosy.iter().take_while(move |(key, _)| before(key)).map(|(_, &ticket)| ticket)
    }

    /// All requests from the end of the line.
    pub(super) fn last_first(&self) -> impl Iterator<Item = Ticket> {
        let mut content = self.content.iter().rev().peekable();
        let mut choosy = self.choosy.iter().rev().peekable();
        std::iter::from_fn(move || {
            let from = match (content.peek(), choosy.peek()) {
                (Some((a, _)), Some((b, _))) if b > a => &mut choosy,
                (Some(_), _) => &mut content,
                (None, _) => &mut choosy,
            };
            from.next().map(|(_, &ticket)| ticket)
        })
    }

    fn of(&mut self, choice: Choice) -> &mut BTreeMap<Key, Ticket> {
        match choice {
            Choice::Any => &mut self.content,
            Choice::Some => &mut self.choosy,
        }
    }
}

impl From<(f64, u64)> for Turn {
    fn from((attained, number): (f64, u64)) -> Self {
        Self { attained_bits: attained.to_bits(), number }
    }
}
