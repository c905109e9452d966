//! From submission to the batch: the API server's delay, the queue, the lookup in the prefix cache.

use pool::Moment;

use super::{Engine, Sequence};
use crate::{EventKind, Policy};

impl Engine {
    /// Queues what has left the API server by `at`.
    pub(super) fn admit_arrivals(&mut self, at: Moment) {
        while let Some(entry) = self.arriving.first_entry() {
            if entry.key().0 > at {
                break;
            }
            let sequence = entry.remove();
            self.enqueue(sequence);
        }
    }

    /// Puts a sequence where the policy wants it.
    pub(super) fn enqueue(&mut self, sequence: Sequence) {
        let place = match self.profile.policy {
            Policy::Fcfs => self.waiting.len(),
            Policy::Priority => self.waiting.partition_point(|other| other.rank() <= sequence.rank()),
        };
        self.waiting.insert(place, sequence);
    }

    /// Moves the waiting sequence at `index` into the batch with as many tokens as fit into `budget`, and says how
    /// many. `None` when its blocks are not to be had: then it stays where it is.
    pub(super) fn admit(&mut self, index: usize, budget: u32, at: Moment) -> Option<u32> {
        let block_tokens = self.profile.block_tokens;
        let sequence = &mut self.waiting[index];
        let known = sequence.known();
        // At least one token must be computed, or there would be nothing to sample from.
        let usable = ((known - 1) / block_tokens) as usize;
        sequence.extend_chains(usable);
        let found = self.blocks.find(&sequence.chains, usable);
        let cached = found.len() as u32 * block_tokens;
        let tokens = (known - cached).min(budget);
        // The whole sequence must fit, not only the chunk that is computed now: else long prompts let in side by side
        // would preempt each other half-way.
        let fresh = known.div_ceil(block_tokens) - found.len() as u32;
        if fresh + self.blocks.count_free(&found) > self.blocks.free() {
            return None;
        }
        let mut sequence = self.waiting.remove(index).expect("the index was just read");
        for &block in &found {
            self.blocks.hold(block);
        }
        sequence.cached_blocks = found.len();
        sequence.blocks = found;
        sequence.computed = cached;
        self.note_admission(&mut sequence, at);
        self.running.push(sequence);
        self.grow(self.running.len() - 1, tokens);
        Some(tokens)
    }

    /// Counts a first admission; coming back after a preemption is none.
    fn note_admission(&mut self, sequence: &mut Sequence, at: Moment) {
        if sequence.times.scheduled.is_some() {
            return;
        }
        sequence.times.scheduled = Some(at);
        sequence.cached_tokens = sequence.computed;
        self.stats.counters.prefix_queries += u64::from(sequence.known());
        self.stats.counters.prefix_hits += u64::from(sequence.computed);
        self.emit(sequence.request.id, at, EventKind::Scheduled { cached_tokens: sequence.computed });
    }
}
