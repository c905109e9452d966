//! A decision in words, for people.

use std::fmt::Write;

use scheduling::Scorer;

use crate::{Basis, Considered, Decision, PickReason};

impl Decision {
    /// One or two sentences: who was picked, why, and what it rests on.
    pub fn explain(&self) -> String {
        let mut text = String::new();
        let mut rated = self.candidates.iter().filter(|c| c.rejected.is_none());
        match (self.reason, rated.next()) {
            (PickReason::NoEndpoint, _) => text.push_str("no endpoint can take the request"),
            (PickReason::PoolFull, _) => text.push_str("every endpoint is full"),
            (PickReason::BandFull, _) => text.push_str("what room there is is kept for requests of a higher priority"),
            (PickReason::OthersWait, _) => text.push_str("others that go first are waiting"),
            (_, None) => text.push_str("the picked endpoint is not in the record"),
            (reason, Some(best)) => {
                let (name, total) = (&best.name, best.total);
                let tie = match reason {
                    PickReason::OnlyCandidate => format!("{name} is the only candidate"),
                    PickReason::TieByPrefix => {
                        format!(
                            "{name} shares the highest score, {total:.3}, and wins the draw for this prompt's beginning"
                        )
                    }
                    PickReason::TieByLeastRecent => {
                        format!("{name} shares the highest score, {total:.3}, and was chosen longest ago")
                    }
                    PickReason::HighestScore
                    | PickReason::NoEndpoint
                    | PickReason::PoolFull
                    | PickReason::BandFull
                    | PickReason::OthersWait => {
                        format!("{name} has the highest score, {total:.3}")
                    }
                };
                text.push_str(&tie);
                parts(&mut text, best);
                if let Some(next) = rated.next() {
                    let _ = write!(text, "; next is {} with {:.3}", next.name, next.total);
                    parts(&mut text, next);
                }
            }
        }
        self.left_out(&mut text);
        text.push_str(match self.basis {
            Basis::Reports => "",
            Basis::OwnWork => ". Endpoints report nothing: own requests in flight were counted",
            Basis::OwnWorkWhileStarting => ". No endpoint was read yet: own requests in flight were counted",
            Basis::OwnWorkAllStale => ". All reports are too old: own requests in flight were counted",
        });
        text.push('.');
        text
    }

    fn left_out(&self, text: &mut String) {
        let mut separator = "; left out: ";
        for candidate in &self.candidates {
            if let Some(why) = candidate.rejected {
                let _ = write!(text, "{separator}{} ({why})", candidate.name);
                separator = ", ";
            }
        }
        if self.omitted > 0 {
            let _ = write!(text, "; {} more not listed", self.omitted);
        }
    }
}

/// The parts of a total that count: scorer, weighted score.
fn parts(text: &mut String, candidate: &Considered) {
    let mut separator = " (";
    for (scorer, score) in Scorer::ALL.iter().zip(&candidate.scores).filter(|(_, s)| s.weight > 0) {
        let _ = write!(text, "{separator}{} {:.3}", scorer.as_str(), f64::from(score.weight) * score.score);
        separator = ", ";
    }
    if separator == ", " {
        text.push(')');
    }
}
