//! Forms the batch of one step: running requests first, in order, each with what it still has to compute; the last one
//! gives way when blocks run out; then, if nobody had to, the head of the queue.
//!
//! With a step in flight the batch is that of the step after it, formed as if the one in flight had ended, but without
//! what only its end frees. Tokens in flight of a request that gives way are lost.

use std::collections::BTreeSet;

use pool::Moment;

use super::{Engine, Sequence};
use crate::{AdapterId, Batch, EventKind, Policy};

/// A running request could not be given its blocks, even by preempting others: it is itself preempted.
#[derive(Debug, PartialEq, Eq)]
struct GaveWay;

impl Engine {
    /// Schedules tokens for the step that begins at `at`.
    pub(super) fn form_batch(&mut self, at: Moment) -> Batch {
        let mut budget = self.profile.max_batched_tokens;
        let preemptions = self.stats.counters.preemptions;
        self.schedule_running(&mut budget, at);
        if self.stats.counters.preemptions == preemptions {
            self.schedule_waiting(&mut budget, at);
        }
        self.describe_batch()
    }

    fn schedule_running(&mut self, budget: &mut u32, at: Moment) {
        let mut index = 0;
        while index < self.running.len() && *budget > 0 {
            let tokens = self.running[index].missing_after().min(*budget);
            if tokens == 0 {
                index += 1;
                continue;
            }
            self.expect_decoding(index);
            // One that gave way left its place to the next, for whom the blocks given up may well be enough.
            if self.make_room(&mut index, tokens, budget, at) == Ok(()) {
                self.grow(index, tokens);
                *budget -= tokens;
                index += 1;
            }
        }
    }

    /// Preempts until the sequence at `index` can have blocks for `tokens` more. `index` follows the sequence.
    fn make_room(&mut self, index: &mut usize, tokens: u32, budget: &mut u32, at: Moment) -> Result<(), GaveWay> {
        while self.blocks_short(&self.running[*index], tokens) > self.blocks.free() {
            let victim = self.victim();
            *budget += self.preempt(victim, at);
            match victim.cmp(index) {
                std::cmp::Ordering::Equal => return Err(GaveWay),
                std::cmp::Ordering::Less => *index -= 1,
                std::cmp::Ordering::Greater => {}
            }
        }
        Ok(())
    }

    /// Which running request gives way.
    fn victim(&self) -> usize {
        let last = self.running.len() - 1;
        match self.profile.policy {
            Policy::Fcfs => last,
            Policy::Priority => (0..=last).max_by_key(|i| self.running[*i].rank()).unwrap_or(last),
        }
    }

    /// Takes a running request's blocks and puts it back in front. Returns the tokens it had scheduled in this step.
    fn preempt(&mut self, victim: usize, at: Moment) -> u32 {
        let mut sequence = self.running.remove(victim);
        let returned = if self.in_flight.is_some() { sequence.ahead } else { sequence.scheduled };
        self.let_go(&mut sequence);
        sequence.reset();
        sequence.preemptions += 1;
        self.stats.counters.preemptions += 1;
        self.emit(sequence.request.id, at, EventKind::Preempted);
        match self.profile.policy {
            Policy::Fcfs => self.waiting.push_front(sequence),
            Policy::Priority => self.enqueue(sequence),
        }
        returned
    }

    fn schedule_waiting(&mut self, budget: &mut u32, at: Moment) {
        let mut adapters: BTreeSet<AdapterId> = self.running.iter().filter_map(|s| s.adapter()).collect();
        let slots = self.profile.max_loras as usize;
        let mut index = 0;
        while *budget > 0 && index < self.waiting.len() && self.running.len() < self.profile.max_seqs as usize {
            let sequence = &mut self.waiting[index];
            let adapter = sequence.adapter();
            sequence.deferred = adapter.is_some_and(|a| adapters.len() >= slots && !adapters.contains(&a));
            if sequence.deferred {
                index += 1;
                continue;
            }
            let Some(tokens) = self.admit(index, *budget, at) else { break };
            *budget -= tokens;
            adapters.extend(adapter);
        }
    }

    /// Blocks a sequence lacks to hold `tokens` more.
    pub(super) fn blocks_short(&self, sequence: &Sequence, tokens: u32) -> u32 {
        let needed = (sequence.position() + tokens).div_ceil(self.profile.block_tokens);
        needed.saturating_sub(sequence.blocks.len() as u32)
    }

    /// Gives the running sequence at `index` the blocks for `tokens` more, and lets full ones be found by others.
    pub(super) fn grow(&mut self, index: usize, tokens: u32) {
        let short = self.blocks_short(&self.running[index], tokens);
        let sequence = &mut self.running[index];
        for _ in 0..short {
            let block = self.blocks.take().expect("the caller made sure of free blocks");
            sequence.blocks.push(block);
            if sequence.decoding {
                self.readers.begin(&[block]);
            }
        }
        let full = ((sequence.position() + tokens) / self.profile.block_tokens) as usize;
        match self.in_flight {
            Some(_) => sequence.ahead = tokens,
            None => sequence.scheduled = tokens,
        }
        sequence.extend_chains(full);
        for position in sequence.cached_blocks..full {
            self.blocks.cache(sequence.blocks[position], sequence.chains[position]);
        }
        if full > sequence.cached_blocks {
            self.blocks.note_stored(sequence.request.id, &sequence.chains[..full], sequence.cached_blocks);
            sequence.cached_blocks = full;
        }
    }

    /// Counts a sequence's blocks among those decodes read, if the step in flight ends its prefill.
    fn expect_decoding(&mut self, index: usize) {
        let sequence = &mut self.running[index];
        if !sequence.decoding && sequence.brings_token() {
            sequence.decoding = true;
            self.readers.begin(&sequence.blocks);
        }
    }

    /// Frees what a sequence that leaves the batch holds.
    pub(super) fn let_go(&mut self, sequence: &mut Sequence) {
        if std::mem::take(&mut sequence.decoding) {
            self.readers.end(&sequence.blocks);
        }
        self.blocks.release(&sequence.blocks);
        sequence.blocks.clear();
    }

    /// Adds up what the scheduled tokens cost.
    fn describe_batch(&self) -> Batch {
        let mut batch = Batch::default();
        let block_tokens = u64::from(self.profile.block_tokens);
        let mut unfilled = 0;
        for sequence in &self.running {
            let (before, tokens) = match self.in_flight {
                Some(_) => (sequence.position(), sequence.ahead),
                None => (sequence.computed, sequence.scheduled),
            };
            if sequence.decoding {
                batch.decodes += u32::from(tokens > 0);
                // Only the last block of a sequence can be partly filled, and it is never shared.
                unfilled += sequence.blocks.len() as u64 * block_tokens - u64::from(before + tokens);
            } else {
                let (before, chunk) = (f64::from(before), f64::from(tokens));
                batch.prefill_tokens += u64::from(tokens);
                batch.attention_pairs += chunk * (before + chunk / 2.0);
            }
        }
        batch.kv_tokens = u64::from(self.readers.distinct()) * block_tokens - unfilled;
        batch
    }
}
