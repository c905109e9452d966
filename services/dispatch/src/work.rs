//! Own work at one endpoint, split by what the endpoint's last report can have shown of it.
//!
//! A report is true for the moment at which reading it began. What was dispatched later is not in it; what was
//! dispatched shortly before may still have been on its way (network, tokenizing); the rest is.

use crate::InFlight;

/// When a request was dispatched, seen from the endpoint's last report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// After the report began: certainly not in it.
    Since,
    /// Before it, by less than a request may take to reach the engine's queue.
    Settling,
    /// Long before it: certainly in it, unless the engine hangs.
    Before,
}

impl Stage {
    const COUNT: usize = 3;

    const fn index(self) -> usize {
        match self {
            Self::Since => 0,
            Self::Settling => 1,
            Self::Before => 2,
        }
    }
}

/// A number of requests with what they weigh.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Work {
    pub(crate) requests: u32,
    /// Without a byte of answer.
    pub(crate) unanswered: u32,
    /// Prompt tokens still to be computed.
    pub(crate) uncached_tokens: u64,
    /// Prompt tokens that take cache of their own, computed or not.
    pub(crate) new_tokens: u64,
}

/// Own work at one endpoint by [`Stage`], and its sum, which each pick asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct OwnWork {
    by_stage: [Work; Stage::COUNT],
    total: Work,
}

impl OwnWork {
    pub(crate) fn at(&self, stage: Stage) -> Work {
        self.by_stage[stage.index()]
    }

    pub(crate) fn total(&self) -> Work {
        self.total
    }

    pub(crate) fn add(&mut self, stage: Stage, work: Work) {
        self.by_stage[stage.index()].add(work);
        self.total.add(work);
    }

    /// Takes off what [`OwnWork::add`] put on. A flight remembers its stage and its weight, so this never goes below 0.
    pub(crate) fn take(&mut self, stage: Stage, work: Work) {
        self.by_stage[stage.index()].take(work);
        self.total.take(work);
    }

    pub(crate) fn in_flight(&self) -> InFlight {
        let Work { requests, unanswered, uncached_tokens, .. } = self.total();
        InFlight { requests, unanswered, prompt_tokens: uncached_tokens }
    }
}

impl Work {
    fn add(&mut self, other: Self) {
        self.requests += other.requests;
        self.unanswered += other.unanswered;
        self.uncached_tokens += other.uncached_tokens;
        self.new_tokens += other.new_tokens;
    }

    fn take(&mut self, other: Self) {
        self.requests -= other.requests;
        self.unanswered -= other.unanswered;
        self.uncached_tokens -= other.uncached_tokens;
        self.new_tokens -= other.new_tokens;
    }
}
