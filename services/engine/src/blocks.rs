//! KV blocks: who holds them, which free ones still hold a cached prefix, and in which order they are taken.
//!
//! A block is held by any number of requests that share its prefix. When the last lets go it becomes free: at the end
//! of the queue when it holds a cached full block (so the queue is an LRU of the cache), at the front when it does
//! not. Taking a block from the front forgets what it cached. A cached free block is found until then.
//!
//! Who the requests are and when they may take blocks is the batch's business, not this module's.

use std::{
    collections::HashMap,
    hash::{BuildHasherDefault, Hasher},
};

use crate::RequestId;

mod changes;
mod free_list;
mod readers;

use changes::Changes;
pub use changes::{CacheChange, CacheKey};
use free_list::FreeList;
pub(crate) use readers::Readers;

/// What one full block contains, as a hash of its tokens (and of whatever else makes a cache entry differ). Not
/// chained: the engine chains blocks itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockHash(pub u64);

/// A block and everything before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ChainHash(u64);

/// Index of a block in the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct BlockIndex(u32);

/// All blocks of one engine.
#[derive(Debug)]
pub(crate) struct BlockPool {
    blocks: Vec<Block>,
    free: FreeList,
    /// Per chain the newest block that holds it; older copies hang on [`Block::twin`].
    cached: HashMap<ChainHash, BlockIndex, BuildHasherDefault<PassThrough>>,
    cached_free: u32,
    /// What was cached and forgotten, if anyone wants to know.
    changes: Option<Changes>,
}

#[derive(Clone, Debug, Default)]
struct Block {
    holders: u32,
    chain: Option<ChainHash>,
    /// Another block with the same chain: two requests may compute one prefix side by side.
    twin: Option<BlockIndex>,
}

impl ChainHash {
    /// The start of every chain with this seed.
    pub(crate) fn root(seed: u64) -> Self {
        Self(mix(seed, 0))
    }

    /// This chain, longer by one block.
    pub(crate) fn then(self, block: BlockHash) -> Self {
        Self(mix(self.0, block.0))
    }
}

impl BlockIndex {
    fn get(self) -> usize {
        self.0 as usize
    }
}

impl BlockPool {
    /// A pool of `count` free blocks that cache nothing.
    pub(crate) fn new(count: u32) -> Self {
        Self {
            blocks: vec![Block::default(); count as usize],
            free: FreeList::full(count),
            cached: HashMap::default(),
            cached_free: 0,
            changes: None,
        }
    }

    /// Starts to keep changes.
    pub(crate) fn record(&mut self) {
        self.changes.get_or_insert_default();
    }

    /// The changes kept so far.
    pub(crate) fn take_changes(&mut self) -> Vec<CacheChange> {
        self.changes.as_mut().map(Changes::take).unwrap_or_default()
    }

    /// Changes there was no room for.
    pub(crate) fn changes_lost(&self) -> u64 {
        self.changes.as_ref().map_or(0, Changes::lost)
    }

    /// Each key in the cache, with the number of blocks that hold it.
    #[cfg(test)]
    pub(crate) fn copies(&self) -> HashMap<CacheKey, usize> {
        let mut copies = HashMap::new();
        for chain in self.blocks.iter().filter_map(|block| block.chain) {
            *copies.entry(CacheKey(chain.0)).or_default() += 1;
        }
        copies
    }

    /// Keeps that a request's blocks from `first` to the end of `chains` were cached.
    pub(crate) fn note_stored(&mut self, request: RequestId, chains: &[ChainHash], first: usize) {
        if let Some(changes) = &mut self.changes {
            changes.stored(request, chains, first);
        }
    }

    /// Blocks that nobody holds.
    pub(crate) fn free(&self) -> u32 {
        self.free.len()
    }

    /// Blocks that somebody holds.
    pub(crate) fn used(&self) -> u32 {
        self.total() - self.free()
    }

    /// Free blocks that hold a cached prefix.
    pub(crate) fn cached_free(&self) -> u32 {
        self.cached_free
    }

