//! Which endpoint was sent which prompt: a guess at what its KV cache holds, made from our own history alone.
//!
//! A prompt is a chain of block hashes, each standing for all blocks before it as well. For each block the index knows
//! the endpoints that were sent it, and for each endpoint the order in which it was sent its blocks. One rule carries
//! everything: **whenever an endpoint holds a block, it holds all blocks before it.** It is kept by touching a prompt's
//! blocks from the last to the first, so that no block is ever older than one that follows it, and by dropping the
//! oldest first. From it follows that the number of holders never rises along a chain, so a match of 1,500 blocks is
//! found by a few probes at growing distances rather than by 1,500 look-ups.
//!
//! Memory is taken once, from the byte budget, and never grows: no rehash stops the picks, and a flood of new prompts
//! only pushes out the oldest. (Pages of the machine are taken up as they are first written.)
//!
//! It refuses to expire by time: what an engine has not pushed out is still there, however old.

mod nodes;
mod table;

use std::mem::size_of;

use nodes::{LaneList, NONE, Node, Nodes};
use table::Table;

/// Model tokens that one block hash stands for.
pub const BLOCK_TOKENS: u32 = 64;

/// Endpoints that can have entries at once. Bounds the list of lanes; further endpoints have no prefix memory.
const LANES_MAX: usize = 16_384;

/// Lanes that memory is taken for at first; then always twice as many.
const LANES_AT_FIRST: usize = 8;

/// Memory of one lane: its state, and its place among the untidy ones.
const LANE_BYTES: usize = size_of::<LaneState>() + size_of::<Lane>();

/// Holders looked at in one match. Only chains that hundreds of endpoints hold to different depths come near it; beyond
/// it the deepest holders are found and those between get the depth known so far.
const HOLDERS_WALKED_MAX: u32 = 16_384;

/// Blocks of closed lanes, or beyond a shrunken lane's size, that are dropped in one go: keeps each call short.
const DROPPED_AT_ONCE: u32 = 64;

/// Entries that one endpoint may have, under the handle that its owner keeps. Reused only once it holds nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lane(u32);

impl Lane {
    /// Its place in what [`PrefixIndex::matches`] fills in.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// How full the index is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IndexStats {
    /// Blocks held, counted once per endpoint.
    pub entries: u64,
    /// Memory reserved, in bytes: never more than the budget.
    pub bytes: u64,
    /// The budget, in bytes.
    pub budget_bytes: u64,
    /// Blocks pushed out for lack of room since the index was made.
    pub evictions: u64,
}

/// The index. See the module's text.
#[derive(Debug)]
pub struct PrefixIndex {
    table: Table,
    nodes: Nodes,
    lanes: Vec<LaneState>,
    /// Lanes that wait to be emptied or cut to size.
    untidy: Vec<Lane>,
    /// Number of the record made last: the age of a block is the record that touched it last.
    tick: u64,
    evictions: u64,
    budget_bytes: usize,
}

#[derive(Clone, Copy, Debug)]
struct LaneState {
    list: LaneList,
    blocks_max: u32,
    phase: Phase,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Open,
    Closing,
    Free,
}

impl PrefixIndex {
    /// An empty index that never takes more memory than `budget_bytes`. One that is too small holds nothing.
    pub fn new(budget_bytes: usize) -> Self {
        // A 64th is set aside for the lanes, and enough for the first few.
        let for_blocks = budget_bytes.saturating_sub((budget_bytes / 64).max(LANES_AT_FIRST * LANE_BYTES));
        let bytes_per_block = size_of::<Node>() as f64 + Table::bytes_per_entry();
        let blocks_max = (for_blocks as f64 / bytes_per_block) as usize;
        let blocks_max = blocks_max.min(NONE as usize);
        Self {
            table: Table::for_entries(blocks_max),
            nodes: Nodes::with_room_for(blocks_max),
            lanes: Vec::new(),
            untidy: Vec::new(),
            tick: 0,
            evictions: 0,
            budget_bytes,
        }
    }

