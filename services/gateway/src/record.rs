//! What is known of one request, from its head to its end, and the one place where it ends.
//!
//! A record travels with its request through every stage and then with the answer's body. Whoever knows how the request
//! ends says so; when it is dropped, for whatever reason, it counts the outcome, writes the log line and completes the
//! decision. A record dropped without a word means that the client left, or that the process cut it off at its end: its
//! connection's future was dropped.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, SystemTime},
};

use flow_control::Band;
use pool::Moment;
use protocol::{Api, Reason, Usage};
use telemetry::request_log::{LEVEL, Line, RequestLog};

use crate::{
    answer::{Renamed, UsageEvent},
    auth::Admitted,
    clock::Clock,
    decisions::{After, Decisions, Kept},
    limits::{Charge, Seen},
    metrics::{ModelMetrics, Outcome},
    routes::{EXPLAINING_LOG_LEVEL, Served},
};

/// Where records report to. One per process.
pub struct Observer {
    /// The process's time line.
    pub clock: Clock,
    /// One line per request.
    pub log: RequestLog,
    /// Why each endpoint was picked.
    pub decisions: Arc<Decisions>,
    /// Set before the process cuts off what did not end in its time to drain.
    pub cutting: AtomicBool,
    /// Requests that never found a pool.
    pub unrouted: ModelMetrics,
}

/// What is known of one request.
pub struct Record {
    observer: Arc<Observer>,
    /// When its head was read.
    pub started: Moment,
    /// Its id, ours or the client's.
    pub request_id: Box<str>,
    /// Who sent it; `None` where everybody may send requests, and before that is checked.
    pub admitted: Option<Admitted>,
    /// What it asks for; `None` before the path was read, or when the path is not served.
    pub api: Option<Api>,
    /// Which model of which pool.
    pub served: Option<Arc<Served>>,
    /// The model as the client named it, if it is not one of ours, or not the one that serves it.
    pub asked_model: Option<Arc<str>>,
    /// Who answers, or was tried last.
    pub endpoint: Option<Arc<str>>,
    /// When its body was there.
    pub body_read: Option<Moment>,
    /// Which band it is of, once its pool is known.
    pub band: Band,
    /// When it had to begin to wait for room.
    pub queued: Option<Moment>,
    /// When an endpoint was reserved for it.
    pub dispatched: Option<Moment>,
    /// Tries on endpoints.
    pub tries: u32,
    /// Body bytes from the client, as sent.
    pub bytes_in: u64,
    /// Counts the rest of them, where the body passes through unread.
    pub bytes_passing: Option<Arc<AtomicU64>>,
    /// Body bytes given to the client's connection.
    pub bytes_out: u64,
    /// Status of the answer, once it is known.
    pub status: Option<u16>,
    /// The answer is an event stream.
    pub stream: bool,
    /// When the first and the last content event came, and how many there were.
    pub content: Option<Content>,
    /// Tokens; the outer level tells whether the answer was one that has some.
    pub usage: Option<Option<Usage>>,
    /// The decision kept for it.
    pub decision: Option<Kept>,
    /// What becomes of its stream's event of usage.
    pub usage_event: UsageEvent,
    /// The model's name that is turned back in its answer.
    pub renamed: Option<Renamed>,
    /// What it holds of its caller's quotas.
    pub charge: Option<Charge>,
    outcome: Option<Outcome>,
    detail: Option<Box<str>>,
}

/// The content events of a streamed answer.
#[derive(Clone, Copy, Debug)]
pub struct Content {
    /// When the first one passed.
    pub first: Moment,
    /// When the last one passed.
    pub last: Moment,
    /// How many.
    pub events: u64,
}

impl Content {
    /// Mean time between two events; nothing with fewer than two.
    pub fn between(&self) -> Option<Duration> {
        let gaps = u32::try_from(self.events.saturating_sub(1)).unwrap_or(u32::MAX);
        (gaps > 0).then(|| self.last.since(self.first) / gaps)
    }
}

impl Record {
    /// A request whose head was just read.
    pub fn new(observer: Arc<Observer>, request_id: Box<str>) -> Box<Self> {
        Box::new(Self {
            started: observer.clock.now(),
            observer,
            request_id,
            admitted: None,
            api: None,
            served: None,
            asked_model: None,
            endpoint: None,
            body_read: None,
            band: Band::default(),
            queued: None,
            dispatched: None,
            tries: 0,
            bytes_in: 0,
            bytes_passing: None,
            bytes_out: 0,
            status: None,
            stream: false,
            content: None,
            usage: None,
            decision: None,
            usage_event: UsageEvent::default(),
            renamed: None,
            charge: None,
            outcome: None,
            detail: None,
        })
    }

    /// Where this record reports to.
    pub fn observer(&self) -> &Arc<Observer> {
        &self.observer
    }

    /// Now.
    pub fn now(&self) -> Moment {
        self.observer.clock.now()
    }

    /// Says how the request ended. The first word counts: what comes later is a consequence.
    pub fn end(&mut self, outcome: Outcome) {
        self.outcome.get_or_insert(outcome);
    }

    /// Whether it was said how the request ended.
    pub fn has_ended(&self) -> bool {
        self.outcome.is_some()
    }

