//! Tokens that were checked a moment ago, so that a caller's next request costs a look instead of a signature.
//!
//! It keeps no tokens: their place is a hash of 128 bits under two keys that this process alone knows, so nobody can aim at
//! another's. Two generations bound it: when the younger one is full it becomes the older one, and what was not used since
//! is forgotten. Every entry dies with the keys that it was checked by.

use std::{
    collections::HashMap,
    hash::{BuildHasher, RandomState},
    sync::Arc,
    time::{Duration, SystemTime},
};

use parking_lot::Mutex;

use super::Identity;

/// Locks, so that cores seldom meet.
const SHARDS: usize = 16;
/// Tokens of one generation of one lock: some 32,000 in all, at about 300 bytes each.
const GENERATION_MAX: usize = 1024;
/// Longest time that a check counts: what a provider takes back is noticed after this at the latest, as far as its keys show
/// it.
pub(super) const CHECK_COUNTS_FOR: Duration = Duration::from_secs(300);

type Place = (u64, u64);

/// Tokens that were found to be good.
pub(super) struct Cache {
    secrets: (RandomState, RandomState),
    shards: [Mutex<Shard>; SHARDS],
}

#[derive(Default)]
struct Shard {
    younger: HashMap<Place, Entry>,
    older: HashMap<Place, Entry>,
}

#[derive(Clone)]
struct Entry {
    identity: Arc<Identity>,
    until: SystemTime,
    keys: u64,
}

impl Cache {
    pub(super) fn new() -> Self {
        let secrets = (RandomState::new(), RandomState::new());
        Self { secrets, shards: std::array::from_fn(|_| Mutex::default()) }
    }

    /// Where a token is kept.
    pub(super) fn place(&self, token: &str) -> Place {
        (self.secrets.0.hash_one(token), self.secrets.1.hash_one(token))
    }

    /// Whose token it is, if it was found good under this version of the keys.
    pub(super) fn find(&self, place: Place, keys: u64, now: SystemTime) -> Option<Arc<Identity>> {
        let mut shard = self.shard(place).lock();
        if let Some(entry) = shard.younger.get(&place) {
            return entry.if_good(keys, now);
        }
        let entry = shard.older.remove(&place)?;
        let identity = entry.if_good(keys, now)?;
        shard.keep(place, entry);
        Some(identity)
    }

    /// Remembers a good token until then.
    pub(super) fn keep(&self, place: Place, identity: &Arc<Identity>, keys: u64, until: SystemTime) {
        if identity.is_small() {
            let entry = Entry { identity: Arc::clone(identity), until, keys };
            self.shard(place).lock().keep(place, entry);
        }
    }

    fn shard(&self, place: Place) -> &Mutex<Shard> {
        &self.shards[usize::try_from(place.0 >> 60).unwrap_or_default() % SHARDS]
    }
}

impl Shard {
    fn keep(&mut self, place: Place, entry: Entry) {
        if self.younger.len() >= GENERATION_MAX {
            self.older = std::mem::take(&mut self.younger);
        }
        self.younger.insert(place, entry);
    }
}

impl Entry {
    fn if_good(&self, keys: u64, now: SystemTime) -> Option<Arc<Identity>> {
        (self.keys == keys && now < self.until).then(|| Arc::clone(&self.identity))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at_s(s: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(s)
    }

    #[test]
    fn a_check_counts_until_its_time_is_over_or_its_keys_change() {
        let cache = Cache::new();
        let (identity, place) = (Arc::new(Identity::of_key("a")), cache.place("token"));
        assert!(cache.find(place, 1, at_s(0)).is_none());
        cache.keep(place, &identity, 1, at_s(10));
        assert!(cache.find(place, 1, at_s(9)).is_some());
        assert!(cache.find(place, 1, at_s(10)).is_none(), "its time is over");
        assert!(cache.find(place, 2, at_s(9)).is_none(), "other keys");
        assert!(cache.find(cache.place("tokem"), 1, at_s(9)).is_none(), "another token");
    }

    #[test]
    fn it_is_bounded_and_keeps_what_is_used() {
        let cache = Cache::new();
        let identity = Arc::new(Identity::of_key("a"));
        let used = cache.place("used");
        cache.keep(used, &identity, 1, at_s(10));
        for number in 0..50_000 {
            cache.keep(cache.place(&number.to_string()), &identity, 1, at_s(10));
            assert!(number % 100 > 0 || cache.find(used, 1, at_s(9)).is_some(), "after {number}");
        }
        let held = |shard: &Mutex<Shard>| {
            let shard = shard.lock();
            shard.younger.len() + shard.older.len()
        };
        let kept: usize = cache.shards.iter().map(held).sum();
        assert!(kept <= SHARDS * 2 * GENERATION_MAX, "{kept}");
    }

    #[test]
    fn who_brings_a_long_list_is_not_remembered() {
        let claims = serde_json::json!({"groups": vec!["g"; 2_000]});
        let kept = super::super::Kept::new(["groups"]);
        let large = Identity::of_token(claims.as_object().unwrap(), &kept);
        assert!(!large.is_small());
        assert!(Identity::of_key("client").is_small());
    }
}
