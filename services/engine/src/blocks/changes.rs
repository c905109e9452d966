//! A journal of the prefix cache: what can be found from now on, and what no longer.
//!
//! Model servers publish it to routers. A hit changes nothing and is not in it; a prefix that two requests compute side by
//! side is stored twice and removed twice.

use super::ChainHash;
use crate::RequestId;

/// Names one cached block and everything before it, within one engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CacheKey(pub u64);

/// One change of the prefix cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CacheChange {
    /// Consecutive full blocks of one request can be found.
    Stored {
        /// The request that computed them.
        request: RequestId,
        /// Index of the first of them in that request's prompt and output.
        first_block: usize,
        /// The block before the first; `None` at the start.
        parent: Option<CacheKey>,
        /// The blocks, in order; never empty.
        keys: Vec<CacheKey>,
    },
    /// One copy of a block was lost.
    Removed(CacheKey),
}

/// Changes kept until someone takes them.
#[derive(Debug, Default)]
pub(super) struct Changes {
    kept: Vec<CacheChange>,
    lost: u64,
}

/// Changes kept, far above what the steps of one call make.
const KEPT_MAX: usize = 1 << 18;

impl Changes {
    pub(super) fn stored(&mut self, request: RequestId, chains: &[ChainHash], first: usize) {
        let parent = first.checked_sub(1).map(|index| key(chains[index]));
        let keys = chains[first..].iter().map(|chain| key(*chain)).collect();
        self.keep(CacheChange::Stored { request, first_block: first, parent, keys });
    }

    pub(super) fn removed(&mut self, chain: ChainHash) {
        self.keep(CacheChange::Removed(key(chain)));
    }

    pub(super) fn take(&mut self) -> Vec<CacheChange> {
        std::mem::take(&mut self.kept)
    }

    pub(super) fn lost(&self) -> u64 {
        self.lost
    }

    fn keep(&mut self, change: CacheChange) {
        if self.kept.len() < KEPT_MAX {
            self.kept.push(change);
        } else {
            self.lost += 1;
        }
    }
}

fn key(chain: ChainHash) -> CacheKey {
    CacheKey(chain.0)
}
