//! The journal of the prefix cache.

use std::collections::HashMap;

use super::*;
use crate::CacheChange;

fn recording(profile: Profile) -> Engine {
    let mut engine = Engine::new(profile, 1);
    engine.record_cache_changes();
    engine
}

#[test]
fn full_blocks_are_stored_as_chains_and_hits_say_nothing() {
    let mut engine = recording(small(50));
    engine.submit(with_blocks(request(1, 10, 4), [7, 8, 9]), ms(0)).unwrap();
    run(&mut engine);
    let changes = engine.take_cache_changes();
    let [first, second] = changes.as_slice() else { panic!("{changes:?}") };
    let CacheChange::Stored { request, first_block: 0, parent: None, keys } = first else { panic!("{first:?}") };
    assert_eq!((*request, keys.len()), (RequestId(1), 2));
    // The third block is filled by what was generated.
    let CacheChange::Stored { first_block: 2, parent, keys: next, .. } = second else { panic!("{second:?}") };
    assert_eq!((*parent, next.len()), (keys.last().copied(), 1));
    let id = RequestId(2);
    engine.submit(Request { id, ..with_blocks(request_of(10), [7, 8, 9]) }, ms(500)).unwrap();
    run(&mut engine);
    assert!(engine.take_cache_changes().is_empty());
}

fn request_of(prompt: u32) -> Request {
    request(2, prompt, 1)
}

#[test]
fn an_engine_that_nobody_asked_keeps_no_changes() {
    let mut engine = Engine::new(small(50), 1);
    engine.submit(request(1, 20, 4), ms(0)).unwrap();
    run(&mut engine);
    assert!(engine.take_cache_changes().is_empty());
    assert_eq!(engine.cache_changes_lost(), 0);
}

proptest! {
    /// Whoever follows the journal knows what is in the cache: each key as often as it is there.
    #[test]
    fn the_journal_tells_what_is_in_the_cache(script in actions(), blocks in 11_u32..30, ahead in any::<bool>()) {
        let scheduling = if ahead { Scheduling::Ahead } else { Scheduling::InTurn };
        let mut engine = recording(Profile { scheduling, ..small(blocks) });
        let mut copies: HashMap<CacheKey, usize> = HashMap::new();
        let mut now = 0;
        for (number, action) in script.iter().enumerate() {
            match action {
                Action::Submit { prompt, tail, output, .. } => {
                    let tokens = prompt.len() as u32 * 4 + tail;
                    let new = with_blocks(request(number as u64, tokens, *output), prompt.iter().copied());
                    engine.submit(new, ms(now)).unwrap();
                }
                Action::Abort(index) => {
                    engine.abort(RequestId(*index as u64), ms(now));
                }
                Action::Advance(by) => {
                    now += by;
                    engine.step(ms(now));
                }
            }
            for change in engine.take_cache_changes() {
                match change {
                    CacheChange::Stored { keys, parent, first_block, .. } => {
                        prop_assert_eq!(parent.is_none(), first_block == 0);
                        for key in keys {
                            *copies.entry(key).or_default() += 1;
                        }
                    }
                    CacheChange::Removed(key) => {
                        let count = copies.get_mut(&key).expect("only what was stored is removed");
                        *count -= 1;
                        if *count == 0 {
                            copies.remove(&key);
                        }
                    }
                }
            }
            prop_assert_eq!(engine.blocks.copies(), copies.clone());
        }
    }
}
