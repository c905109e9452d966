//! The accounts of every key under one quota, or under one shard of it.
//!
//! Keys come from the wire, so their number is bounded. An account that is full and held by nobody says nothing that a
//! fresh one would not say, and goes as new keys come. When there is none to go, further keys share one account of the
//! same size: somebody who invents keys squeezes other newcomers, never those who are known.

use std::{
    collections::HashMap,
    hash::{BuildHasherDefault, Hasher},
};

use pool::Moment;

use super::{
    End, Key, Left, Rates, Refusal, Tokens, Unit, Until,
    bucket::{At, Bucket},
};

/// Accounts looked at for one to go when a new key comes; two more than one, so that a crowd that left is forgotten as
/// fast as another comes.
const LOOKS: usize = 3;
/// The same when there is no room.
const LOOKS_WITHOUT_ROOM: usize = 64;

/// The accounts of many keys. Owned by one task or behind one lock.
#[derive(Debug)]
pub struct Table {
    rates: Rates,
    keys_max: usize,
    places: HashMap<Key, usize, BuildHasherDefault<KeyHasher>>,
    accounts: Vec<(Key, Account)>,
    /// Where to look next for one to go.
    hand: usize,
    shared: Account,
    in_use: u64,
}

/// What one request holds of a quota, from [`Table::take`] to [`Table::end`].
#[must_use = "a hold that is not ended occupies its caller's quota for ever"]
#[derive(Debug)]
pub struct Hold {
    owner: Owner,
    /// By [`Unit::index`].
    charged: [u64; Unit::RATES.len()],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    Key(Key),
    Shared,
}

#[derive(Clone, Copy, Debug, Default)]
struct Account {
    /// By [`Unit::index`].
    buckets: [Bucket; Unit::RATES.len()],
    in_use: u64,
}

impl Hold {
    /// Whether it is on the account that keys share for which there was no room.
    pub fn is_shared(&self) -> bool {
        self.owner == Owner::Shared
    }
}

impl Table {
    /// No accounts, and room for so many.
    pub fn new(rates: Rates, keys_max: usize) -> Self {
        Self {
            rates,
            keys_max,
            places: HashMap::default(),
            accounts: Vec::new(),
            hand: 0,
            shared: Account::default(),
            in_use: 0,
        }
    }

    /// Puts other numbers in force. What keys have used stays used, as the same share of a minute.
    pub fn configure(&mut self, rates: Rates, keys_max: usize, now: Moment) {
        self.keys_max = keys_max;
        let old = std::mem::replace(&mut self.rates, rates);
        if old != rates {
            for account in self.accounts.iter_mut().map(|(_, account)| account).chain([&mut self.shared]) {
                account.convert(&old, &rates, now);
            }
        }
    }

    /// Whether a request with these tokens, estimated, is within what `key` has left. Changes nothing that anybody could
    /// tell.
    ///
    /// # Errors
    /// With the number that keeps it out longest.
    pub fn check(&mut self, key: Key, tokens: Tokens, now: Moment) -> Result<(), Refusal> {
        let owner = self.owner(key, now);
        let account = self.account(owner);
        let refusals = Unit::ALL.into_iter().filter_map(|unit| account.refuse(unit, &self.rates, tokens, now));
        refusals.max_by_key(|refusal| refusal.until).map_or(Ok(()), Err)
    }

    /// Charges `key` for such a request. Whether it may is [`Table::check`]'s question, asked before of this table and of
    /// every other that counts for the request.
    pub fn take(&mut self, key: Key, tokens: Tokens, now: Moment) -> Hold {
        let owner = self.owner(key, now);
        let mut hold = Hold { owner, charged: [0; Unit::RATES.len()] };
        for unit in Unit::RATES {
            if let Some(rate) = self.rates.of(unit) {
                hold.charged[unit.index()] = tokens.cost(unit);
                self.account_mut(owner).buckets[unit.index()].take(tokens.cost(unit), At::new(rate, now));
            }
        }
        self.account_mut(owner).in_use += 1;
        self.in_use += 1;
        hold
    }

    /// The request has taken these tokens, as is known now: more or less than was charged before.
    pub fn settle(&mut self, hold: &mut Hold, tokens: Tokens, now: Moment) {
        let rates = self.rates;
        let account = self.account_mut(hold.owner);
        for unit in [Unit::Tokens, Unit::InputTokens, Unit::OutputTokens] {
            let Some(rate) = rates.of(unit) else { continue };
            let (bucket, charged) = (&mut account.buckets[unit.index()], &mut hold.charged[unit.index()]);
            let due = tokens.cost(unit);
            if due > *charged {
                *charged += bucket.debit(due - *charged, At::new(rate, now));
            } else {
                bucket.give_back(*charged - due);
                *charged = due;
            }
        }
    }

