//! The queue of free blocks: a doubly linked list through two arrays, so that a block found in the cache leaves the
//! middle of the queue in constant time.

use super::BlockIndex;

#[derive(Debug)]
pub(super) struct FreeList {
    /// Links per block; the last entry is the sentinel that closes the ring.
    links: Vec<Link>,
    len: u32,
}

#[derive(Clone, Copy, Debug)]
struct Link {
    before: u32,
    after: u32,
}

impl FreeList {
    /// All of `count` blocks, in order.
    pub(super) fn full(count: u32) -> Self {
        let ring = count + 1;
        let links = (0..ring).map(|i| Link { before: (i + ring - 1) % ring, after: (i + 1) % ring }).collect();
        Self { links, len: count }
    }

    pub(super) fn len(&self) -> u32 {
        self.len
    }

    pub(super) fn push_back(&mut self, index: BlockIndex) {
        let sentinel = self.sentinel();
        let last = self.links[sentinel as usize].before;
        self.link(last, index.0, sentinel);
    }

    pub(super) fn push_front(&mut self, index: BlockIndex) {
        let sentinel = self.sentinel();
        let first = self.links[sentinel as usize].after;
        self.link(sentinel, index.0, first);
    }

    pub(super) fn pop_front(&mut self) -> Option<BlockIndex> {
        let first = self.links[self.sentinel() as usize].after;
        if first == self.sentinel() {
            return None;
        }
        self.unlink(BlockIndex(first));
        Some(BlockIndex(first))
    }

    /// Takes a block that is in the queue out of it.
    pub(super) fn unlink(&mut self, index: BlockIndex) {
        let Link { before, after } = self.links[index.get()];
        self.links[before as usize].after = after;
        self.links[after as usize].before = before;
        self.len -= 1;
    }

    fn link(&mut self, before: u32, index: u32, after: u32) {
        self.links[index as usize] = Link { before, after };
        self.links[before as usize].after = index;
        self.links[after as usize].before = index;
        self.len += 1;
    }

    fn sentinel(&self) -> u32 {
        self.links.len() as u32 - 1
    }
}
