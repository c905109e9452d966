//! Which endpoint a request is sent to next, after what came of its last try.
//!
//! Nothing sent: the next of the list, as often as there is one. Refused for want of room (429, 503): the endpoint is
//! marked as full for the time it asks for, and the request may be sent once more, to the first of the rest of its list
//! that has room, if the pool's budget of retries allows. So a refusal is never multiplied: one endpoint that refuses
//! costs at most one more try, and a pool that refuses costs a tenth of its requests. Any other outcome is the last.

use std::{
    future::poll_fn,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::SystemTime,
};

use http::Response;
use http_body::Body;
use pool::EndpointId;
use proxy::client::AnswerBody;

use super::pause;
use crate::pools::{EndpointHandle, Lease};

/// Bytes of a refusal's body that are read so that its connection can be used again.
const LEFT_OVER_BYTES_MAX: usize = 64 * 1024;

/// See the module's text.
pub(super) struct Tries<'a> {
    /// Not tried yet, best first.
    ahead: &'a [EndpointId],
    next: Next,
    /// The answer that the one retry is an attempt to better.
    pub(super) refusal: Option<Refusal>,
}

/// An endpoint's refusal, unread, in case that nobody does better.
pub(super) struct Refusal {
    pub(super) response: Response<AnswerBody>,
    pub(super) endpoint: Arc<EndpointHandle>,
}

#[derive(Clone, Copy)]
enum Next {
    /// The first of the list, where the place is.
    First,
    /// The next of the list, where the place is not yet.
    AfterNothingSent,
    /// This one, to which the place was moved.
    Retry(EndpointId),
}

impl<'a> Tries<'a> {
    pub(super) fn new(ranked: &'a [EndpointId]) -> Self {
        Self { ahead: ranked, next: Next::First, refusal: None }
    }

    /// Where to send the request now; its place is there.
    pub(super) fn next(&mut self, lease: &Lease, prefix: &[u64]) -> Option<Arc<EndpointHandle>> {
        let retries = &lease.pool().retries;
        match std::mem::replace(&mut self.next, Next::AfterNothingSent) {
            Next::First => {
                let (&first, rest) = self.ahead.split_first()?;
                self.ahead = rest;
                if let Some(endpoint) = lease.endpoint(first) {
                    endpoint.picks.increment(1);
                    return Some(endpoint);
                }
            }
            Next::Retry(id) => {
                retries.overloaded();
                return lease.endpoint(id);
            }
            Next::AfterNothingSent => {}
        }
        loop {
            let (&id, rest) = self.ahead.split_first()?;
            self.ahead = rest;
            if let Some(endpoint) = lease.endpoint(id)
                && lease.pass_on(id, prefix)
            {
                retries.connect();
                return Some(endpoint);
            }
        }
    }

    /// Keeps an answer back if it is a refusal and the request may be sent once more: then its place has moved, and
    /// [`Tries::next`] says where. Otherwise the answer is what the client gets.
    pub(super) fn keep_for_later(
        &mut self,
        response: Response<AnswerBody>,
        endpoint: &Arc<EndpointHandle>,
        lease: &Lease,
        prefix: &[u64],
    ) -> Option<Response<AnswerBody>> {
        let Some(pause) = pause::asked_for(response.status(), response.headers(), SystemTime::now()) else {
            return Some(response);
        };
        lease.hold_off(pause);
        // At most one more try: a replay on a fresh connection was one.
        if self.refusal.is_some() || response.body().replayed() {
            return Some(response);
        }
        match lease.retry(self.ahead, prefix) {
            Err(_) => Some(response),
            Ok(id) => {
                let at = self.ahead.iter().position(|ahead| *ahead == id).map_or(self.ahead.len(), |at| at + 1);
                self.ahead = &self.ahead[at..];
                self.next = Next::Retry(id);
                self.refusal = Some(Refusal { response, endpoint: Arc::clone(endpoint) });
                None
            }
        }
    }

    /// Another answer is given: what is left of a refusal is read if it is there, so that its connection serves again,
    /// and hung up on otherwise.
    pub(super) async fn end(self) {
        let Some(Refusal { response, .. }) = self.refusal else { return };
        let mut body = response.into_body();
        let mut left_bytes = LEFT_OVER_BYTES_MAX;
        poll_fn(|cx| {
            read_what_is_there(&mut body, &mut left_bytes, cx);
            Poll::Ready(())
        })
        .await;
    }
}

fn read_what_is_there(body: &mut AnswerBody, left_bytes: &mut usize, cx: &mut Context<'_>) {
    while let Poll::Ready(Some(Ok(frame))) = Pin::new(&mut *body).poll_frame(cx) {
        let bytes = frame.data_ref().map_or(0, bytes::Bytes::len);
        match left_bytes.checked_sub(bytes) {
            Some(rest) => *left_bytes = rest,
            None => return,
        }
    }
}
