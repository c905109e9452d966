//! One node per (block, endpoint): a place in the endpoint's list from newest to oldest, and in the block's list of
//! holders. All nodes live in one array and point at each other by index.

use std::mem::size_of;

use super::table::Cell;

/// No node.
pub(super) const NONE: u32 = u32::MAX;

/// One block as held by one endpoint.
#[derive(Clone, Copy, Debug)]
pub(super) struct Node {
    pub(super) hash: u64,
    /// The record that touched it last.
    tick: u64,
    /// The same endpoint's node of the block before this one. It is never older, so it outlives this node.
    parent: u32,
    pub(super) lane: u32,
    newer: u32,
    older: u32,
    next_holder: u32,
    previous_holder: u32,
}

impl Node {
    pub(super) fn new(hash: u64, parent: u32, lane: u32, tick: u64) -> Self {
        Self { hash, tick, parent, lane, newer: NONE, older: NONE, next_holder: NONE, previous_holder: NONE }
    }
}

/// One endpoint's nodes, newest to oldest.
#[derive(Clone, Copy, Debug)]
pub(super) struct LaneList {
    newest: u32,
    pub(super) oldest: u32,
    pub(super) len: u32,
}

impl LaneList {
    pub(super) const EMPTY: Self = Self { newest: NONE, oldest: NONE, len: 0 };
}

#[derive(Debug)]
pub(super) struct Nodes {
    all: Vec<Node>,
    nodes_max: usize,
    /// First of the nodes that were given back; they are chained by `older`.
    unused: u32,
}

impl Nodes {
    pub(super) fn with_room_for(nodes_max: usize) -> Self {
        Self { all: Vec::with_capacity(nodes_max), nodes_max, unused: NONE }
    }

    pub(super) fn bytes(&self) -> usize {
        self.all.capacity() * size_of::<Node>()
    }

    pub(super) fn get(&self, node: u32) -> Node {
        self.all[node as usize]
    }

    pub(super) fn tick(&self, node: u32) -> u64 {
        self.all[node as usize].tick
    }

    /// An unused node, to be placed at once.
    pub(super) fn take(&mut self) -> Option<u32> {
        if self.unused != NONE {
            let node = self.unused;
            self.unused = self.all[node as usize].older;
            return Some(node);
        }
        if self.all.len() == self.nodes_max {
            return None;
        }
        self.all.push(Node::new(0, NONE, NONE, 0));
        Some((self.all.len() - 1) as u32)
    }

    pub(super) fn give_back(&mut self, node: u32) {
        self.all[node as usize].older = self.unused;
        self.unused = node;
    }

    /// Writes a node and puts it into its lane's list: right behind its parent, or first when it has none.
    pub(super) fn place(&mut self, at: u32, node: Node, list: &mut LaneList) {
        self.all[at as usize] = node;
        let older = if node.parent == NONE { list.newest } else { self.all[node.parent as usize].older };
        self.link(at, node.parent, older, list);
    }

    /// Makes a node its lane's newest. Returns its parent.
    pub(super) fn renew(&mut self, node: u32, tick: u64, list: &mut LaneList) -> u32 {
        if list.newest != node {
            self.unlink(node, list);
            self.link(node, NONE, list.newest, list);
        }
        let renewed = &mut self.all[node as usize];
        renewed.tick = tick;
        renewed.parent
    }

    pub(super) fn unlink(&mut self, node: u32, list: &mut LaneList) {
        let Node { newer, older, .. } = self.all[node as usize];
        match newer {
            NONE => list.newest = older,
            newer => self.all[newer as usize].older = older,
        }
        match older {
            NONE => list.oldest = newer,
            older => self.all[older as usize].newer = newer,
        }
        list.len -= 1;
    }

    /// The nodes of a block, from its first holder on.
    pub(super) fn holders(&self, first: u32) -> impl Iterator<Item = &Node> {
        let mut at = first;
        std::iter::from_fn(move || {
            let node = self.all.get(at as usize)?;
            at = node.next_holder;
            Some(node)
        })
    }

    /// The node by which `lane` is among the holders.
    pub(super) fn holder_in(&self, first: u32, lane: u32) -> Option<u32> {
        let mut at = first;
        while at != NONE {
            let node = &self.all[at as usize];
            if node.lane == lane {
                return Some(at);
            }
            at = node.next_holder;
        }
        None
    }

    /// Puts a node first among the holders of its block.
    pub(super) fn add_holder(&mut self, node: u32, cell: &mut Cell) {
        let next = if cell.2 == 0 { NONE } else { cell.1 };
        self.all[node as usize].next_holder = next;
        if next != NONE {
            self.all[next as usize].previous_holder = node;
        }
        cell.1 = node;
        cell.2 += 1;
    }

    /// Takes a node out of the holders of its block.
    pub(super) fn remove_holder(&mut self, node: u32, cell: &mut Cell) {
        let Node { next_holder: next, previous_holder: previous, .. } = self.all[node as usize];
        match previous {
            NONE => cell.1 = next,
            previous => self.all[previous as usize].next_holder = next,
        }
        if next != NONE {
            self.all[next as usize].previous_holder = previous;
        }
        cell.2 -= 1;
    }

    fn link(&mut self, node: u32, newer: u32, older: u32, list: &mut LaneList) {
        self.all[node as usize].newer = newer;
        self.all[node as usize].older = older;
        match newer {
            NONE => list.newest = node,
            newer => self.all[newer as usize].older = node,
        }
        match older {
            NONE => list.oldest = node,
            older => self.all[older as usize].newer = node,
        }
        list.len += 1;
    }
}
