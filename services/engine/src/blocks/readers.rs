//! Counts the distinct blocks that decoding sequences read. A block shared by many is read from memory once per step.

use super::BlockIndex;

/// How many decoding sequences read each block.
#[derive(Debug)]
pub(crate) struct Readers {
    per_block: Vec<u32>,
    distinct: u32,
}

impl Readers {
    /// For a pool of `count` blocks that nobody reads.
    pub(crate) fn new(count: u32) -> Self {
        Self { per_block: vec![0; count as usize], distinct: 0 }
    }

    /// Blocks with a reader.
    pub(crate) fn distinct(&self) -> u32 {
        self.distinct
    }

    /// One more reader for each of these.
    pub(crate) fn begin(&mut self, blocks: &[BlockIndex]) {
        for index in blocks {
            let readers = &mut self.per_block[index.get()];
            self.distinct += u32::from(*readers == 0);
            *readers += 1;
        }
    }

    /// One reader less for each of these.
    pub(crate) fn end(&mut self, blocks: &[BlockIndex]) {
        for index in blocks {
            let readers = &mut self.per_block[index.get()];
            *readers -= 1;
            self.distinct -= u32::from(*readers == 0);
        }
    }
}
