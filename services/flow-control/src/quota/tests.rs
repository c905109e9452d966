use std::{num::NonZeroU64, time::Duration};

use pool::Moment;
use proptest::prelude::*;

use super::*;

const KEY: Key = Key(7);
const ROOM: usize = 100;

fn per_minute(number: u64) -> Option<NonZeroU64> {
    NonZeroU64::new(number)
}

fn requests(number: u64) -> Rates {
    Rates { requests: per_minute(number), ..Rates::default() }
}

fn tokens(number: u64) -> Rates {
    Rates { tokens: per_minute(number), ..Rates::default() }
}

fn at_ms(ms: u64) -> Moment {
    Moment::from_origin(Duration::from_millis(ms))
}

fn input(input: u64) -> Tokens {
    Tokens { input, output: 0 }
}

/// Check and take, as the owner of one table does.
fn reserve(table: &mut Table, key: Key, tokens: Tokens, now: Moment) -> Result<Hold, Refusal> {
    table.check(key, tokens, now)?;
    Ok(table.take(key, tokens, now))
}

/// All that anybody could tell of an account.
fn seen(table: &Table, now: Moment) -> (Vec<Option<Left>>, u64) {
    (Unit::ALL.into_iter().map(|unit| table.left(KEY, unit, now)).collect(), table.in_use())
}

#[test]
fn of_seven_a_minute_seven_pass_at_once_and_one_more_each_seventh_of_a_minute() {
    let mut table = Table::new(requests(7), ROOM);
    let mut holds = Vec::new();
    for _ in 0..7 {
        holds.push(reserve(&mut table, KEY, input(0), at_ms(0)).expect("within the quota"));
    }
    let refusal = reserve(&mut table, KEY, input(0), at_ms(0)).expect_err("the eighth");
    assert_eq!((refusal.unit, refusal.limit), (Unit::Requests, 7));
    let Until::After(wait) = refusal.until else { panic!("{refusal:?}") };
    assert_eq!(wait, Duration::from_nanos(60_000_000_000_u64.div_ceil(7)));
    assert!(reserve(&mut table, KEY, input(0), at_ms(8_571)).is_err());
    let served = reserve(&mut table, KEY, input(0), Moment::ORIGIN + wait).expect("after the wait that was named");
    assert!(reserve(&mut table, KEY, input(0), Moment::ORIGIN + wait).is_err());
    for hold in holds.into_iter().chain([served]) {
        table.end(hold, End::Took(input(0)), at_ms(9_000));
    }
    assert_eq!(table.in_use(), 0);
}

#[test]
fn keys_do_not_share() {
    let mut table = Table::new(requests(1), ROOM);
    let _one = reserve(&mut table, Key(1), input(0), at_ms(0)).expect("the first of its key");
    let _other = reserve(&mut table, Key(2), input(0), at_ms(0)).expect("the first of its key");
    assert!(reserve(&mut table, Key(1), input(0), at_ms(0)).is_err());
}

#[test]
fn f06_who_is_refused_for_one_number_pays_nothing_of_another() {
    let rates = Rates { concurrent_requests: per_minute(1), ..requests(2) };
    let mut table = Table::new(rates, ROOM);
    let a = reserve(&mut table, KEY, input(0), at_ms(0)).expect("A");
    let refusal = reserve(&mut table, KEY, input(0), at_ms(1)).expect_err("B");
    assert_eq!((refusal.unit, refusal.until), (Unit::Concurrency, Until::OneEnds));
    table.end(a, End::Took(input(0)), at_ms(2));
    let c = reserve(&mut table, KEY, input(0), at_ms(3)).expect("C");
    table.end(c, End::Took(input(0)), at_ms(4));
    let refusal = reserve(&mut table, KEY, input(0), at_ms(5)).expect_err("D");
    assert_eq!(refusal.unit, Unit::Requests);
}

#[test]
fn what_alone_is_more_than_a_minute_gives_never_passes_and_says_so() {
    let mut table = Table::new(tokens(100), ROOM);
    let refusal = reserve(&mut table, KEY, Tokens { input: 50, output: 51 }, at_ms(0)).expect_err("101 of 100");
    assert_eq!(refusal, Refusal { unit: Unit::Tokens, limit: 100, asked: 101, until: Until::Never });
    let _all = reserve(&mut table, KEY, Tokens { input: 50, output: 50 }, at_ms(0)).expect("100 of 100");
}

