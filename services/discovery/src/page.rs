//! Reads an engine's metrics page: bytes in, the few numbers a picker needs out.
//!
//! One pass over the slice. Most of a page is histogram lines, which are dropped by their first bytes and the length of
//! their name; only the handful of families in `dialect`'s tables are taken apart, and nothing is copied per line. A
//! full parser of the format would build thousands of samples to throw them away, five times a second per endpoint.
//!
//! The reader never fails. A page is data from outside, so whatever is good in it is used and the rest counted: a
//! broken sample costs that sample, a missing family that family. It does not know about time (the caller says what the
//! wall clock shows), about former pages, or about what a number means for picking.

mod adapters;
mod dialect;
mod sample;
mod tally;

use pool::CacheShape;

pub use adapters::ActiveAdapters;
pub use dialect::Dialect;

use crate::Engine;
use adapters::{Activity, Combination, Combinations};
use dialect::{ROWS_MAX, Row, Tells, Topic};
use tally::{Key, Tally};

/// By this name the usual client libraries of Python, Go and Rust say when their process started.
const PROCESS_START: &[u8] = b"process_start_time_seconds";

/// Times that can be a process's start: since 2001, and before milliseconds would be taken for seconds.
const UNIX_S: std::ops::Range<f64> = 1e9..1e11;

/// What one page said.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reading {
    /// Which known families were there; `None` = not one, so this is no metrics page of an engine we know.
    pub families: Option<Families>,
    /// Requests queued, summed over data-parallel ranks.
    pub waiting: Option<Number>,
    /// Requests in the running batch, summed over ranks.
    pub running: Option<Number>,
    /// Share of the KV cache in use, 0–1, mean over ranks.
    pub kv_cache: Option<Number>,
    /// Data-parallel ranks seen; 0 = none of the three signals was there.
    pub ranks: u32,
    /// Size of the KV cache over all ranks.
    pub cache: Option<CacheShape>,
    /// LoRA adapters with work.
    pub adapters: Option<ActiveAdapters>,
    /// When the process started that made the page, in Unix seconds. Pages merged from several processes leave it out.
    pub started_unix_s: Option<f64>,
    /// Samples of known families that could not be used: broken, NaN, infinite, negative or absurd.
    pub skipped_samples: u32,
}

/// A number and the family it was read from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Number {
    /// Finite and not negative.
    pub value: f64,
    /// The family's name on the page.
    pub source: &'static str,
}

/// Which of a dialect's families a page has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Families {
    dialect: Dialect,
    /// Bit `i` = row `i` of the dialect's table.
    found: u8,
}

impl Families {
    /// Whose page it is.
    pub const fn dialect(self) -> Dialect {
        self.dialect
    }

    /// Names of the families that are there.
    pub fn found(self) -> impl Iterator<Item = &'static str> {
        let mut last = "";
        let rows = self.dialect.rows().iter().enumerate().filter(move |(index, _)| self.found & (1 << index) != 0);
        rows.map(|(_, row)| row.name).filter(move |name| std::mem::replace(&mut last, name) != *name)
    }

    /// What the page does not tell though its engine can: of each such thing, the name by which current versions tell
    /// it. LoRA families are missing from any engine that serves no adapters.
    pub fn missing(self) -> impl Iterator<Item = &'static str> {
        let rows = self.dialect.rows();
        let told = move |topic: Topic| {
            rows.iter().enumerate().any(|(index, row)| self.found & (1 << index) != 0 && row.tells.topic() == topic)
        };
        let absent = Topic::ALL.into_iter().filter(move |topic| !told(*topic));
        absent.filter_map(move |topic| rows.iter().find(|row| row.tells.topic() == topic).map(|row| row.name))
    }
}

/// Reads `page` by the names of `engine`; with [`Engine::Auto`], of the first dialect of [`Dialect::ALL`] that is on it.
///
/// `wall_now_s` is the wall clock in Unix seconds, against which vLLM's adapter sets are aged.
pub fn read(page: &[u8], engine: Engine, wall_now_s: f64) -> Reading {
    let mut scan = Scan { dialects: engine.dialects(), pages: Vec::new(), started_unix_s: None };
    let mut start = 0;
    for end in memchr::memchr_iter(b'\n', page) {
        scan.line(&page[start..end]);
        start = end + 1;
    }
    scan.line(&page[start..]);
    scan.pages.sort_by_key(|page| page.dialect);
    let started_unix_s = scan.started_unix_s;
    let page = scan.pages.into_iter().next();
    page.map(|page| Reading { started_unix_s, ..page.conclude(wall_now_s) }).unwrap_or_default()
}

