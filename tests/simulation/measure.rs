//! What can be measured of a run.
//!
//! *Goodput* is work done for clients that still wanted it: requests served to their end within their waits (a request
//! whose wait ended, whose client left or whose endpoint died is no goodput). `goodput_share` weighs each served request
//! by what it takes: 1 ÷ the fleet's capacity for its class, so that 1.0 is a fleet that does nothing else all the time;
//! with classes of one shape it is the share of requests per second and of tokens per second alike.
//!
//! Requests belong to the stretch of time in which they arrived; rates of work to that in which the work ended.

use std::{collections::BTreeMap, time::Duration};

use bench::world::{
    capacity::Capacity,
    ledger::{Ledger, Outcome, Record},
};
use pool::Moment;
use serde::Deserialize;

use crate::expectation::Window;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Measure {
    /// From the client's question to its first token, of served requests, ms.
    TtftP50Ms,
    TtftP99Ms,
    TtftMaxMs,
    /// In the gateway, of requests that got a place, ms.
    WaitP50Ms,
    WaitP99Ms,
    /// Requests that arrived.
    Arrived,
    /// Share of those that arrived.
    ServedShare,
    ShedShare,
    ExpiredShare,
    /// Requests refused for want of room: shed, queue full, expired.
    Refused,
    Shed,
    QueueFull,
    Expired,
    Evicted,
    NoEndpoint,
    ClientsGone,
    Broke,
    /// Served requests that ended in the window, per second.
    ServedPerS,
    /// Their output tokens, per second.
    TokensPerS,
    /// Share of the fleet's capacity that went into served requests. See the module's text.
    GoodputShare,
    /// (largest − smallest) ÷ mean over flows, of requests placed in the window.
    FlowSpreadRequests,
    /// The same, of their prompt and output tokens.
    FlowSpreadTokens,
    /// (largest − smallest) ÷ mean over endpoints, of requests placed in the window.
    EndpointSpread,
    /// Share of requests with a deadline whose first token met it.
    DeadlinesMetShare,
    /// Requests waiting in one engine, at the ends of its steps.
    EngineWaitingP99,
    EngineWaitingMax,
    /// After the last request ended.
    InFlightAtEnd,
    WaitingAtEnd,
    SaturationAtEnd,
    /// Requests without any outcome.
    NeverEnded,
}

/// The measure of the requests of `classes` (all without any) in `window`. NaN when there is nothing to measure.
pub(crate) fn measure(
    ledger: &Ledger,
    capacities: &[Capacity],
    what: Measure,
    classes: &[String],
    window: Window,
) -> f64 {
    let of = |record: &Record| classes.is_empty() || classes.contains(&ledger.classes[record.class]);
    let records: Vec<&Record> = ledger.requests.iter().filter(|record| of(record)).collect();
    let seen = Seen { ledger, records, window };
    match what {
        Measure::TtftP50Ms => seen.ttft_ms(0.5),
        Measure::TtftP99Ms => seen.ttft_ms(0.99),
        Measure::TtftMaxMs => seen.ttft_ms(1.0),
        Measure::WaitP50Ms => seen.wait_ms(0.5),
        Measure::WaitP99Ms => seen.wait_ms(0.99),
        Measure::Arrived => seen.arrived().count() as f64,
        Measure::ServedShare => seen.share(Outcome::Served),
        Measure::ShedShare => seen.share(Outcome::Shed),
        Measure::ExpiredShare => seen.share(Outcome::Expired),
        Measure::Refused => [Outcome::Shed, Outcome::QueueFull, Outcome::Expired].map(|o| seen.count(o)).iter().sum(),
        Measure::Shed => seen.count(Outcome::Shed),
        Measure::QueueFull => seen.count(Outcome::QueueFull),
        Measure::Expired => seen.count(Outcome::Expired),
        Measure::Evicted => seen.count(Outcome::Evicted),
        Measure::NoEndpoint => seen.count(Outcome::NoEndpoint),
        Measure::ClientsGone => seen.count(Outcome::ClientGone),
        Measure::Broke => seen.count(Outcome::Broke),
        Measure::ServedPerS => seen.served_per_s(|_| 1.0),
        Measure::TokensPerS => seen.served_per_s(|record| f64::from(record.output_tokens)),
        Measure::GoodputShare => seen.served_per_s(|record| 1.0 / capacities[record.class].requests_per_s),
        Measure::FlowSpreadRequests => seen.spread(|record| Some((record.flow, 1.0))),
        Measure::FlowSpreadTokens => {
            seen.spread(|record| Some((record.flow, f64::from(record.prompt_tokens + record.output_tokens))))
        }
        Measure::EndpointSpread => seen.spread(|record| Some((record.endpoint? as u64, 1.0))),
        Measure::DeadlinesMetShare => seen.deadlines_met(),
        Measure::EngineWaitingP99 => seen.engine_waiting(0.99),
        Measure::EngineWaitingMax => seen.engine_waiting(1.0),
        Measure::InFlightAtEnd => f64::from(ledger.end.in_flight),
        Measure::WaitingAtEnd => f64::from(ledger.end.waiting),
        Measure::SaturationAtEnd => ledger.end.saturation,
        Measure::NeverEnded => seen.arrived().filter(|record| record.outcome.is_none()).count() as f64,
    }
}

