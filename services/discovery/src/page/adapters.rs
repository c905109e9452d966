//! vLLM's `lora_requests_info`: which LoRA adapters had work, told by labels, and when, told by the value.
//!
//! Every combination of adapters that ever was stays on the page; only the newest value is the present. When the engine
//! falls idle it stops reporting, so the newest may name adapters that finished long ago. With several API servers the
//! value is a sum of times, far in the future; with several data-parallel engines each writes its own combination.

use std::collections::BTreeSet;

use super::sample::unescape;

/// A set of adapters older than this is of the past, unless requests are running. vLLM reports at every step.
const AGE_S_MAX: f64 = 5.0;

/// With several ranks, combinations this much older than the newest belong to it: ranks report in turn.
const RANKS_APART_S_MAX: f64 = 1.0;

/// Most combinations kept off one page, the newest; a page with more was up for a long time with many adapters.
const SERIES_MAX: usize = 256;

/// Most adapters believed to have work at once.
const ADAPTERS_MAX: usize = 256;

/// LoRA adapters with work in the engine. Absence means idle, not unloaded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ActiveAdapters {
    /// With a running request, sorted. From vLLM 0.11.1 on, with any request.
    pub running: Vec<String>,
    /// With a waiting request only, sorted.
    pub waiting: Vec<String>,
    /// Adapters that fit in one batch.
    pub slots: Option<u32>,
}

/// Whether the engine has running requests, as far as its page says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Activity {
    Running,
    IdleOrUnknown,
}

/// One combination on the page.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Combination<'a> {
    pub(super) unix_s: f64,
    pub(super) running: &'a [u8],
    pub(super) waiting: &'a [u8],
    pub(super) slots: Option<u32>,
}

impl<'a> Combination<'a> {
    pub(super) fn label(&mut self, name: &[u8], value: &'a [u8]) {
        match name {
            b"running_lora_adapters" => self.running = value,
            b"waiting_lora_adapters" => self.waiting = value,
            b"max_lora" => self.slots = std::str::from_utf8(value).ok().and_then(|v| v.parse().ok()),
            _ => {}
        }
    }
}

/// All combinations on a page.
#[derive(Debug, Default)]
pub(super) struct Combinations<'a> {
    kept: Vec<Combination<'a>>,
}

impl<'a> Combinations<'a> {
    pub(super) fn add(&mut self, combination: Combination<'a>) {
        if self.kept.len() == 2 * SERIES_MAX {
            self.keep_newest();
        }
        self.kept.push(combination);
    }

    /// Equal times are ordered by content, so that the order of lines has no effect.
    fn keep_newest(&mut self) {
        self.kept
            .sort_by(|a, b| b.unix_s.total_cmp(&a.unix_s).then((b.running, b.waiting).cmp(&(a.running, a.waiting))));
        self.kept.truncate(SERIES_MAX);
    }

    /// What the page says is so at `wall_now_s` (Unix seconds). `None` when it says nothing of adapters.
    ///
    /// An engine whose clock is ahead is believed (a time in the future is now); of one whose clock is behind, the set
    /// is dropped early, but only while nothing runs.
    pub(super) fn active(mut self, ranks: u32, activity: Activity, wall_now_s: f64) -> Option<ActiveAdapters> {
        self.keep_newest();
        let newest_s = self.kept.first()?.unix_s;
        let slots = self.kept.iter().filter_map(|c| c.slots).max();
        if activity == Activity::IdleOrUnknown && wall_now_s - newest_s > AGE_S_MAX {
            return Some(ActiveAdapters { slots, ..ActiveAdapters::default() });
        }
        let oldest_s = if ranks > 1 { newest_s - RANKS_APART_S_MAX } else { newest_s };
        let current: Vec<_> = self.kept.iter().filter(|c| c.unix_s >= oldest_s).collect();
        let running: BTreeSet<String> = current.iter().flat_map(|c| names(c.running)).collect();
        let waiting = current.iter().flat_map(|c| names(c.waiting)).filter(|name| !running.contains(name));
        let waiting: BTreeSet<String> = waiting.collect();
        Some(ActiveAdapters {
            waiting: waiting.into_iter().take(ADAPTERS_MAX).collect(),
            running: running.into_iter().take(ADAPTERS_MAX).collect(),
            slots,
        })
    }
}

fn names(list: &[u8]) -> impl Iterator<Item = String> {
    let pieces = list.split(|&b| b == b',').take(ADAPTERS_MAX);
    pieces.filter_map(unescape).map(|name| name.trim().to_owned()).filter(|name| !name.is_empty())
}
