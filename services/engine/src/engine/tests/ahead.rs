//! Batches formed while the step before them runs.

use super::*;

fn ahead(blocks: u32) -> Profile {
    Profile { scheduling: Scheduling::Ahead, ..small(blocks) }
}

#[test]
fn a_lone_request_is_as_fast_as_in_turn() {
    let events = |profile| {
        let mut engine = Engine::new(profile, 1);
        engine.submit(request(1, 20, 3), ms(5)).unwrap();
        run(&mut engine)
    };
    assert_eq!(events(ahead(20)), events(small(20)));
}

#[test]
fn one_that_arrives_during_a_step_joins_the_step_after_the_next() {
    let mut engine = Engine::new(ahead(50), 1);
    engine.submit(request(1, 4, 9), ms(0)).unwrap();
    engine.step(ms(0));
    // Steps begin at 0, 20, 30, 40 …: the batch of 30 is formed at 20.
    engine.submit(request(2, 4, 2), ms(25)).unwrap();
    let events = run(&mut engine);
    assert_eq!(kinds(&events, 2)[0], (30, EventKind::Scheduled { cached_tokens: 0 }));
    assert!(kinds(&events, 2).contains(&(60, EventKind::FirstToken)), "{events:?}");
}

#[test]
fn a_place_is_free_one_step_after_its_request_ended() {
    let mut engine = Engine::new(Profile { max_seqs: 2, ..ahead(50) }, 1);
    for (id, output) in [(1, 3), (2, 9), (3, 1)] {
        engine.submit(request(id, 4, output), ms(0)).unwrap();
    }
    let events = run(&mut engine);
    // The first ends at 40. The batch of the step that begins then is formed already, so the third is in the next.
    assert_eq!(kinds(&events, 1).last(), Some(&(40, EventKind::Finished(FinishReason::Stop))));
    assert_eq!(kinds(&events, 3)[..2], [(40, EventKind::Scheduled { cached_tokens: 0 }), (70, EventKind::FirstToken)]);
}

#[test]
fn a_last_token_in_flight_is_not_computed_twice() {
    let mut engine = Engine::new(ahead(50), 1);
    engine.submit(request(1, 4, 3), ms(0)).unwrap();
    engine.submit(request(2, 4, 6), ms(0)).unwrap();
    run(&mut engine);
    let counters = engine.stats().counters;
    assert_eq!((counters.generation_tokens, counters.steps), (9, 6));
}

#[test]
fn long_prompts_are_chunked_over_steps_in_flight() {
    let mut engine = Engine::new(ahead(50), 1);
    engine.submit(request(1, 60, 2), ms(0)).unwrap();
    let events = run(&mut engine);
    assert!(kinds(&events, 1).contains(&(80, EventKind::FirstToken)), "four chunks of 20 ms: {events:?}");
    assert_eq!(engine.stats().counters.prefill_steps, 4);
}
