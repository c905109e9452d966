//! Which data-parallel rank behind one door takes a request.
//!
//! vLLM's own balancing, as of 0.32: a rank's score is what it last reported of itself or, if more, the requests sent to it
//! that have not ended; a queue counts extra on a rank whose KV memory is more than half full. Reports come ten times a
//! second. A server's ranks are separate [`Engine`]s that share nothing, so only the choice needs a home.

use std::time::Duration;

use pool::Moment;

use crate::Engine;

/// What a rank reports of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RankLoad {
    /// Requests in its queue.
    pub waiting: u32,
    /// Requests in its batch.
    pub running: u32,
    /// Share of its KV blocks in use, 0–1.
    pub kv_usage: f64,
}

/// The balancer of one server.
#[derive(Debug)]
pub struct RankChoice {
    reported: Vec<RankLoad>,
    reported_at: Option<Moment>,
    /// Where the scan begins: of equal ranks not always the same one is taken.
    first: usize,
}

/// How often ranks report.
const REPORT_INTERVAL: Duration = Duration::from_millis(100);
/// What a queued request counts extra per share of KV memory in use beyond the half.
const QUEUE_PENALTY: f64 = 6.0;
const PENALTY_FREE_USAGE: f64 = 0.5;

impl RankLoad {
    /// What this engine would report now.
    pub fn of(engine: &Engine) -> Self {
        let gauges = &engine.stats().gauges;
        Self { waiting: gauges.waiting, running: gauges.running, kv_usage: gauges.kv_usage }
    }
}

impl RankChoice {
    /// Over so many ranks, at least 1.
    pub fn new(ranks: usize) -> Self {
        Self { reported: vec![RankLoad::default(); ranks.max(1)], reported_at: None, first: 0 }
    }

    /// The rank for the next request. `in_flight` is the number of requests sent to a rank that have not ended; `load` is
    /// asked for every rank when a report is due.
    pub fn choose(
        &mut self,
        now: Moment,
        in_flight: impl Fn(usize) -> usize,
        load: impl Fn(usize) -> RankLoad,
    ) -> usize {
        if self.reported_at.is_none_or(|at| now.since(at) >= REPORT_INTERVAL) {
            self.reported_at = Some(now);
            self.reported.iter_mut().enumerate().for_each(|(rank, reported)| *reported = load(rank));
        }
        let ranks = self.reported.len();
        let score = |rank: &usize| score(&self.reported[*rank], in_flight(*rank));
        let order = (0..ranks).map(|step| (self.first + step) % ranks);
        let best = order.map(|rank| (rank, score(&rank))).min_by(|a, b| a.1.total_cmp(&b.1)).map_or(0, |best| best.0);
        self.reported[best].waiting += 1;
        self.first = (self.first + 1) % ranks;
        best
    }
}

fn score(reported: &RankLoad, in_flight: usize) -> f64 {
    let known = f64::from(reported.waiting + reported.running).max(in_flight as f64);
    known + f64::from(reported.waiting) * QUEUE_PENALTY * (reported.kv_usage - PENALTY_FREE_USAGE).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Moment {
        Moment::ORIGIN + Duration::from_millis(ms)
    }

    #[test]
    fn a_queue_counts_extra_where_kv_memory_is_full() {
        let choose = |kv_usage| {
            let loads =
                [RankLoad { waiting: 0, running: 12, kv_usage: 0.4 }, RankLoad { waiting: 4, running: 5, kv_usage }];
            RankChoice::new(2).choose(at(0), |_| 0, |rank| loads[rank])
        };
        assert_eq!(choose(0.4), 1, "9 against 12");
        assert_eq!(choose(0.9), 0, "9 + 4 × 6 × 0.4 against 12");
    }

    #[test]
    fn a_burst_between_two_reports_is_spread() {
        let mut choice = RankChoice::new(4);
        let mut taken = [0_usize; 4];
        for _ in 0..40 {
            taken[choice.choose(at(5), |rank| taken[rank], |_| RankLoad::default())] += 1;
        }
        assert_eq!(taken, [10; 4]);
    }

    #[test]
    fn what_happened_since_the_last_report_is_known_for_own_requests_only() {
        let busy = |rank| RankLoad { running: if rank == 0 { 50 } else { 0 }, ..RankLoad::default() };
        let mut choice = RankChoice::new(2);
        assert_eq!(choice.choose(at(0), |_| 0, |_| RankLoad::default()), 0);
        // The load of rank 0 is not reported yet; three requests sent to rank 1 are known.
        assert_eq!(choice.choose(at(60), |rank| [1, 3][rank], busy), 0);
        assert_eq!(choice.choose(at(100), |rank| [2, 3][rank], busy), 1);
    }
}
