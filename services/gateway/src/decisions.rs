//! The last decisions, kept as numbers in a bounded ring; their words are made when someone asks.
//!
//! Split in shards so that cores do not wait for each other, and recycled: a full shard lends its oldest entry's buffer
//! to the next decision, so that keeping decisions allocates nothing once it is warm.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use dispatch::Decision;
use parking_lot::Mutex;
use pool::Moment;

/// Decisions kept in all.
pub const KEPT_MAX: usize = 2048;
const SHARDS: usize = 8;
const PER_SHARD: usize = KEPT_MAX / SHARDS;

/// One request's decision and what came of it.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The request.
    pub request_id: Box<str>,
    /// When it was made.
    pub at: Moment,
    /// For which pool.
    pub pool: Arc<str>,
    /// For which model, as asked.
    pub model: Arc<str>,
    /// Candidates, scores, choice.
    pub decision: Decision,
    /// What came of it; nothing while the request is open.
    pub after: Option<After>,
}

/// What came of a decision.
#[derive(Clone, Debug)]
pub struct After {
    /// Who answered, or was tried last.
    pub endpoint: Option<Arc<str>>,
    /// As sent to the client.
    pub status: u16,
    /// The request's outcome.
    pub outcome: &'static str,
    /// The band that it was served or refused in.
    pub band: &'static str,
    /// How long it took to get a place, or to be refused one, in milliseconds.
    pub queue_ms: f64,
}

/// Where a decision is kept, for saying later what came of it.
#[derive(Clone, Copy, Debug)]
pub struct Kept {
    shard: usize,
    number: u64,
}

/// The ring.
#[derive(Default)]
pub struct Decisions {
    shards: [Mutex<Shard>; SHARDS],
    next_shard: AtomicUsize,
}

#[derive(Default)]
struct Shard {
    entries: VecDeque<Entry>,
    /// Number of the oldest entry.
    oldest: u64,
}

impl Decisions {
    /// A buffer for the next decision: a forgotten one's if there is one.
    pub fn buffer(&self) -> (usize, Decision) {
        let shard = self.next_shard.fetch_add(1, Ordering::Relaxed) % SHARDS;
        let mut held = self.shards[shard].lock();
        let spare = (held.entries.len() >= PER_SHARD).then(|| {
            held.oldest += 1;
            held.entries.pop_front()
        });
        drop(held);
        (shard, spare.flatten().map(|entry| entry.decision).unwrap_or_default())
    }

    /// Keeps a decision whose buffer came from `shard`.
    pub fn keep(&self, shard: usize, entry: Entry) -> Kept {
        let mut held = self.shards[shard].lock();
        if held.entries.len() >= PER_SHARD {
            held.oldest += 1;
            held.entries.pop_front();
        }
        held.entries.push_back(entry);
        Kept { shard, number: held.oldest + held.entries.len() as u64 - 1 }
    }

    /// Puts a later decision of the same request in the place of the first; false if that is forgotten.
    pub fn revise(&self, kept: Kept, at: Moment, decision: &mut Decision) -> bool {
        let mut held = self.shards[kept.shard].lock();
        let index = kept.number.checked_sub(held.oldest).and_then(|index| usize::try_from(index).ok());
        let entry = index.and_then(|index| held.entries.get_mut(index));
        entry.is_some_and(|entry| {
            entry.at = at;
            std::mem::swap(&mut entry.decision, decision);
            true
        })
    }

    /// Says what came of it, if it is still kept.
    pub fn complete(&self, kept: Kept, after: After) {
        let mut held = self.shards[kept.shard].lock();
        let index = kept.number.checked_sub(held.oldest).and_then(|index| usize::try_from(index).ok());
        if let Some(entry) = index.and_then(|index| held.entries.get_mut(index)) {
            entry.after = Some(after);
        }
    }

    /// A decision in words, if it is still kept.
    pub fn explain(&self, kept: Kept) -> Option<String> {
        let held = self.shards[kept.shard].lock();
        let index = usize::try_from(kept.number.checked_sub(held.oldest)?).ok()?;
        held.entries.get(index).map(|entry| entry.decision.explain())
    }

    /// The newest decision for a request id.
    pub fn find(&self, request_id: &str) -> Option<Entry> {
        let found = self.shards.iter().filter_map(|shard| {
            let held = shard.lock();
            held.entries.iter().rev().find(|entry| &*entry.request_id == request_id).cloned()
        });
        found.max_by_key(|entry| entry.at)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn entry(id: &str, at_ms: u64) -> Entry {
        Entry {
            request_id: id.into(),
            at: Moment::ORIGIN + Duration::from_millis(at_ms),
            pool: "p".into(),
            model: "m".into(),
            decision: Decision::default(),
            after: None,
        }
    }

    #[test]
    fn the_newest_are_kept_and_memory_is_bounded() {
        let decisions = Decisions::default();
        let mut first = None;
        for n in 0..(KEPT_MAX as u64 + 500) {
            let (shard, _) = decisions.buffer();
            let kept = decisions.keep(shard, entry(&n.to_string(), n));
            first.get_or_insert(kept);
        }
        assert!(decisions.shards.iter().map(|s| s.lock().entries.len()).sum::<usize>() <= KEPT_MAX);
        assert!(decisions.find("0").is_none());
        assert!(decisions.find("2000").is_some());
        // What came of a forgotten one is booked on nobody else.
        decisions.complete(first.unwrap(), served());
        assert!(decisions.shards.iter().all(|s| s.lock().entries.iter().all(|e| e.after.is_none())));
    }

    fn served() -> After {
        After { endpoint: Some("e".into()), status: 200, outcome: "ok", band: "standard", queue_ms: 0.5 }
    }

    #[test]
    fn what_came_of_it_and_ids_used_twice() {
        let decisions = Decisions::default();
        decisions.keep(0, entry("same", 1));
        let kept = decisions.keep(1, entry("same", 2));
        decisions.keep(1, entry("other", 3));
        decisions.complete(kept, served());
        assert_eq!(decisions.find("same").unwrap().after.unwrap().outcome, "ok");
        assert!(decisions.find("other").unwrap().after.is_none());
    }
}
