use pool::Moment;

use super::*;

fn report(running: &[&str], waiting: &[&str], slots: Option<u32>) -> Adapters {
    let names = |list: &[&str]| list.iter().map(|&n| Arc::from(n)).collect();
    Adapters { running: names(running), waiting: names(waiting), slots, at: Moment::ORIGIN }
}

fn history(slots: u32) -> AdapterHistory {
    let mut history = AdapterHistory::default();
    history.reported(&report(&[], &[], Some(slots)));
    history
}

fn serve(history: &mut AdapterHistory, name: &str) {
    history.sent(name);
    history.served(name);
    history.ended(name);
}

#[test]
fn e07_the_least_recently_used_adapter_makes_room() {
    let mut history = history(2);
    for name in ["a", "b", "a", "c"] {
        serve(&mut history, name);
    }
    assert_eq!(history.residency("a", None), Residency::Loaded);
    assert_eq!(history.residency("c", None), Residency::Loaded);
    assert!(matches!(history.residency("b", None), Residency::Room { .. }));
}

#[test]
fn adapters_with_work_keep_their_slots() {
    let mut history = history(2);
    history.sent("a");
    history.sent("b");
    assert_eq!(history.residency("c", None), Residency::Absent);
    history.served("a");
    history.ended("a");
    assert_eq!(
        history.residency("c", None),
        Residency::Room { free_share: 0.25 },
        "one idle, and it would be pushed out"
    );
}

#[test]
fn classes_by_report() {
    let history = history(2);
    for (running, waiting, expected) in [
        (&["x"][..], &[][..], Residency::Loaded),
        (&[], &[], Residency::Room { free_share: 1.0 }),
        (&["a"], &["a"], Residency::Room { free_share: 0.5 }),
        (&["a"], &["x"], Residency::Queued),
        (&["a", "b"], &["x"], Residency::Queued),
        (&["a", "b"], &[], Residency::Absent),
    ] {
        assert_eq!(
            history.residency("x", Some(&report(running, waiting, Some(2)))),
            expected,
            "{running:?} {waiting:?}"
        );
    }
}

#[test]
fn what_was_sent_and_never_answered_is_forgotten() {
    let mut history = history(4);
    history.sent("a");
    assert_eq!(history.residency("a", None), Residency::Loaded, "it is being loaded");
    history.ended("a");
    assert_eq!(history.residency("a", None), Residency::Room { free_share: 1.0 });
}

#[test]
fn the_memory_is_bounded_whatever_is_in_flight() {
    let mut history = AdapterHistory::default();
    let names: Vec<_> = (0..200).map(|i| format!("adapter-{i}")).collect();
    let sent: Vec<_> = names.iter().map(|name| history.sent(name)).collect();
    assert_eq!(history.known.len(), REMEMBERED_MAX);
    assert_eq!(sent.iter().flatten().count(), REMEMBERED_MAX);
    for name in sent.iter().flatten() {
        history.ended(name);
    }
    assert!(history.known.is_empty());
}
