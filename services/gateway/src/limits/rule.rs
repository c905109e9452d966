//! One limit of the configuration, with its accounts behind short locks.

use std::{
    hash::{BuildHasher, RandomState},
    sync::{Arc, OnceLock},
};

use api::LimitKey;
use flow_control::quota::{Key, Rates, Table, Unit};
use http::{HeaderMap, HeaderName, header::AUTHORIZATION};
use parking_lot::{Mutex, MutexGuard};
use pool::Moment;
use telemetry::{
    Counter, Metrics,
    catalog::{LIMIT_KEYS_SHARED, LIMIT_REJECTIONS},
};

/// Locks of one rule, so that cores seldom meet.
const SHARDS: usize = 16;

/// Keys with an account of their own under all rules of a process together: at some 120 bytes each, 32 MiB.
const KEYS_MAX: usize = 1 << 18;
/// The same under one rule at most.
const KEYS_PER_RULE_MAX: usize = 1 << 16;
/// The same under one rule at least, however many rules there are.
const KEYS_PER_RULE_MIN: usize = 1 << 10;

/// What makes a limit the same one in two configurations.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Identity {
    /// The pool whose limit it is; `None` for one of all pools.
    pub pool: Option<Arc<str>>,
    /// Its name.
    pub name: Arc<str>,
    /// The header that tells callers apart, in lower case.
    header: String,
}

/// A limit and the accounts of all its callers.
pub struct Rule {
    identity: Identity,
    header: HeaderName,
    /// Keys are told from each other by hashes that nobody outside can aim at.
    secret: RandomState,
    shards: [Mutex<Table>; SHARDS],
    metrics: Metrics,
    rejections: [OnceLock<Counter>; Unit::COUNT],
    shared: OnceLock<Counter>,
}

impl Identity {
    /// Of a limit of this pool, or of all pools.
    pub fn new(pool: Option<&str>, limit: &api::Limit) -> Self {
        let header = match &limit.key {
            LimitKey::Header(name) => name.clone(),
            LimitKey::Authorization => AUTHORIZATION.as_str().to_owned(),
        };
        Self { pool: pool.map(Into::into), name: limit.name.as_str().into(), header }
    }
}

/// The numbers of a limit.
pub fn rates(limit: &api::Limit) -> Rates {
    Rates {
        requests: limit.requests_per_minute,
        tokens: limit.tokens_per_minute,
        input_tokens: limit.input_tokens_per_minute,
        output_tokens: limit.output_tokens_per_minute,
        concurrent_requests: limit.concurrent_requests,
    }
}

impl Rule {
    /// A limit that nobody has used yet. It gets its numbers by [`Rule::configure`].
    pub fn new(identity: Identity, metrics: &Metrics) -> Arc<Self> {
        let header = HeaderName::from_bytes(identity.header.as_bytes())
            .expect("names of headers are checked when a configuration is loaded");
        Arc::new(Self {
            identity,
            header,
            secret: RandomState::new(),
            shards: std::array::from_fn(|_| Mutex::new(Table::new(Rates::default(), 0))),
            metrics: metrics.clone(),
            rejections: [const { OnceLock::new() }; Unit::COUNT],
            shared: OnceLock::new(),
        })
    }

    /// Puts these numbers in force, as one of so many rules.
    pub fn configure(&self, rates: Rates, rules: usize, now: Moment) {
        let keys_max = (KEYS_MAX / rules.max(1)).clamp(KEYS_PER_RULE_MIN, KEYS_PER_RULE_MAX) / SHARDS;
        for shard in &self.shards {
            shard.lock().configure(rates, keys_max, now);
        }
    }

    /// What makes it the same limit in another configuration.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Its configured name.
    pub fn name(&self) -> &str {
        &self.identity.name
    }

    /// Whose request this is. Requests without the header, or with an empty one, are one caller's; of several values the
    /// last counts, since a proxy that does not replace a client's header adds its own behind it.
    pub fn key_of(&self, headers: &HeaderMap) -> Key {
        let value = headers.get_all(&self.header).iter().next_back();
        Key(self.secret.hash_one(value.map(|value| value.as_bytes()).unwrap_or_default()))
    }

    /// The accounts among which a key's is. Hold it for no longer than a look or a change takes.
    pub fn lock(&self, key: Key) -> MutexGuard<'_, Table> {
        // By the upper bits: the lower ones place a key inside its table.
        self.shards[usize::try_from(key.0 >> 60).unwrap_or_default() % SHARDS].lock()
    }

    /// Keys with an account of their own, and requests that hold something.
    pub fn levels(&self) -> (usize, u64) {
        let tables = self.shards.iter().map(|shard| {
            let table = shard.lock();
            (table.keys(), table.in_use())
        });
        tables.fold((0, 0), |(keys, in_use), (more_keys, more_in_use)| (keys + more_keys, in_use + more_in_use))
    }

    pub(super) fn count_rejection(&self, unit: Unit) {
        let counter = || self.metrics.counter(&LIMIT_REJECTIONS, &[self.name(), unit.label()]);
        self.rejections[unit.index()].get_or_init(counter).increment(1);
    }

    pub(super) fn count_shared(&self) {
        self.shared.get_or_init(|| self.metrics.counter(&LIMIT_KEYS_SHARED, &[self.name()])).increment(1);
    }
}