#[test]
fn each_kind_of_token_has_its_number() {
    let rates = Rates { input_tokens: per_minute(100), output_tokens: per_minute(10), ..Rates::default() };
    let mut table = Table::new(rates, ROOM);
    let first = reserve(&mut table, KEY, Tokens { input: 10, output: 10 }, at_ms(0)).expect("within both");
    let refusal = reserve(&mut table, KEY, Tokens { input: 10, output: 1 }, at_ms(0)).expect_err("no output left");
    assert_eq!(refusal.unit, Unit::OutputTokens);
    let embedding = reserve(&mut table, KEY, input(10), at_ms(0)).expect("nothing is generated");
    table.end(first, End::Took(Tokens { input: 30, output: 2 }), at_ms(0));
    table.end(embedding, End::Took(input(10)), at_ms(0));
    let left = |unit| table.left(KEY, unit, at_ms(0)).map(|left| left.remaining);
    assert_eq!((left(Unit::InputTokens), left(Unit::OutputTokens), left(Unit::Tokens)), (Some(60), Some(8), None));
}

#[test]
fn what_an_answer_took_beyond_its_estimate_is_paid_for() {
    let mut table = Table::new(tokens(60), ROOM);
    let hold = reserve(&mut table, KEY, input(10), at_ms(0)).expect("within the quota");
    // As one that asks for a hundred answers at once, or names no limit.
    table.end(hold, End::Took(input(1_200)), at_ms(0));
    let minutes = |ms| table.left(KEY, Unit::Tokens, at_ms(ms)).map(|left| left.full_in.as_secs() / 60);
    assert_eq!((minutes(0), minutes(600_000)), (Some(20), Some(10)), "twenty minutes' amount is there after so many");
    assert!(table.check(KEY, input(1), at_ms(19 * 60_000)).is_err());
    assert!(table.check(KEY, input(1), at_ms(20 * 60_000)).is_ok());
}

#[test]
fn more_than_was_reserved_is_a_debt_of_an_hour_at_most() {
    let mut table = Table::new(tokens(60), ROOM);
    let mut hold = reserve(&mut table, KEY, input(10), at_ms(0)).expect("within the quota");
    table.settle(&mut hold, input(1_000_000), at_ms(0));
    let left = table.left(KEY, Unit::Tokens, at_ms(0)).expect("tokens are limited");
    assert_eq!((left.remaining, left.full_in), (0, Duration::from_secs(61 * 60)));
    let refusal = reserve(&mut table, KEY, input(1), at_ms(0)).expect_err("in debt");
    assert_eq!(refusal.until, Until::After(Duration::from_secs(60 * 60 + 1)));
    // What the bound of debts left out was not charged, so it is not given back either.
    table.end(hold, End::Took(input(10)), at_ms(0));
    assert_eq!(table.left(KEY, Unit::Tokens, at_ms(0)).map(|left| left.remaining), Some(50));
}

#[test]
fn other_numbers_keep_the_share_that_was_used_and_who_is_inside() {
    let mut table = Table::new(Rates { concurrent_requests: per_minute(2), ..tokens(1_000) }, ROOM);
    let hold = reserve(&mut table, KEY, input(250), at_ms(0)).expect("within the quota");
    table.configure(Rates { concurrent_requests: per_minute(1), ..tokens(100) }, ROOM, at_ms(0));
    assert_eq!(table.left(KEY, Unit::Tokens, at_ms(0)).map(|left| left.remaining), Some(75));
    assert_eq!(reserve(&mut table, KEY, input(1), at_ms(0)).expect_err("one is inside").unit, Unit::Concurrency);
    table.configure(requests(5), ROOM, at_ms(0));
    assert_eq!(table.left(KEY, Unit::Tokens, at_ms(0)), None);
    table.end(hold, End::Took(input(300)), at_ms(0));
    assert_eq!((table.in_use(), table.left(KEY, Unit::Requests, at_ms(0)).map(|left| left.remaining)), (0, Some(5)));
}

