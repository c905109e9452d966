//! What an endpoint's own answers say of it: whether it is left alone for a while, and how it comes back.
//!
//! Ejection is passive: nobody asks the endpoint anything, its answers to real requests are the evidence. Five failures in
//! a row, or half of at least ten answers within ten seconds, take it out for ten seconds, and for twice as long each time
//! that it fails again, up to a minute. Then one request is its probe, and one success lets it return, slowly: as many
//! own requests as it has served since, and one more, for the first ten seconds.
//!
//! Each ejection begins a new *term*. Answers to requests of an older term are not evidence any more: what an endpoint did
//! before it was taken out has been counted. Nothing here needs a timer: that a pause is over is seen from the time.
//!
//! It refuses to know other endpoints. That at most half a pool may be out is its owner's rule.

use std::time::Duration;

use pool::Moment;
use scheduling::Rejected;

mod recent;

use recent::Recent;

/// Failures in a row that eject.
const FAILURES_IN_A_ROW: u32 = 5;

/// First pause; doubled with each further one.
const EJECTED_FOR_FIRST: Duration = Duration::from_secs(10);

/// Longest pause.
const EJECTED_FOR_MAX: Duration = Duration::from_secs(60);

/// Doublings after which the longest pause is reached.
const DOUBLINGS_MAX: u32 = 3;

/// How long an endpoint that came back is given work by the window.
const SLOW_START_FOR: Duration = Duration::from_secs(10);

/// An endpoint that served this long after its return is ejected for the first pause again.
const FORGIVEN_AFTER: Duration = EJECTED_FOR_MAX;

/// What one try of a request says of the endpoint that it was sent to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The first content of a 2xx answer came: enough for a probe. How the answer ends is a verdict of its own.
    Begun,
    /// A 2xx answer came to its proper end.
    Success,
    /// An answer that says nothing of the endpoint's health: 3xx, 4xx, 501, 503.
    Neutral,
    /// It failed.
    Failure(Failure),
}

/// How an endpoint failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Failure {
    /// No connection could be made.
    Connect,
    /// It answered 500, 502 or 504, or its stream said the like in an error event.
    Status,
    /// No answer began in time.
    Timeout,
    /// It closed the connection before its answer was complete, or broke the protocol.
    Broke,
    /// Its answer went silent.
    Stall,
}

impl Failure {
    /// Every one, in the order in which they are documented.
    pub const ALL: [Self; 5] = [Self::Connect, Self::Status, Self::Timeout, Self::Broke, Self::Stall];

    /// The word used as a metric label and in logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Status => "status",
            Self::Timeout => "timeout",
            Self::Broke => "broke",
            Self::Stall => "stall",
        }
    }
}

/// Which rule ejects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EjectedBy {
    /// Five failures in a row.
    FailuresInARow,
    /// Half of the answers of the last ten seconds, ten at least.
    ShareOfFailures,
    /// The probe after an earlier pause failed.
    Probe,
}

impl EjectedBy {
    /// In words, for logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::FailuresInARow => "five failures in a row",
            Self::ShareOfFailures => "half of its answers within ten seconds failed",
            Self::Probe => "the probe after its pause failed",
        }
    }
}

/// What a verdict led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Finding {
    /// Nothing to do.
    Nothing,
    /// It should be ejected, unless too many others are.
    Failing(EjectedBy),
    /// It is back.
    Returned,
}

/// Tells answers to requests of before an ejection from later ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Term(u32);

/// How far the answer to one request was judged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Judged {
    #[default]
    No,
    /// It began well.
    Begun,
    /// For good: what comes later is a consequence.
    Finally,
}