    /// All blocks.
    pub(crate) fn total(&self) -> u32 {
        self.blocks.len() as u32
    }

    /// Blocks that hold the leading part of `chains`, up to the first miss or `max` of them. Takes none.
    pub(crate) fn find(&self, chains: &[ChainHash], max: usize) -> Vec<BlockIndex> {
        chains.iter().take(max).map_while(|chain| self.cached.get(chain).copied()).collect()
    }

    /// How many blocks hold the leading part of these chains.
    pub(crate) fn count_found(&self, chains: impl Iterator<Item = ChainHash>) -> u32 {
        chains.take_while(|chain| self.cached.contains_key(chain)).count() as u32
    }

    /// Of these found blocks, how many are free, that is, would be taken off the free queue by [`Self::hold`].
    pub(crate) fn count_free(&self, found: &[BlockIndex]) -> u32 {
        found.iter().filter(|index| self.blocks[index.get()].holders == 0).count() as u32
    }

    /// One more holder for a found block.
    pub(crate) fn hold(&mut self, index: BlockIndex) {
        let block = &mut self.blocks[index.get()];
        block.holders += 1;
        if block.holders == 1 {
            self.free.unlink(index);
            self.cached_free -= u32::from(block.chain.is_some());
        }
    }

    /// The free block that is cheapest to lose, with its first holder; `None` when all are held.
    pub(crate) fn take(&mut self) -> Option<BlockIndex> {
        let index = self.free.pop_front()?;
        self.forget(index);
        self.blocks[index.get()].holders = 1;
        Some(index)
    }

    /// Lets a held block be found as the end of `chain`.
    pub(crate) fn cache(&mut self, index: BlockIndex, chain: ChainHash) {
        let block = &mut self.blocks[index.get()];
        debug_assert!(block.holders > 0 && block.chain.is_none(), "a block is cached once, by a holder");
        block.chain = Some(chain);
        block.twin = self.cached.insert(chain, index);
    }

    /// One holder less for each block of a sequence. The tail goes first, so that the head is lost last.
    pub(crate) fn release(&mut self, sequence: &[BlockIndex]) {
        for &index in sequence.iter().rev() {
            let block = &mut self.blocks[index.get()];
            block.holders -= 1;
            if block.holders > 0 {
                continue;
            }
            if block.chain.is_some() {
                self.cached_free += 1;
                self.free.push_back(index);
            } else {
                self.free.push_front(index);
            }
        }
    }

    /// Drops what a block taken off the free queue has cached.
    fn forget(&mut self, index: BlockIndex) {
        let Some(chain) = self.blocks[index.get()].chain.take() else { return };
        if let Some(changes) = &mut self.changes {
            changes.removed(chain);
        }
        self.cached_free -= 1;
        let twin = self.blocks[index.get()].twin.take();
        let newest = self.cached[&chain];
        if newest == index {
            match twin {
                Some(twin) => self.cached.insert(chain, twin),
                None => self.cached.remove(&chain),
            };
            return;
        }
        let mut before = newest;
        while self.blocks[before.get()].twin != Some(index) {
            before = self.blocks[before.get()].twin.expect("a cached block hangs on its chain");
        }
        self.blocks[before.get()].twin = twin;
    }
}

/// Mixes two words so that no bit of either is lost on the way (the finaliser of MurmurHash3, twice).
pub(crate) fn mix(a: u64, b: u64) -> u64 {
    fn finish(mut x: u64) -> u64 {
        x = (x ^ (x >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
        x = (x ^ (x >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
        x ^ (x >> 33)
    }
    finish(finish(a.wrapping_add(0x9e37_79b9_7f4a_7c15)) ^ b.wrapping_mul(0xd6e8_feb8_6659_fd93))
}

/// Chains are hashes already; the map need not hash them again, and a fixed hasher keeps runs alike.
#[derive(Default)]
struct PassThrough(u64);

impl Hasher for PassThrough {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = mix(self.0, u64::from(*byte));
        }
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = word;
    }
}

#[cfg(test)]
mod tests;