#[test]
fn invented_keys_are_bounded_and_squeeze_nobody_who_is_known() {
    let mut table = Table::new(requests(2), 10);
    let known = reserve(&mut table, KEY, input(0), at_ms(0)).expect("the first");
    let mut shared = 0;
    for key in 100..1_100 {
        if let Ok(hold) = reserve(&mut table, Key(key), input(0), at_ms(0)) {
            shared += u32::from(hold.is_shared());
            table.end(hold, End::Took(input(0)), at_ms(0));
        }
    }
    // Nine accounts of their own, and one for all the others.
    assert_eq!((table.keys(), shared), (10, 2));
    let second = reserve(&mut table, KEY, input(0), at_ms(0)).expect("its own second");
    assert!(!known.is_shared() && !second.is_shared());
    for hold in [known, second] {
        table.end(hold, End::Took(input(0)), at_ms(0));
    }
    // A minute later they are as good as new, and give way.
    let newcomer = reserve(&mut table, Key(5_000), input(0), at_ms(60_000)).expect("a fresh key");
    assert!(!newcomer.is_shared());
    table.end(newcomer, End::NotServed, at_ms(60_000));
    assert_eq!(table.in_use(), 0);
}

#[test]
fn accounts_that_say_nothing_are_forgotten_as_others_come() {
    let mut table = Table::new(requests(60), 1_000_000);
    for key in 0..10_000_u64 {
        // One after the other, each long after the one before has its request back.
        let hold = reserve(&mut table, Key(key), input(0), at_ms(key * 2_000)).expect("within the quota");
        table.end(hold, End::Took(input(0)), at_ms(key * 2_000));
    }
    assert!(table.keys() < 10, "{}", table.keys());
}

#[test]
fn who_is_inside_is_never_forgotten() {
    let mut table = Table::new(Rates { concurrent_requests: per_minute(1), ..Rates::default() }, 2);
    let inside = reserve(&mut table, KEY, input(0), at_ms(0)).expect("the first");
    for key in 100..200 {
        let hold = reserve(&mut table, Key(key), input(0), at_ms(1_000_000)).expect("nobody else is inside");
        table.end(hold, End::NotServed, at_ms(1_000_000));
    }
    assert!(reserve(&mut table, KEY, input(0), at_ms(1_000_000)).is_err());
    table.end(inside, End::NotServed, at_ms(1_000_000));
    assert!(reserve(&mut table, KEY, input(0), at_ms(1_000_000)).is_ok());
}

/// What happens to one account.
#[derive(Clone, Copy, Debug)]
enum Step {
    Reserve(u64),
    NotServed(prop::sample::Index),
    /// It took this share, in hundredths, of what was reserved.
    Took(prop::sample::Index, u64),
}

fn steps() -> impl Strategy<Value = Vec<(u64, Step)>> {
    let step = prop_oneof![
        3 => (0_u64..200).prop_map(Step::Reserve),
        1 => any::<prop::sample::Index>().prop_map(Step::NotServed),
        1 => (any::<prop::sample::Index>(), 0_u64..=100).prop_map(|(which, share)| Step::Took(which, share)),
    ];
    let wait_ms = prop_oneof![Just(0_u64), 0_u64..50, 0_u64..30_000];
    prop::collection::vec((wait_ms, step), 1..80)
}

/// What a step added to what is reserved, and when, in milliseconds.
type Move = (u64, i128);

/// Plays steps on a quota of tokens. Gives what is still held at the end, too.
fn play(table: &mut Table, steps: &[(u64, Step)]) -> (Vec<Move>, Vec<(Hold, u64)>) {
    let (mut now_ms, mut moves, mut holds) = (0, Vec::new(), Vec::<(Hold, u64)>::new());
    for (wait_ms, step) in steps {
        now_ms += wait_ms;
        match *step {
            Step::Reserve(amount) => {
                if let Ok(hold) = reserve(table, KEY, input(amount), at_ms(now_ms)) {
                    moves.push((now_ms, i128::from(amount)));
                    holds.push((hold, amount));
                }
            }
            Step::NotServed(which) if !holds.is_empty() => {
                let (hold, amount) = holds.swap_remove(which.index(holds.len()));
                table.end(hold, End::NotServed, at_ms(now_ms));
                moves.push((now_ms, -i128::from(amount)));
            }
            Step::Took(which, share) if !holds.is_empty() => {
                let (hold, amount) = holds.swap_remove(which.index(holds.len()));
                let took = amount * share / 100;
                table.end(hold, End::Took(input(took)), at_ms(now_ms));
                moves.push((now_ms, i128::from(took) - i128::from(amount)));
            }
            Step::NotServed(_) | Step::Took(..) => {}
        }
    }
    (moves, holds)
}