    /// A lane for an endpoint whose engine keeps about `blocks_max` blocks. `None` when the budget or the bound on
    /// lanes has no room for one more: that endpoint is never matched.
    pub fn open(&mut self, blocks_max: u32) -> Option<Lane> {
        let state = LaneState { list: LaneList::EMPTY, blocks_max, phase: Phase::Open };
        if let Some(free) = self.lanes.iter().position(|l| l.phase == Phase::Free) {
            self.lanes[free] = state;
            return Some(Lane(free as u32));
        }
        if self.lanes.len() == self.lanes.capacity() {
            let wanted = (self.lanes.len() * 2).clamp(LANES_AT_FIRST, LANES_MAX);
            let more_bytes = (wanted - self.lanes.len()) * LANE_BYTES;
            if self.lanes.len() >= LANES_MAX || self.bytes() + more_bytes > self.budget_bytes {
                return None;
            }
            self.lanes.reserve_exact(wanted - self.lanes.len());
            self.untidy.reserve_exact(wanted - self.untidy.len());
        }
        self.lanes.push(state);
        Some(Lane((self.lanes.len() - 1) as u32))
    }

    /// The engine turned out to keep about `blocks_max` blocks.
    pub fn resize(&mut self, lane: Lane, blocks_max: u32) {
        let state = &mut self.lanes[lane.index()];
        state.blocks_max = blocks_max;
        if state.list.len > blocks_max {
            self.mark_untidy(lane);
        }
    }

    /// The endpoint is gone. Its entries no longer count, and are dropped by and by ([`PrefixIndex::tidy`]).
    pub fn close(&mut self, lane: Lane) {
        self.lanes[lane.index()].phase = Phase::Closing;
        self.mark_untidy(lane);
    }

    /// A bounded bit of clearing up. Costs nothing when there is nothing to do; call it once per pick.
    pub fn tidy(&mut self) {
        let Some(&lane) = self.untidy.last() else { return };
        for _ in 0..DROPPED_AT_ONCE {
            let state = self.lanes[lane.index()];
            let keep = if state.phase == Phase::Closing { 0 } else { state.blocks_max };
            if state.list.len <= keep {
                if state.phase == Phase::Closing {
                    self.lanes[lane.index()].phase = Phase::Free;
                }
                self.untidy.pop();
                return;
            }
            self.drop_block(state.list.oldest);
        }
    }

    /// Sets `matched[lane.index()]` to the number of leading blocks of `prefix` that each lane holds, for all lanes.
    pub fn matches(&self, prefix: &[u64], matched: &mut Vec<u32>) {
        matched.clear();
        matched.resize(self.lanes.len(), 0);
        let mut from = 0;
        let mut walked = 0;
        while let Some((first_holder, holders)) = prefix.get(from).and_then(|&hash| self.table.get(hash)) {
            // All blocks with as many holders as this one have the very same holders.
            let mut run_end = self.last_with_at_least(prefix, from, holders) + 1;
            if walked > HOLDERS_WALKED_MAX {
                run_end = self.last_with_at_least(prefix, from, 1) + 1;
            }
            let deepest = self.table.get(prefix[run_end - 1]).map_or(first_holder, |(first, _)| first);
            for node in self.nodes.holders(deepest) {
                matched[node.lane as usize] = run_end as u32;
            }
            walked += holders;
            from = run_end;
        }
    }

    /// The number of leading blocks of `prefix` that one lane holds.
    pub fn held(&self, lane: Lane, prefix: &[u64]) -> u32 {
        // The lane holds a leading part and nothing else, so the end of it can be found by halving.
        prefix.partition_point(|&hash| self.node_of(lane, hash).is_some()) as u32
    }

    /// The endpoint was sent `prefix`. `held` is what [`PrefixIndex::matches`] or [`PrefixIndex::held`] said of the
    /// lane. No more than the lane's size is kept, nor more than the whole index has room for.
    pub fn record(&mut self, lane: Lane, prefix: &[u64], held: u32) {
        let blocks_max = self.lanes[lane.index()].blocks_max as usize;
        if self.lanes[lane.index()].phase != Phase::Open {
            return;
        }
        self.tick += 1;
        let prefix = &prefix[..prefix.len().min(blocks_max)];
        let (held, mut parent) = self.deepest_held(lane, prefix, held as usize);
        self.touch(lane, parent);
        for &hash in &prefix[held..] {
            let Some(node) = self.room(lane) else { return };
            let list = &mut self.lanes[lane.index()].list;
            self.nodes.place(node, Node::new(hash, parent, lane.0, self.tick), list);
            let cell = self.table.entry(hash);
            self.nodes.add_holder(node, cell);
            parent = node;
        }
    }

