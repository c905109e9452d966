use proptest::prelude::*;

use super::*;

fn chains(seed: u64, contents: &[u64]) -> Vec<ChainHash> {
    let extend = |chain: &mut ChainHash, block: &u64| {
        *chain = chain.then(BlockHash(*block));
        Some(*chain)
    };
    contents.iter().scan(ChainHash::root(seed), extend).collect()
}

/// Takes and caches blocks for a whole sequence, reusing what is found.
fn admit(pool: &mut BlockPool, chains: &[ChainHash]) -> Vec<BlockIndex> {
    let mut held = pool.find(chains, usize::MAX);
    for &index in &held {
        pool.hold(index);
    }
    for chain in &chains[held.len()..] {
        let index = pool.take().unwrap();
        pool.cache(index, *chain);
        held.push(index);
    }
    held
}

#[test]
fn a_chain_is_found_only_from_its_start_and_with_its_seed() {
    let mut pool = BlockPool::new(8);
    let blocks = admit(&mut pool, &chains(1, &[10, 11, 12]));
    assert_eq!(pool.find(&chains(1, &[10, 11, 99]), 9), blocks[..2]);
    assert!(pool.find(&chains(1, &[11, 12]), 9).is_empty());
    assert!(pool.find(&chains(2, &[10, 11, 12]), 9).is_empty());
    assert_eq!(pool.find(&chains(1, &[10, 11, 12]), 2), blocks[..2]);
}

#[test]
fn free_cached_blocks_are_found_until_taken_and_the_tail_goes_first() {
    let mut pool = BlockPool::new(3);
    let chain = chains(1, &[10, 11, 12]);
    let blocks = admit(&mut pool, &chain);
    pool.release(&blocks);
    assert_eq!((pool.free(), pool.cached_free()), (3, 3));
    assert_eq!(pool.find(&chain, 9), blocks);
    assert_eq!(pool.take(), Some(blocks[2]));
    assert_eq!(pool.find(&chain, 9), blocks[..2]);
    assert_eq!((pool.used(), pool.cached_free()), (1, 2));
}

#[test]
fn blocks_without_a_cached_prefix_are_taken_first() {
    let mut pool = BlockPool::new(3);
    let cached = admit(&mut pool, &chains(1, &[10]));
    let partial = pool.take().unwrap();
    pool.release(&cached);
    pool.release(&[partial]);
    assert_eq!(pool.take(), Some(partial));
}

#[test]
fn the_least_recently_used_prefix_is_lost_first() {
    let mut pool = BlockPool::new(2);
    let (old, new) = (chains(1, &[10]), chains(1, &[20]));
    let old_blocks = admit(&mut pool, &old);
    pool.release(&old_blocks);
    let new_blocks = admit(&mut pool, &new);
    pool.release(&new_blocks);
    let again = admit(&mut pool, &old);
    pool.release(&again);
    pool.take();
    assert!(pool.find(&new, 1).is_empty());
    assert_eq!(pool.find(&old, 1), old_blocks);
}

#[test]
fn twins_are_forgotten_one_by_one() {
    let mut pool = BlockPool::new(3);
    let chain = chains(1, &[10])[0];
    let twins: Vec<_> = (0..3)
        .map(|_| {
            let index = pool.take().unwrap();
            pool.cache(index, chain);
            index
        })
        .collect();
    // Oldest, newest, middle: every position in the chain of twins.
    for index in [twins[0], twins[2], twins[1]] {
        assert_eq!(pool.find(&[chain], 1).len(), 1);
        pool.release(&[index]);
        assert_eq!(pool.take(), Some(index));
    }
    assert!(pool.find(&[chain], 1).is_empty());
}

#[test]
fn readers_count_shared_blocks_once() {
    let mut readers = Readers::new(4);
    let [a, b, c] = [0, 1, 2].map(BlockIndex);
    readers.begin(&[a, b]);
    readers.begin(&[a, c]);
    assert_eq!(readers.distinct(), 3);
    readers.end(&[a, b]);
    assert_eq!(readers.distinct(), 2);
}

proptest! {
    /// Against a plain model: after any admissions and releases, the counts add up, and what is found is a chain that
    /// was admitted.
    #[test]
    fn blocks_are_conserved(script in prop::collection::vec((any::<bool>(), prop::collection::vec(0_u64..3, 1..6)), 1..60)) {
        let mut pool = BlockPool::new(16);
        let mut held: Vec<Vec<BlockIndex>> = Vec::new();
        let mut ever: std::collections::HashSet<ChainHash> = Default::default();
        for (release, contents) in script {
            if release && !held.is_empty() {
                pool.release(&held.remove(0));
            }
            let chain = chains(7, &contents);
            let found = pool.find(&chain, usize::MAX);
            prop_assert!(chain[..found.len()].iter().all(|c| ever.contains(c)));
            let fresh = (chain.len() - found.len()) as u32;
            if fresh + pool.count_free(&found) <= pool.free() {
                held.push(admit(&mut pool, &chain));
                ever.extend(&chain);
            }
            let mut distinct: Vec<_> = held.iter().flatten().copied().collect();
            distinct.sort_unstable();
            distinct.dedup();
            prop_assert_eq!(distinct.len() as u32, pool.used());
            prop_assert_eq!(pool.used() + pool.free(), pool.total());
            prop_assert!(pool.cached_free() <= pool.free());
        }
        for sequence in held {
            pool.release(&sequence);
        }
        prop_assert_eq!(pool.free(), 16);
    }
}
