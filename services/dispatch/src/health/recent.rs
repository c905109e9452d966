//! Answers of the last ten seconds, counted by second.

use pool::Moment;

/// The window, in seconds.
const WINDOW_S: usize = 10;

/// Fewer answers than this say nothing.
const ANSWERS_MIN: u32 = 10;

/// See the module's text.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Recent {
    /// By second of the time line, modulo the window.
    seconds: [Counts; WINDOW_S],
    /// The second last counted in.
    newest_s: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    answers: u32,
    failures: u32,
}

impl Recent {
    pub(super) fn succeeded(&mut self, now: Moment) {
        let counts = self.second(now);
        counts.answers = counts.answers.saturating_add(1);
    }

    pub(super) fn failed(&mut self, now: Moment) {
        let counts = self.second(now);
        counts.answers = counts.answers.saturating_add(1);
        counts.failures = counts.failures.saturating_add(1);
    }

    /// Whether half or more of enough answers failed.
    pub(super) fn is_half_failed(&mut self, now: Moment) -> bool {
        self.second(now);
        let sum = |count: fn(&Counts) -> u32| self.seconds.iter().map(|c| u64::from(count(c))).sum::<u64>();
        let (answers, failures) = (sum(|c| c.answers), sum(|c| c.failures));
        answers >= u64::from(ANSWERS_MIN) && failures * 2 >= answers
    }

    /// This second's counts, with all that is older than the window forgotten.
    fn second(&mut self, now: Moment) -> &mut Counts {
        // Time that goes back a little (two cores, one lock) counts as the newest second.
        let now_s = now.since_origin().as_secs().max(self.newest_s);
        let passed = usize::try_from(now_s - self.newest_s).unwrap_or(WINDOW_S).min(WINDOW_S);
        for back in 0..passed {
            self.seconds[place(now_s - back as u64)] = Counts::default();
        }
        self.newest_s = now_s;
        &mut self.seconds[place(now_s)]
    }
}

const fn place(second: u64) -> usize {
    (second % WINDOW_S as u64) as usize
}