    /// How full it is.
    pub fn stats(&self) -> IndexStats {
        IndexStats {
            entries: self.lanes.iter().map(|l| u64::from(l.list.len)).sum(),
            bytes: self.bytes() as u64,
            budget_bytes: self.budget_bytes as u64,
            evictions: self.evictions,
        }
    }

    fn bytes(&self) -> usize {
        self.table.bytes()
            + self.nodes.bytes()
            + self.lanes.capacity() * size_of::<LaneState>()
            + self.untidy.capacity() * size_of::<Lane>()
    }

    fn mark_untidy(&mut self, lane: Lane) {
        if !self.untidy.contains(&lane) {
            self.untidy.insert(0, lane);
        }
    }

    /// The last block from `from` on that has at least `holders` holders, given that `from` has. Doubling strides, then
    /// halving: along a chain the number of holders never rises.
    fn last_with_at_least(&self, prefix: &[u64], from: usize, holders: u32) -> usize {
        let enough = |at: usize| self.table.get(prefix[at]).is_some_and(|(_, count)| count >= holders);
        let (mut last, mut stride) = (from, 1);
        while last + stride < prefix.len() && enough(last + stride) {
            last += stride;
            stride *= 2;
        }
        while stride > 1 {
            stride /= 2;
            if last + stride < prefix.len() && enough(last + stride) {
                last += stride;
            }
        }
        last
    }

    fn node_of(&self, lane: Lane, hash: u64) -> Option<u32> {
        let (first, _) = self.table.get(hash)?;
        self.nodes.holder_in(first, lane.0)
    }

    /// How much of `prefix` the lane really holds, at most `held`, and the node of its last block.
    fn deepest_held(&self, lane: Lane, prefix: &[u64], held: usize) -> (usize, u32) {
        let mut held = held.min(prefix.len());
        while held > 0 {
            if let Some(node) = self.node_of(lane, prefix[held - 1]) {
                return (held, node);
            }
            held -= 1;
        }
        (0, NONE)
    }

    /// Makes a block and all before it the lane's newest, the first block newest of all.
    fn touch(&mut self, lane: Lane, deepest: u32) {
        let list = &mut self.lanes[lane.index()].list;
        let mut node = deepest;
        while node != NONE {
            node = self.nodes.renew(node, self.tick, list);
        }
    }

    /// An unused node for a block of this lane, taken from the lane's oldest when the lane has its size, else from the
    /// oldest of all. `None` when only blocks of the prompt being recorded are left to take.
    fn room(&mut self, lane: Lane) -> Option<u32> {
        let state = self.lanes[lane.index()];
        while self.lanes[lane.index()].list.len >= state.blocks_max {
            self.evict(self.lanes[lane.index()].list.oldest)?;
        }
        if let Some(node) = self.nodes.take() {
            return Some(node);
        }
        self.evict_oldest_of_all()?;
        self.nodes.take()
    }

    /// Drops blocks of the lane whose oldest block is the oldest of all, as long as that stays so.
    fn evict_oldest_of_all(&mut self) -> Option<()> {
        let (mut first, mut second) = ((u64::MAX, NONE), u64::MAX);
        for (index, state) in self.lanes.iter().enumerate().filter(|(_, l)| l.list.len > 0) {
            let tick = self.nodes.tick(state.list.oldest);
            if tick < first.0 {
                second = first.0;
                first = (tick, index as u32);
            } else {
                second = second.min(tick);
            }
        }
        let state = *self.lanes.get(first.1 as usize)?;
        self.evict(state.list.oldest)?;
        for _ in 1..DROPPED_AT_ONCE {
            let oldest = self.lanes[first.1 as usize].list.oldest;
            if oldest == NONE || self.nodes.tick(oldest) > second || self.evict(oldest).is_none() {
                break;
            }
        }
        Some(())
    }

    /// Drops a block for lack of room, unless it belongs to the prompt being recorded.
    fn evict(&mut self, node: u32) -> Option<()> {
        if node == NONE || self.nodes.tick(node) == self.tick {
            return None;
        }
        self.drop_block(node);
        self.evictions += 1;
        Some(())
    }

    fn drop_block(&mut self, node: u32) {
        let dropped = self.nodes.get(node);
        self.nodes.unlink(node, &mut self.lanes[dropped.lane as usize].list);
        self.table.release(dropped.hash, |cell| self.nodes.remove_holder(node, cell));
        self.nodes.give_back(node);
    }
}

#[cfg(test)]
mod tests;
