//! Quotas of callers: so many requests and tokens per minute, so many requests at a time.
//!
//! What a request will take of its caller's tokens is known only at its end, so it is charged an estimate when it comes
//! and settled by what was counted: a [`Hold`] stands for it in between. Rates are kept by the generic cell rate
//! algorithm, one number per key and unit: no timer fills anything up, an untouched key costs nothing, and at any time a
//! caller has at most one minute's amount at hand. All numbers are whole, so nothing is rounded away: what is
//! reserved and given back leaves no trace.
//!
//! The promise: over any time, what was reserved less what was given back in that time is at most the rate times that
//! time plus one minute's amount. What an answer takes beyond its estimate is a debt that keeps its caller's next
//! requests out (up to an hour's amount), never a reason to cut a running answer.
//!
//! It refuses to know what a key is: its owner hashes callers, with a secret, so that nobody can look for a collision.

mod bucket;
mod table;

use std::{num::NonZeroU64, time::Duration};

pub use table::{Hold, Table};

/// What a quota counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Unit {
    /// Requests per minute.
    Requests,
    /// Tokens of prompts and answers together, per minute.
    Tokens,
    /// Tokens of prompts, per minute.
    InputTokens,
    /// Tokens of answers, per minute.
    OutputTokens,
    /// Requests at the same time.
    Concurrency,
}

impl Unit {
    /// How many there are.
    pub const COUNT: usize = 5;
    /// All of them.
    pub const ALL: [Self; Self::COUNT] =
        [Self::Requests, Self::Tokens, Self::InputTokens, Self::OutputTokens, Self::Concurrency];
    /// Those that are so many per minute.
    pub const RATES: [Self; Self::COUNT - 1] = [Self::Requests, Self::Tokens, Self::InputTokens, Self::OutputTokens];

    /// Its place in a table of all units.
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The word for metrics.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Requests => "requests",
            Self::Tokens => "tokens",
            Self::InputTokens => "input_tokens",
            Self::OutputTokens => "output_tokens",
            Self::Concurrency => "concurrent_requests",
        }
    }
}

/// The numbers of one quota. None: not limited in this unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rates {
    /// Requests per minute.
    pub requests: Option<NonZeroU64>,
    /// Tokens of prompts and answers together, per minute.
    pub tokens: Option<NonZeroU64>,
    /// Tokens of prompts, per minute.
    pub input_tokens: Option<NonZeroU64>,
    /// Tokens of answers, per minute.
    pub output_tokens: Option<NonZeroU64>,
    /// Requests at the same time.
    pub concurrent_requests: Option<NonZeroU64>,
}

impl Rates {
    /// The number for a unit.
    pub const fn of(&self, unit: Unit) -> Option<NonZeroU64> {
        match unit {
            Unit::Requests => self.requests,
            Unit::Tokens => self.tokens,
            Unit::InputTokens => self.input_tokens,
            Unit::OutputTokens => self.output_tokens,
            Unit::Concurrency => self.concurrent_requests,
        }
    }
}

/// Tokens of one request, estimated or counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tokens {
    /// Of the prompt.
    pub input: u64,
    /// Of the answer.
    pub output: u64,
}

impl Tokens {
    /// What a request with these tokens takes of a unit.
    pub const fn cost(self, unit: Unit) -> u64 {
        match unit {
            Unit::Requests | Unit::Concurrency => 1,
            Unit::Tokens => self.input.saturating_add(self.output),
            Unit::InputTokens => self.input,
            Unit::OutputTokens => self.output,
        }
    }
}

/// Whose quota: a hash of the caller, made with a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key(pub u64);

/// Why a request is beyond its caller's quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Which number it is beyond.
    pub unit: Unit,
    /// That number.
    pub limit: u64,
    /// What the request would take of it.
    pub asked: u64,
    /// When the same request would pass.
    pub until: Until,
}

/// When a refused request would pass. The order is that of hopelessness.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Until {
    /// As soon as another request of the caller ends.
    OneEnds,
    /// After this time, if the caller sends nothing else.
    After(Duration),
    /// Never: it alone takes more than a whole minute's amount.
    Never,
}

/// What a caller has left of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Left {
    /// The quota.
    pub limit: u64,
    /// Whole units that would pass now.
    pub remaining: u64,
    /// Time until everything is there again, if nothing else comes.
    pub full_in: Duration,
}

/// How a request's hold ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It was not served: everything goes back, the request itself, too.
    NotServed,
    /// It was served, or its caller gave it up: it took these tokens.
    Took(Tokens),
}

#[cfg(test)]
mod tests;