/// The health of one life of an endpoint.
#[derive(Debug, Default)]
pub(crate) struct Health {
    phase: Phase,
    term: Term,
    /// Own requests of this term in flight.
    aboard: u32,
    failures_in_a_row: u32,
    recent: Recent,
    /// Ejections without a healthy time in between.
    ejections: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Taking {
        returned: Option<Returned>,
    },
    /// Out until then; after that, out but for one probe at a time.
    Ejected {
        until: Moment,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Returned {
    at: Moment,
    successes: u32,
}

impl Default for Phase {
    fn default() -> Self {
        Self::Taking { returned: None }
    }
}

impl Health {
    /// Whether it is out, or waits for the outcome of its one probe.
    pub(crate) fn is_ejected(&self) -> bool {
        matches!(self.phase, Phase::Ejected { .. })
    }

    /// When its pause is over, if it is out.
    pub(crate) fn ejected_until(&self) -> Option<Moment> {
        match self.phase {
            Phase::Ejected { until } => Some(until),
            Phase::Taking { .. } => None,
        }
    }

    /// Why it cannot be asked at all, whatever its load.
    pub(crate) fn closed(&self, now: Moment) -> Option<Rejected> {
        match self.phase {
            Phase::Ejected { until } if now < until => Some(Rejected::Ejected),
            Phase::Ejected { .. } if self.aboard > 0 => Some(Rejected::Probing),
            Phase::Ejected { .. } | Phase::Taking { .. } => None,
        }
    }

    /// Share of its slow-start window in use; 1 and above is full. 0 when it has none.
    pub(crate) fn window_in_use(&self, now: Moment) -> f64 {
        match self.phase {
            Phase::Taking { returned: Some(Returned { at, successes }) } if now.since(at) < SLOW_START_FOR => {
                f64::from(self.aboard) / (1.0 + f64::from(successes))
            }
            Phase::Taking { .. } | Phase::Ejected { .. } => 0.0,
        }
    }

    /// A request goes there. Give its term back with [`Health::depart`].
    pub(crate) fn board(&mut self) -> Term {
        self.aboard += 1;
        self.term
    }

    /// The request ended, or went on to another endpoint.
    pub(crate) fn depart(&mut self, term: Term) {
        if term == self.term {
            self.aboard -= 1;
        }
    }

    /// Takes a verdict into account. `judged` is kept with the request, which has one last word.
    pub(crate) fn judge(&mut self, term: Term, judged: &mut Judged, verdict: Verdict, now: Moment) -> Finding {
        let before = *judged;
        if before == Judged::Finally || (before, verdict) == (Judged::Begun, Verdict::Begun) {
            return Finding::Nothing;
        }
        *judged = if verdict == Verdict::Begun { Judged::Begun } else { Judged::Finally };
        if term != self.term {
            return Finding::Nothing;
        }
        match verdict {
            Verdict::Neutral => Finding::Nothing,
            Verdict::Begun => self.went_well(now),
            Verdict::Success => {
                self.failures_in_a_row = 0;
                let finding = if before == Judged::Begun { Finding::Nothing } else { self.went_well(now) };
                self.recent.succeeded(now);
                finding
            }
            Verdict::Failure(_) => self.failed(now),
        }
    }

    /// Takes it out. Returns for how long.
    pub(crate) fn eject(&mut self, now: Moment) -> Duration {
        if let Phase::Taking { returned } = self.phase
            && returned.is_none_or(|returned| now.since(returned.at) >= FORGIVEN_AFTER)
        {
            self.ejections = 0;
        }
        let pause = (EJECTED_FOR_FIRST * (1 << self.ejections.min(DOUBLINGS_MAX))).min(EJECTED_FOR_MAX);
        self.ejections = (self.ejections + 1).min(DOUBLINGS_MAX);
        self.begin_term(Phase::Ejected { until: now + pause });
        pause
    }

    /// Takes it back before its time, at full width: too few others are left.
    pub(crate) fn reinstate(&mut self) {
        self.phase = Phase::Taking { returned: None };
        self.failures_in_a_row = 0;
        self.recent = Recent::default();
    }

    /// Another process answers at its address: nothing that was learned is about this one.
    pub(crate) fn begin_anew(&mut self) {
        self.begin_term(Phase::default());
        self.ejections = 0;
    }

    fn begin_term(&mut self, phase: Phase) {
        self.phase = phase;
        self.term = Term(self.term.0.wrapping_add(1));
        self.aboard = 0;
        self.failures_in_a_row = 0;
        self.recent = Recent::default();
    }

    fn went_well(&mut self, now: Moment) -> Finding {
        match &mut self.phase {
            Phase::Ejected { .. } => {
                self.phase = Phase::Taking { returned: Some(Returned { at: now, successes: 1 }) };
                self.failures_in_a_row = 0;
                Finding::Returned
            }
            Phase::Taking { returned } => {
                if let Some(returned) = returned {
                    returned.successes = returned.successes.saturating_add(1);
                }
                Finding::Nothing
            }
        }
    }

    fn failed(&mut self, now: Moment) -> Finding {
        if self.is_ejected() {
            return Finding::Failing(EjectedBy::Probe);
        }
        self.failures_in_a_row = self.failures_in_a_row.saturating_add(1);
        self.recent.failed(now);
        if self.failures_in_a_row >= FAILURES_IN_A_ROW {
            Finding::Failing(EjectedBy::FailuresInARow)
        } else if self.recent.is_half_failed(now) {
            Finding::Failing(EjectedBy::ShareOfFailures)
        } else {
            Finding::Nothing
        }
    }
}

#[cfg(test)]
mod tests;
