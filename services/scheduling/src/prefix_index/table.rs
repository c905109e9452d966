//! Block hash → its holders. Open addressing in one array of fixed size.
//!
//! The hashes are hashes already, so they are only spread, not hashed again. Deleting moves later cells of a run back
//! instead of leaving tombstones, so look-ups stay short however long the index lives.

use std::mem::size_of;

/// The holders of one block: hash, first holder's node, number of holders. No holders = an empty cell, which is why a
/// fresh table can be zero pages that the machine has not even taken up yet.
pub(super) type Cell = (u64, u32, u32);

const EMPTY: Cell = (0, 0, 0);

/// Cells per entry: a table at most 70 % full finds a hash in two or three neighbouring cells.
const CELLS_PER_ENTRY: f64 = 1.0 / 0.7;

#[derive(Debug)]
pub(super) struct Table {
    cells: Vec<Cell>,
}

impl Table {
    pub(super) fn bytes_per_entry() -> f64 {
        size_of::<Cell>() as f64 * CELLS_PER_ENTRY
    }

    pub(super) fn for_entries(entries: usize) -> Self {
        // Never quite full, so that every search ends at an empty cell.
        let cells = (entries as f64 * CELLS_PER_ENTRY) as usize;
        Self { cells: vec![EMPTY; if entries == 0 { 0 } else { cells.max(entries + 1) }] }
    }

    pub(super) fn bytes(&self) -> usize {
        self.cells.capacity() * size_of::<Cell>()
    }

    /// First holder and number of holders.
    pub(super) fn get(&self, hash: u64) -> Option<(u32, u32)> {
        let (_, first, count) = *self.cells.get(self.find(hash)?)?;
        (count > 0).then_some((first, count))
    }

    /// The cell of a hash, which the caller gives a holder at once if it has none.
    pub(super) fn entry(&mut self, hash: u64) -> &mut Cell {
        let at = self.find(hash).expect("a table with nodes to place has cells");
        let cell = &mut self.cells[at];
        cell.0 = hash;
        cell
    }

    /// Lets `take_holder` take one holder out of the cell of `hash`, and empties the cell if none is left.
    pub(super) fn release(&mut self, hash: u64, take_holder: impl FnOnce(&mut Cell)) {
        let Some(at) = self.find(hash).filter(|&at| self.cells[at].2 > 0) else { return };
        take_holder(&mut self.cells[at]);
        if self.cells[at].2 == 0 {
            self.close_gap(at);
        }
    }

    /// Where `hash` is, or the empty cell where it would be.
    fn find(&self, hash: u64) -> Option<usize> {
        if self.cells.is_empty() {
            return None;
        }
        let mut at = self.home(hash);
        while self.cells[at].2 > 0 && self.cells[at].0 != hash {
            at = self.next(at);
        }
        Some(at)
    }

    fn close_gap(&mut self, gap: usize) {
        let (mut gap, mut at) = (gap, gap);
        loop {
            at = self.next(at);
            if self.cells[at].2 == 0 {
                break;
            }
            // A cell may move back to the gap unless the gap lies before the place where its search begins.
            let home = self.home(self.cells[at].0);
            if self.distance(home, at) >= self.distance(gap, at) {
                self.cells[gap] = self.cells[at];
                gap = at;
            }
        }
        self.cells[gap] = EMPTY;
    }

    /// Where the search for `hash` begins: its spread value scaled to the number of cells.
    fn home(&self, hash: u64) -> usize {
        let spread = hash.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        ((u128::from(spread) * self.cells.len() as u128) >> 64) as usize
    }

    fn next(&self, at: usize) -> usize {
        if at + 1 == self.cells.len() { 0 } else { at + 1 }
    }

    fn distance(&self, from: usize, to: usize) -> usize {
        if to >= from { to - from } else { to + self.cells.len() - from }
    }
}
