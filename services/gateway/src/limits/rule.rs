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

use crate::auth::{By, Identity as Caller};

/// Locks of one rule, so that cores seldom meet.
const SHARDS: usize = 16;

/// Keys with an account of their own under all rules of a process together: at some 120 bytes each, 32 MiB.
const KEYS_MAX: usize = 1 << 18;
/// The same under one rule at most.
const KEYS_PER_RULE_MAX: usize = 1 << 16;
/// The same under one rule at least, however many rules there are.
const KEYS_PER_RULE_MIN: usize = 1 << 10;

/// What makes a limit the same one in two configurations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The pool whose limit it is; `None` for one of all pools.
    pub pool: Option<Arc<str>>,
    /// Its name.
    pub name: Arc<str>,
    /// What tells callers apart; headers in lower case.
    key: LimitKey,
}

/// A limit and the accounts of all its callers.
pub struct Rule {
    identity: Identity,
    teller: Teller,
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
        // Written either way, it is the same limit.
        let key = match &limit.key {
            LimitKey::Header(name) if *name == *AUTHORIZATION.as_str() => LimitKey::Authorization,
            key @ (LimitKey::Header(_) | LimitKey::Authorization | LimitKey::Claim(_)) => key.clone(),
        };
        Self { pool: pool.map(Into::into), name: limit.name.as_str().into(), key }
    }
}

/// How requests are told apart.
enum Teller {
    Header(HeaderName),
    Authorization,
    Claim(Box<str>),
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
        let teller = match &identity.key {
            LimitKey::Header(name) => Teller::Header(
                HeaderName::from_bytes(name.as_bytes())
                    .expect("names of headers are checked when a configuration is loaded"),
            ),
            LimitKey::Authorization => Teller::Authorization,
            LimitKey::Claim(name) => Teller::Claim(name.as_str().into()),
        };
        Arc::new(Self {
            identity,
            teller,
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

    /// Whose request this is. Requests without the header or claim, or with an empty one, are one caller's; of several values
    /// of a header the last counts, since a proxy that does not replace a client's header adds its own behind it. A claim that
    /// is a list is told apart by all of it.
    pub fn key_of(&self, headers: &HeaderMap, caller: Option<&Caller>) -> Key {
        let last = |name| headers.get_all(name).iter().next_back().map(|value| value.as_bytes()).unwrap_or_default();
        Key(match &self.teller {
            Teller::Header(name) => self.secret.hash_one(last(name)),
            // A client's key may come in several headers, and change: the client is the same.
            Teller::Authorization => match caller.filter(|caller| caller.by() == By::Key) {
                Some(client) => self.secret.hash_one(client.subject()),
                None => self.secret.hash_one(last(&AUTHORIZATION)),
            },
            Teller::Claim(name) => match caller.map(|caller| caller.claim(name)).unwrap_or_default() {
                [text] => self.secret.hash_one(text.as_bytes()),
                [] => self.secret.hash_one([0_u8; 0].as_slice()),
                several => self.secret.hash_one(several),
            },
        })
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