    /// The request is over.
    pub fn end(&mut self, mut hold: Hold, end: End, now: Moment) {
        match end {
            End::Took(tokens) => self.settle(&mut hold, tokens, now),
            End::NotServed => {
                let account = self.account_mut(hold.owner);
                for (bucket, charged) in account.buckets.iter_mut().zip(hold.charged) {
                    bucket.give_back(charged);
                }
            }
        }
        self.account_mut(hold.owner).in_use -= 1;
        self.in_use -= 1;
    }

    /// What `key` has left of a unit that is so many per minute; None if that is not limited.
    pub fn left(&self, key: Key, unit: Unit, now: Moment) -> Option<Left> {
        let fresh = Account::default();
        let account = match self.places.get(&key) {
            Some(place) => &self.accounts[*place].1,
            None if self.accounts.len() < self.keys_max => &fresh,
            None => &self.shared,
        };
        let (rate, bucket) = (self.rates.of(unit)?, account.buckets.get(unit.index())?);
        let at = At::new(rate, now);
        Some(Left { limit: rate.get(), remaining: bucket.remaining(at), full_in: bucket.full_in(at) })
    }

    /// Keys with an account of their own.
    pub fn keys(&self) -> usize {
        self.accounts.len()
    }

    /// Requests that hold something.
    pub fn in_use(&self) -> u64 {
        self.in_use
    }

    /// Whose account counts for `key`: its own if there is one, or room for one.
    fn owner(&mut self, key: Key, now: Moment) -> Owner {
        if self.places.contains_key(&key) {
            return Owner::Key(key);
        }
        self.forget_some(now);
        if self.accounts.len() >= self.keys_max {
            return Owner::Shared;
        }
        self.places.insert(key, self.accounts.len());
        self.accounts.push((key, Account::default()));
        Owner::Key(key)
    }

    fn forget_some(&mut self, now: Moment) {
        let looks = if self.accounts.len() < self.keys_max { LOOKS } else { LOOKS_WITHOUT_ROOM };
        for _ in 0..looks.min(self.accounts.len()) {
            self.hand = if self.hand < self.accounts.len() { self.hand } else { 0 };
            let Some((key, account)) = self.accounts.get(self.hand) else { return };
            if !account.is_fresh(&self.rates, now) {
                self.hand += 1;
                continue;
            }
            self.places.remove(key);
            self.accounts.swap_remove(self.hand);
            if let Some((moved, _)) = self.accounts.get(self.hand) {
                self.places.insert(*moved, self.hand);
            }
        }
    }

    fn account(&self, owner: Owner) -> &Account {
        match owner {
            Owner::Key(key) => &self.accounts[self.places[&key]].1,
            Owner::Shared => &self.shared,
        }
    }

    fn account_mut(&mut self, owner: Owner) -> &mut Account {
        match owner {
            // An account that a hold is on is never forgotten.
            Owner::Key(key) => &mut self.accounts[self.places[&key]].1,
            Owner::Shared => &mut self.shared,
        }
    }
}

impl Account {
    /// Whether a new account would say the same.
    fn is_fresh(&self, rates: &Rates, now: Moment) -> bool {
        let is_full =
            |unit: Unit| rates.of(unit).is_none_or(|rate| self.buckets[unit.index()].is_full(At::new(rate, now)));
        self.in_use == 0 && Unit::RATES.into_iter().all(is_full)
    }

    fn refuse(&self, unit: Unit, rates: &Rates, tokens: Tokens, now: Moment) -> Option<Refusal> {
        let limit = rates.of(unit)?;
        let asked = tokens.cost(unit);
        let until = match self.buckets.get(unit.index()) {
            _ if asked > limit.get() => Until::Never,
            None => (self.in_use >= limit.get()).then_some(Until::OneEnds)?,
            // What costs nothing passes, also a caller in debt.
            Some(_) if asked == 0 => return None,
            Some(bucket) => {
                let wait = bucket.wait(asked, At::new(limit, now));
                (!wait.is_zero()).then_some(Until::After(wait))?
            }
        };
        Some(Refusal { unit, limit: limit.get(), asked, until })
    }

    fn convert(&mut self, from: &Rates, to: &Rates, now: Moment) {
        for unit in Unit::RATES {
            let bucket = &mut self.buckets[unit.index()];
            match (from.of(unit), to.of(unit)) {
                (Some(from), Some(to)) => bucket.convert(At::new(from, now), At::new(to, now)),
                (None, _) | (_, None) => *bucket = Bucket::default(),
            }
        }
    }
}

/// Keys are hashes already.
#[derive(Default)]
struct KeyHasher(u64);

impl Hasher for KeyHasher {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, key: u64) {
        self.0 = key;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