/// The pass over the page.
struct Scan<'a> {
    dialects: &'static [Dialect],
    /// One per dialect met.
    pages: Vec<DialectPage<'a>>,
    started_unix_s: Option<f64>,
}

impl<'a> Scan<'a> {
    fn line(&mut self, line: &'a [u8]) {
        let line = match line.first() {
            Some(b' ' | b'\t') => sample::skip_blanks(line),
            _ => line,
        };
        let wanted = |name: &[u8]| self.dialects.iter().copied().find(|dialect| name.starts_with(dialect.prefix()));
        let Some(&first) = line.first() else { return };
        // All but the rare quoted form show by their first bytes whether they are of interest.
        if first != b'{' && wanted(line).is_none() {
            if line.starts_with(PROCESS_START) {
                self.process_start(line);
            }
            return;
        }
        let Some((name, rest)) = sample::split_name(line) else { return };
        let Some(dialect) = wanted(name) else { return };
        let mut rows = dialect.rows().iter().enumerate().filter(|(_, row)| row.name.as_bytes() == name).peekable();
        // TGI prints a family only after its first use: that it prints anything says that the others are zero.
        if rows.peek().is_none() && dialect != Dialect::Tgi {
            return;
        }
        let rest = rest.strip_suffix(b"\r").unwrap_or(rest);
        let page = self.page(dialect);
        rows.for_each(|(index, row)| page.sample(index, row, rest));
    }

    fn process_start(&mut self, line: &[u8]) {
        let Some((PROCESS_START, rest)) = sample::split_name(line) else { return };
        let value = sample::walk(rest.strip_suffix(b"\r").unwrap_or(rest), |_, _| {});
        // Of several processes on one page the newest: it is the one that may have lost what we believe.
        self.started_unix_s =
            value.filter(|value| UNIX_S.contains(value)).into_iter().chain(self.started_unix_s).reduce(f64::max);
    }

    fn page(&mut self, dialect: Dialect) -> &mut DialectPage<'a> {
        let at = self.pages.iter().position(|page| page.dialect == dialect).unwrap_or_else(|| {
            self.pages.push(DialectPage::new(dialect));
            self.pages.len() - 1
        });
        &mut self.pages[at]
    }
}

/// The families of one dialect, gathered.
struct DialectPage<'a> {
    dialect: Dialect,
    tallies: [Tally; ROWS_MAX],
    combinations: Combinations<'a>,
    shape: Option<CacheShape>,
    skipped_samples: u32,
}

impl<'a> DialectPage<'a> {
    fn new(dialect: Dialect) -> Self {
        Self {
            dialect,
            tallies: Default::default(),
            combinations: Combinations::default(),
            shape: None,
            skipped_samples: 0,
        }
    }

    fn sample(&mut self, index: usize, row: &Row, rest: &'a [u8]) {
        let (mut key, mut combination, mut info) = (Key::default(), Combination::default(), CacheInfo::default());
        let mut selected = row.only.is_none();
        let value = sample::walk(rest, |name, value| {
            selected |= row.only == Some((name, value));
            key.label(name, value);
            match row.tells {
                Tells::Adapters => combination.label(name, value),
                Tells::CacheInfo { block_tokens, blocks } => info.label(name, value, block_tokens, blocks),
                Tells::Waiting
                | Tells::Running
                | Tells::KvCache
                | Tells::KvTokens
                | Tells::BlockTokens
                | Tells::Blocks
                | Tells::Tokens => {}
            }
        });
        if !selected {
            return;
        }
        self.tallies[index].met();
        let usable = value.and_then(|value| match row.tells {
            Tells::KvCache => tally::share(value),
            Tells::Waiting
            | Tells::Running
            | Tells::KvTokens
            | Tells::BlockTokens
            | Tells::Blocks
            | Tells::Tokens
            | Tells::CacheInfo { .. }
            | Tells::Adapters => tally::count(value),
        });
        let Some(value) = usable else {
            self.skipped_samples = self.skipped_samples.saturating_add(1);
            return;
        };
        match row.tells {
            Tells::Adapters => self.combinations.add(Combination { unix_s: value, ..combination }),
            // `num_gpu_blocks` is the sum over data-parallel ranks, repeated on the series of each.
            Tells::CacheInfo { .. } => self.shape = greatest(self.shape, info.shape()),
            Tells::Waiting
            | Tells::Running
            | Tells::KvCache
            | Tells::KvTokens
            | Tells::BlockTokens
            | Tells::Blocks
            | Tells::Tokens => self.tallies[index].add(key, value),
        }
    }

