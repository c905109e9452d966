//! Tokens that flows were served lately.
//!
//! What was served counts half after [`HALF_LIFE`]. All amounts fade alike, so their order never changes by time alone;
//! hence they are kept as worth at one moment long ago, where an amount served later counts more, and nothing has to be
//! touched as time goes by.

use std::{collections::BTreeMap, time::Duration};

use pool::Moment;

use crate::Flow;

/// After this time service counts half. As upstream's fairness by attained service has it.
const HALF_LIFE: Duration = Duration::from_secs(60);

/// Flows remembered, at most. Those served least are forgotten first: they lose nothing by it but a little head start.
const FLOWS_MAX: usize = 4_096;

/// Tokens by which a flow that comes may be behind the others: its head start. A second or two of a small pool's work.
const LEAD_TOKENS_MAX: f64 = 16_384.0;

/// Half-lives after which amounts are brought up to date: 2 to this power is far from the end of a number's range.
const RESCALE_AFTER: f64 = 256.0;

/// See the module's text.
#[derive(Debug, Default)]
pub(super) struct Service {
    by_flow: BTreeMap<Flow, f64>,
    origin: Moment,
}

impl Service {
    /// A flow was served so many tokens. Returns what it has attained by now.
    pub(super) fn add(&mut self, flow: Flow, tokens: u64, now: Moment) -> f64 {
        let worth = tokens as f64 * self.half_lives(now).exp2();
        let attained = self.by_flow.entry(flow).or_default();
        *attained += worth;
        let attained = *attained;
        if self.by_flow.len() > FLOWS_MAX {
            self.forget_least();
        }
        attained
    }

    /// The flow's lead over one that has attained so much is bounded from now on.
    pub(super) fn bound_lead(&mut self, flow: Flow, attained: f64, now: Moment) {
        let least = attained - LEAD_TOKENS_MAX * self.half_lives(now).exp2();
        let entry = self.by_flow.entry(flow).or_default();
        *entry = entry.max(least);
        if self.by_flow.len() > FLOWS_MAX {
            self.forget_least();
        }
    }

    /// What a flow has attained: to be compared with others' only.
    pub(super) fn of(&self, flow: Flow) -> f64 {
        self.by_flow.get(&flow).copied().unwrap_or(0.0)
    }

    /// Brings all amounts up to date when they would grow too large; to be called before adding. True: amounts given out
    /// before cannot be compared with new ones any more.
    pub(super) fn rescale(&mut self, now: Moment) -> bool {
        let half_lives = self.half_lives(now);
        if half_lives < RESCALE_AFTER {
            return false;
        }
        for attained in self.by_flow.values_mut() {
            *attained *= (-half_lives).exp2();
        }
        self.by_flow.retain(|_, attained| *attained >= 1.0);
        self.origin = now;
        true
    }

    #[cfg(test)]
    pub(super) fn flows(&self) -> usize {
        self.by_flow.len()
    }

    fn half_lives(&self, now: Moment) -> f64 {
        now.since(self.origin).as_secs_f64() / HALF_LIFE.as_secs_f64()
    }

    /// Half of them at once, so that it is done seldom.
    fn forget_least(&mut self) {
        let mut amounts: Vec<f64> = self.by_flow.values().copied().collect();
        let middle = amounts.len() / 2;
        let (_, median, _) = amounts.select_nth_unstable_by(middle, f64::total_cmp);
        let median = *median;
        self.by_flow.retain(|_, attained| *attained > median);
    }
}
