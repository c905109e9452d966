//! A request may be dropped at every point where it waits: whatever it had is then given back, and it ends once.
//!
//! The whole stack runs in one thread against an endpoint of this process that answers well or badly, over real
//! sockets. Time is not asked for: a request is polled when it is woken and dropped after so many polls. Where requests
//! wait for room, it stands still until nothing else is to be done.

mod by_hand;
mod endpoint;
mod site;
mod waiting;

use std::{
    future::poll_fn,
    pin::Pin,
    task::{Context, Poll},
};

use http::Response;
use http_body::Body;
use proptest::prelude::*;

use self::{endpoint::Manner, site::Site};
use crate::answer::Answer;

/// More polls than any request of these tests takes.
const POLLS_MAX: usize = 200;

type Head = Pin<Box<dyn Future<Output = Response<Answer>>>>;

/// A request on its way, as its connection holds it.
enum Open {
    /// Its answer has not begun.
    Asked(Head),
    /// Its answer is being read.
    Answering(Pin<Box<Answer>>),
    /// It was answered, or its answer broke, to the end.
    Ended,
}

impl Open {
    fn poll(&mut self, cx: &mut Context<'_>) {
        match self {
            Self::Asked(head) => {
                if let Poll::Ready(response) = head.as_mut().poll(cx) {
                    *self = Self::Answering(Box::pin(response.into_body()));
                    // Else nobody would wake us: the answer was not asked for its first piece.
                    cx.waker().wake_by_ref();
                }
            }
            Self::Answering(body) => match body.as_mut().poll_frame(cx) {
                Poll::Ready(Some(Ok(_))) => cx.waker().wake_by_ref(),
                Poll::Ready(Some(Err(_)) | None) => *self = Self::Ended,
                Poll::Pending => {}
            },
            Self::Ended => {}
        }
    }

    fn has_ended(&self) -> bool {
        matches!(self, Self::Ended)
    }
}

/// Polls a request when it is woken, at most so many times; says whether it came to its end.
async fn poll_at_most(open: &mut Open, polls: usize) -> bool {
    let mut left = polls;
    poll_fn(|cx| {
        if left == 0 || open.has_ended() {
            return Poll::Ready(open.has_ended());
        }
        left -= 1;
        open.poll(cx);
        if left == 0 || open.has_ended() { Poll::Ready(open.has_ended()) } else { Poll::Pending }
    })
    .await
}

#[test]
fn a_request_dropped_at_any_await_gives_everything_back_and_ends_once() {
    for manner in Manner::ALL {
        let mut outcomes = Vec::new();
        for polls in 0.. {
            assert!(polls < POLLS_MAX, "{manner:?} does not come to an end");
            // With another endpoint to go to, for those that are tried again.
            let site = Site::new(2);
            let ended = site.run(async {
                let mut open = Open::Asked(site.ask("only", manner));
                let ended = poll_at_most(&mut open, polls).await;
                // Its place is taken from the pick until it is dropped, and not before.
                assert_eq!(site.in_flight(), site.places(&["only"]), "{manner:?} after {polls} polls");
                // What it holds of its quota, it holds from before the pick.
                assert!(
                    u64::from(site.in_flight()) <= site.held() && site.held() <= 1,
                    "{manner:?} after {polls} polls"
                );
                drop(open);
                assert_eq!(site.left_over(), (0, 0, 0), "{manner:?} after {polls} polls");
                ended
            });
            let lines = site.finish();
            let [line] = &lines[..] else { panic!("{manner:?} after {polls} polls: {lines:?}") };
            let outcome = line["outcome"].as_str().expect("a line has an outcome").to_owned();
            if !ended {
                let early = manner.outcome();
                assert!(outcome == "client_gone" || outcome == early, "{manner:?} after {polls} polls: {outcome}");
            }
            outcomes.push(outcome);
            if ended {
                break;
            }
        }
        assert_eq!(outcomes.last().map(String::as_str), Some(manner.outcome()), "{manner:?}");
        assert!(outcomes.len() > 2 && outcomes[0] == "client_gone", "{manner:?} never waited: {outcomes:?}");
    }
}

/// What a test does next with one of its requests.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// A new one, answered in this manner.
    Begin(Manner),
    /// Polls one so many times.
    Poll(prop::sample::Index, usize),
    /// Its client leaves.
    Drop(prop::sample::Index),
    /// The endpoints are replaced by as many others, while work is under way.
    Replace,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let manner = prop::sample::select(Manner::ALL.to_vec());
    let step = prop_oneof![
        4 => manner.prop_map(Step::Begin),
        8 => (any::<prop::sample::Index>(), 1usize..6).prop_map(|(which, polls)| Step::Poll(which, polls)),
        2 => any::<prop::sample::Index>().prop_map(Step::Drop),
        1 => Just(Step::Replace),
    ];
    prop::collection::vec(step, 1..40)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn in_flight_is_the_number_of_open_requests_under_any_interleaving(steps in steps()) {
        let site = Site::new(2);
        let begun = site.run(async {
            let mut open: Vec<(String, Open)> = Vec::new();
            let mut begun = 0;
            for step in steps {
                match step {
                    Step::Begin(manner) => {
                        begun += 1;
                        let id = format!("r{begun}");
                        open.push((id.clone(), Open::Asked(site.ask(&id, manner))));
                    }
                    Step::Poll(which, polls) if !open.is_empty() => {
                        let index = which.index(open.len());
                        poll_at_most(&mut open[index].1, polls).await;
                    }
                    Step::Drop(which) if !open.is_empty() => {
                        open.swap_remove(which.index(open.len()));
                    }
                    Step::Poll(..) | Step::Drop(_) => {}
                    Step::Replace => site.replace_endpoints(),
                }
                let ids: Vec<&str> = open.iter().map(|(id, _)| id.as_str()).collect();
                assert_eq!(site.in_flight(), site.places(&ids));
                assert!((u64::from(site.in_flight())..=ids.len() as u64).contains(&site.held()));
            }
            drop(open);
            assert_eq!(site.left_over(), (0, 0, 0));
            begun
        });
        let mut ids: Vec<String> =
            site.finish().iter().map(|line| line["x-request-id"].as_str().unwrap().to_owned()).collect();
        ids.sort();
        let mut expected: Vec<String> = (1..=begun).map(|n| format!("r{n}")).collect();
        expected.sort();
        prop_assert_eq!(ids, expected, "one line for each, and for no other");
    }
}