proptest! {
    #[test]
    fn over_any_time_no_more_is_reserved_than_rate_and_burst(rate in 1_u64..400, steps in steps()) {
        let mut table = Table::new(tokens(rate), ROOM);
        let (moves, _holds) = play(&mut table, &steps);
        for (first, (from_ms, _)) in moves.iter().enumerate() {
            let mut sum = 0;
            for (to_ms, amount) in &moves[first..] {
                sum += amount;
                // In thousandths of a token and minute, so that nothing is rounded.
                let allowed = i128::from(rate) * (i128::from(to_ms - from_ms) + 60_000);
                prop_assert!(sum * 60_000 <= allowed, "{sum} in {} ms of {rate} a minute", to_ms - from_ms);
            }
        }
    }

    #[test]
    fn a_refused_request_changes_nothing_and_one_given_back_leaves_nothing(
        rate in 1_u64..400,
        at_once in 1_u64..5,
        steps in steps(),
        amount in 0_u64..500,
        later_ms in 0_u64..90_000,
    ) {
        let now = at_ms(steps.iter().map(|(wait_ms, _)| wait_ms).sum::<u64>() + later_ms);
        let rates = Rates { requests: per_minute(rate), concurrent_requests: per_minute(at_once), ..tokens(rate) };
        let mut table = Table::new(rates, ROOM);
        let (_, holds) = play(&mut table, &steps);
        let before = seen(&table, now);
        match reserve(&mut table, KEY, input(amount), now) {
            Err(refusal) => {
                prop_assert_eq!(seen(&table, now), before);
                // The wait that it names is right to the millisecond.
                if let Until::After(wait) = refusal.until {
                    prop_assert!(table.check(KEY, input(amount), now + wait.saturating_sub(Duration::from_millis(1))).is_err());
                    let after = table.check(KEY, input(amount), now + wait);
                    prop_assert!(!matches!(after, Err(Refusal { until: Until::After(_), .. })), "{:?}", after);
                }
            }
            Ok(hold) => {
                prop_assert_ne!(seen(&table, now), before.clone());
                table.end(hold, End::NotServed, now);
                prop_assert_eq!(seen(&table, now), before);
            }
        }
        drop(holds);
    }

    #[test]
    fn whoever_leaves_leaves_the_count(at_once in 1_u64..5, steps in steps()) {
        let rates = Rates { concurrent_requests: per_minute(at_once), ..Rates::default() };
        let mut table = Table::new(rates, ROOM);
        let (_, holds) = play(&mut table, &steps);
        prop_assert_eq!(table.in_use(), holds.len() as u64);
        prop_assert!(table.in_use() <= at_once);
        for (hold, _) in holds {
            table.end(hold, End::NotServed, at_ms(0));
        }
        prop_assert_eq!(table.in_use(), 0);
    }

    #[test]
    fn time_that_goes_back_gives_nothing_away(
        rate in 1_u64..400,
        asks in prop::collection::vec((0_u64..10_000, 1_u64..200), 1..80),
    ) {
        let mut table = Table::new(tokens(rate), ROOM);
        let mut reserved = 0;
        for (now_ms, amount) in asks {
            reserved += reserve(&mut table, KEY, input(amount), at_ms(now_ms)).map_or(0, |_hold| amount);
        }
        prop_assert!(reserved * 60_000 <= rate * (10_000 + 60_000));
    }

    #[test]
    fn keys_are_bounded_and_nothing_is_lost_whatever_comes(
        asks in prop::collection::vec((0_u64..40, 0_u64..2_000, any::<bool>()), 1..300),
    ) {
        const KEYS_MAX: usize = 8;
        let rates = Rates { concurrent_requests: per_minute(3), ..requests(10) };
        let mut table = Table::new(rates, KEYS_MAX);
        let (mut now_ms, mut holds) = (0, Vec::new());
        for (key, wait_ms, ends_one) in asks {
            now_ms += wait_ms;
            holds.extend(reserve(&mut table, Key(key), input(0), at_ms(now_ms)));
            if ends_one && !holds.is_empty() {
                table.end(holds.swap_remove(0), End::Took(input(0)), at_ms(now_ms));
            }
            prop_assert!(table.keys() <= KEYS_MAX);
            prop_assert_eq!(table.in_use(), holds.len() as u64);
        }
        for hold in holds {
            table.end(hold, End::NotServed, at_ms(now_ms));
        }
        prop_assert_eq!(table.in_use(), 0);
    }
}