    /// Adds what only the operator should read.
    pub fn detail(&mut self, detail: impl Into<Box<str>>) {
        self.detail.get_or_insert_with(|| detail.into());
    }

    /// Counts content events that passed just now.
    pub fn content_passed(&mut self, events: u32) {
        if events == 0 {
            return;
        }
        let now = self.now();
        let content = self.content.get_or_insert(Content { first: now, last: now, events: 0 });
        content.last = now;
        content.events += u64::from(events);
        if let Some(charge) = &mut self.charge {
            charge.produced(content.events, now);
        }
    }

    /// Gives back what it holds of its caller's quotas but for what it took. The first call counts.
    pub fn settle(&mut self, outcome: Outcome) {
        let Some(charge) = self.charge.take() else { return };
        let seen = Seen {
            estimate: charge.estimate(),
            outcome,
            status: self.status,
            usage: self.usage.flatten(),
            is_stream: self.stream,
            events: self.content.map_or(0, |content| content.events),
            dispatched: self.dispatched.is_some(),
        };
        charge.end(seen.end(), self.now());
    }

    /// A pool whose log was raised says in each line why the endpoint was picked, unless there is worse to say.
    fn explain_if_asked(&mut self) {
        let raised = self.served.as_ref().is_some_and(|served| served.log_level >= EXPLAINING_LOG_LEVEL);
        if let (true, None, Some(kept)) = (raised, &self.detail, self.decision) {
            self.detail = self.observer.decisions.explain(kept).map(Into::into);
        }
    }

    fn line(&self, outcome: Outcome, ended: Moment) -> Line {
        let usage = self.usage.flatten();
        let status = match outcome {
            Outcome::Refused(Reason::ClientGone) => Reason::ClientGone.row().status,
            Outcome::Refused(reason) => self.status.unwrap_or(reason.row().status),
            Outcome::Ok | Outcome::Redirect | Outcome::Upstream4xx | Outcome::Upstream5xx => self.status.unwrap_or(0),
        };
        // Who waited in vain ends as the wait does.
        let left = self.dispatched.or(self.queued.map(|_| ended));
        let waited = left.zip(self.body_read).map(|(left, read)| left.since(read));
        Line {
            ended: SystemTime::now(),
            level: LEVEL,
            message: "request",
            request_id: self.request_id.clone(),
            model: self.asked_model.clone().or_else(|| self.served.as_ref().map(|served| Arc::clone(&served.model))),
            pool: self.served.as_ref().map(|served| Arc::clone(&served.pool.name)),
            endpoint: self.endpoint.clone(),
            api: self.api.map_or("none", Api::label),
            band: self.band.label(),
            status,
            outcome: outcome.label(),
            detail: self.detail.clone(),
            stream: self.stream,
            tries: self.tries,
            prompt_tokens: usage.map(|usage| usage.prompt_tokens),
            cached_tokens: usage.map(|usage| usage.cached_tokens),
            completion_tokens: usage.map(|usage| usage.completion_tokens),
            queue_ms: waited.map_or(0.0, ms),
            ttft_ms: self.content.map(|content| ms(content.first.since(self.started))),
            duration_ms: ms(ended.since(self.started)),
            bytes_in: self.bytes_in + self.bytes_passing.as_ref().map_or(0, |bytes| bytes.load(Ordering::Relaxed)),
            bytes_out: self.bytes_out,
        }
    }
}

/// Milliseconds with the digits that a clock has: divided, since `0.048962 s × 1000` is 48.962000000000006 µs.
#[expect(clippy::cast_precision_loss, reason = "exact for the first hundred days")]
fn ms(duration: Duration) -> f64 {
    duration.as_nanos() as f64 / 1e6
}

impl Drop for Record {
    fn drop(&mut self) {
        let unsaid = if std::thread::panicking() {
            Reason::Internal
        } else if self.observer.cutting.load(Ordering::Acquire) {
            Reason::Draining
        } else {
            Reason::ClientGone
        };
        let outcome = self.outcome.unwrap_or(Outcome::Refused(unsaid));
        self.settle(outcome);
        let ended = self.now();
        let metrics = self.served.as_ref().map_or(&self.observer.unrouted, |served| &*served.metrics);
        metrics.ended(self.band, outcome, ended.since(self.started).as_secs_f64());
        if let Some(content) = self.content {
            let between = content.between().map(|gap| gap.as_secs_f64());
            metrics.streamed(content.first.since(self.started).as_secs_f64(), between);
        }
        if let Some(usage) = self.usage {
            metrics.used(usage);
        }
        self.explain_if_asked();
        let line = self.line(outcome, ended);
        if let Some(kept) = self.decision.take() {
            let endpoint = self.endpoint.clone();
            let (status, outcome, band, queue_ms) = (line.status, line.outcome, line.band, line.queue_ms);
            self.observer.decisions.complete(kept, After { endpoint, status, outcome, band, queue_ms });
        }
        self.observer.log.write(line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_in_the_log_have_no_digits_that_nobody_measured() {
        for (ns, written) in [(48_962, "0.048962"), (87_590, "0.08759"), (8_837_089_924, "8837.089924"), (0, "0")] {
            assert_eq!(ms(Duration::from_nanos(ns)).to_string(), written);
        }
    }
}
