//! One stream to a picker: messages go out while others come in.

use std::{future::poll_fn, sync::Arc, task::Poll};

use prost::Message;

use super::{
    grpc::{GrpcError, Incoming, Outgoing, frame},
    link::Open,
    message::{ProcessingRequest, ProcessingResponse},
};

/// A stream, open for as long as this lives.
pub(super) struct Call {
    outgoing: Outgoing,
    incoming: Incoming,
    _open: Arc<Open>,
}

impl Call {
    pub(super) fn new(outgoing: Outgoing, incoming: Incoming, open: Arc<Open>) -> Self {
        Self { outgoing, incoming, _open: open }
    }

    /// Puts a message after those that are still to be sent; they go while the next is waited for.
    pub(super) fn tell(&mut self, message: &ProcessingRequest) {
        debug_assert!(message.encoded_len() > 0, "an empty message says nothing");
        self.outgoing.push(frame(message));
    }

    /// The next message; nothing once the picker has ended the stream well.
    pub(super) async fn next(&mut self) -> Result<Option<ProcessingResponse>, GrpcError> {
        poll_fn(|cx| {
            self.outgoing.advance(cx);
            match self.incoming.poll_message(cx) {
                Poll::Pending => {
                    // What came may have been room to send.
                    self.outgoing.advance(cx);
                    Poll::Pending
                }
                ready @ Poll::Ready(_) => ready,
            }
        })
        .await
    }
}

impl Drop for Call {
    /// That is how the picker learns that the request is over, one way or the other.
    fn drop(&mut self) {
        self.outgoing.finish();
    }
}