impl Measure {
    /// As it is written in a scenario.
    pub(crate) fn name(self) -> String {
        let debug = format!("{self:?}");
        let mut name = String::new();
        for (place, letter) in debug.char_indices() {
            if place > 0 && letter.is_ascii_uppercase() {
                name.push('_');
            }
            name.push(letter.to_ascii_lowercase());
        }
        name
    }
}

struct Seen<'a> {
    ledger: &'a Ledger,
    records: Vec<&'a Record>,
    window: Window,
}

impl<'a> Seen<'a> {
    fn has(&self, at: Moment) -> bool {
        let at = at.since_origin();
        at >= self.window.from && at < self.window.to
    }

    fn arrived(&self) -> impl Iterator<Item = &'a Record> + '_ {
        self.records.iter().copied().filter(|record| self.has(record.arrived))
    }

    fn count(&self, outcome: Outcome) -> f64 {
        self.arrived().filter(|record| record.is(outcome)).count() as f64
    }

    fn share(&self, outcome: Outcome) -> f64 {
        self.count(outcome) / self.arrived().count() as f64
    }

    fn ttft_ms(&self, quantile: f64) -> f64 {
        let served = self.arrived().filter(|record| record.is(Outcome::Served));
        ms_at(served.filter_map(Record::time_to_first_token), quantile)
    }

    fn wait_ms(&self, quantile: f64) -> f64 {
        ms_at(self.arrived().filter_map(Record::wait), quantile)
    }

    fn served_per_s(&self, weigh: impl Fn(&Record) -> f64) -> f64 {
        let served = self.records.iter().filter(|record| record.is(Outcome::Served));
        let ended = served.filter(|record| record.ended.is_some_and(|at| self.has(at)));
        let length = self.window.to.saturating_sub(self.window.from).as_secs_f64();
        ended.map(|record| weigh(record)).sum::<f64>() / length
    }

    /// Among those that have any.
    fn spread(&self, key: impl Fn(&Record) -> Option<(u64, f64)>) -> f64 {
        let mut sums = BTreeMap::<u64, f64>::new();
        for record in self.records.iter().filter(|record| record.placed.is_some_and(|at| self.has(at))) {
            if let Some((key, amount)) = key(record) {
                *sums.entry(key).or_default() += amount;
            }
        }
        // A flow that asked and never got a place has 0.
        for record in self.arrived() {
            if let Some((key, _)) = key(record) {
                sums.entry(key).or_default();
            }
        }
        let (largest, smallest) = sums.values().fold((f64::MIN, f64::MAX), |(l, s), &v| (l.max(v), s.min(v)));
        (largest - smallest) / (sums.values().sum::<f64>() / sums.len() as f64)
    }

    fn deadlines_met(&self) -> f64 {
        let with = || self.arrived().filter(|record| record.deadline.is_some());
        with().filter(|record| record.met_deadline()).count() as f64 / with().count() as f64
    }

    fn engine_waiting(&self, quantile: f64) -> f64 {
        let samples = self.ledger.queues.iter().filter(|sample| self.has(sample.at));
        at(samples.map(|sample| f64::from(sample.waiting)), quantile)
    }
}

fn ms_at(times: impl Iterator<Item = Duration>, quantile: f64) -> f64 {
    at(times.map(|time| time.as_secs_f64() * 1e3), quantile)
}

/// The value that this share of all does not exceed.
fn at(values: impl Iterator<Item = f64>, quantile: f64) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let place = ((values.len() as f64 * quantile).ceil() as usize).saturating_sub(1);
    values.get(place).copied().unwrap_or(f64::NAN)
}