    fn conclude(self, wall_now_s: f64) -> Reading {
        let waiting = self.number(Tells::Waiting).or_else(|| self.unused_so_far(Tells::Waiting));
        let running = self.number(Tells::Running).or_else(|| self.unused_so_far(Tells::Running));
        let kv_cache = self.number(Tells::KvCache).or_else(|| self.kv_tokens_share());
        let ranks = [Tells::Waiting, Tells::Running, Tells::KvCache].map(|tells| self.ranks(tells));
        let ranks = ranks.into_iter().max().unwrap_or(0);
        let activity = match running {
            Some(Number { value, .. }) if value > 0.0 => Activity::Running,
            _ => Activity::IdleOrUnknown,
        };
        Reading {
            families: Some(Families { dialect: self.dialect, found: self.found() }),
            waiting,
            running,
            kv_cache,
            ranks,
            cache: self.shape.or_else(|| self.cache_shape()),
            skipped_samples: self.skipped_samples,
            adapters: self.combinations.active(ranks, activity, wall_now_s),
            started_unix_s: None,
        }
    }

    fn rows(&self, tells: Tells) -> impl Iterator<Item = (&'static str, &Tally)> {
        let rows = self.dialect.rows().iter().zip(&self.tallies);
        rows.filter(move |(row, _)| row.tells == tells).map(|(row, tally)| (row.name, tally))
    }

    fn number(&self, tells: Tells) -> Option<Number> {
        let value = |tally: &Tally| if tells == Tells::KvCache { tally.mean() } else { tally.sum() };
        self.rows(tells).find_map(|(source, tally)| value(tally).map(|value| Number { value, source }))
    }

    /// Zero for a family that TGI has not printed yet.
    fn unused_so_far(&self, tells: Tells) -> Option<Number> {
        let (source, tally) = self.rows(tells).next()?;
        (self.dialect == Dialect::Tgi && !tally.was_met()).then_some(Number { value: 0.0, source })
    }

    /// TGI's estimate: tokens of the current batch over the most a batch may hold.
    fn kv_tokens_share(&self) -> Option<Number> {
        let all = self.number(Tells::Tokens)?.value;
        let used = self.number(Tells::KvTokens).or_else(|| self.unused_so_far(Tells::KvTokens))?;
        (all > 0.0).then(|| Number { value: (used.value / all).min(1.0), ..used })
    }

    fn ranks(&self, tells: Tells) -> u32 {
        self.rows(tells).map(|(_, tally)| tally.ranks()).max().unwrap_or(0)
    }

    fn cache_shape(&self) -> Option<CacheShape> {
        let greatest = |tells| self.rows(tells).find_map(|(_, tally)| tally.greatest());
        let whole = |number: f64| (number >= 1.0).then_some(number as u64);
        let block_tokens = greatest(Tells::BlockTokens).and_then(whole).and_then(|tokens| u32::try_from(tokens).ok());
        if let (Some(block_tokens), Some(blocks)) = (block_tokens, self.number(Tells::Blocks)) {
            return whole(blocks.value).map(|blocks| CacheShape { block_tokens, blocks });
        }
        let tokens = whole(self.number(Tells::Tokens)?.value)?;
        let block_tokens = block_tokens.unwrap_or(1);
        Some(CacheShape { block_tokens, blocks: tokens / u64::from(block_tokens) })
    }

    fn found(&self) -> u8 {
        self.tallies
            .iter()
            .enumerate()
            .filter(|(_, tally)| tally.was_met())
            .fold(0, |bits, (index, _)| bits | 1 << index)
    }
}

/// The cache's dimensions as labels have them; the text `None` before the engine is up.
#[derive(Default)]
struct CacheInfo {
    block_tokens: Option<u32>,
    blocks: Option<u64>,
}

impl CacheInfo {
    fn label(&mut self, name: &[u8], value: &[u8], block_tokens: &[u8], blocks: &[u8]) {
        let text = || std::str::from_utf8(value).ok();
        if name == block_tokens {
            self.block_tokens = text().and_then(|text| text.parse().ok());
        } else if name == blocks {
            self.blocks = text().and_then(|text| text.parse().ok());
        }
    }

    fn shape(&self) -> Option<CacheShape> {
        let (block_tokens, blocks) = (self.block_tokens?, self.blocks?);
        (block_tokens > 0 && blocks > 0).then_some(CacheShape { block_tokens, blocks })
    }
}

fn greatest(one: Option<CacheShape>, other: Option<CacheShape>) -> Option<CacheShape> {
    one.into_iter().chain(other).max_by_key(|shape| (shape.tokens(), shape.blocks))
}

#[cfg(test)]
mod tests;
