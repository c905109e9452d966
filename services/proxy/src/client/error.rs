//! Why there is no answer.

use std::io;

use thiserror::Error;

/// Why [`super::Clients::send`] has no answer.
#[derive(Debug, Error)]
pub enum SendError {
    /// No connection could be made, or its TLS handshake failed.
    #[error("cannot connect")]
    Connect(#[source] io::Error),
    /// No connection within the limit.
    #[error("no connection within the time limit")]
    ConnectTimeout,
    /// The connection closed after the request, or part of it, was written and before an answer's head was complete.
    #[error("the connection closed before an answer")]
    ClosedBeforeAnswer {
        /// How the request was tried.
        tried: Tried,
        /// What the connection reported, if it did.
        #[source]
        source: Option<Box<dyn std::error::Error + Send + Sync>>,
    },
    /// The request's body broke off before its end: its sender's failure, not the endpoint's.
    #[error("the request's body broke off")]
    RequestBroke,
    /// No head of an answer within the limit.
    #[error("no answer within the time limit")]
    FirstByteTimeout,
    /// A reused connection closed without a byte of an answer, and then the one further try failed too.
    #[error("after a reused connection had closed: {0}")]
    AfterReplay(#[source] Box<Self>),
    /// What came is not an answer we can pass on.
    #[error("the answer breaks the protocol")]
    Protocol(#[source] ProtocolFault),
}

/// On what connections a request was tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tried {
    /// On one fresh connection: the request may be what closed it.
    Fresh,
    /// On a reused connection that had sent bytes of an answer before it closed: not tried again.
    ReusedAndAnswering,
    /// On a reused connection that took a part of a body which is passed on as it arrives: there is no second copy.
    ReusedAndTaken,
    /// On a reused connection, then once more on a fresh one.
    ReusedThenFresh,
}

/// How an answer breaks the protocol.
#[derive(Debug, Error)]
pub enum ProtocolFault {
    /// Over [`super::ANSWER_HEAD_BYTES_MAX`] or [`super::ANSWER_HEADERS_MAX`].
    #[error("the answer's head is too large")]
    HeadTooLarge,
    /// Not HTTP, or contradicting lengths.
    #[error("the answer's head cannot be read")]
    BadHead(#[source] hyper::Error),
    /// A transfer coding other than `chunked` alone.
    #[error("the answer uses a transfer coding other than chunked")]
    TransferCoding,
    /// 101 to a request that asked for no upgrade.
    #[error("the answer switches protocols unasked")]
    Switched,
    /// An HTTP/2 error that is not the connection's end.
    #[error("HTTP/2 error")]
    Http2(#[source] h2::Error),
    /// The request cannot be written in this protocol.
    #[error("the request cannot be sent as it is")]
    Request(#[source] http::Error),
}

impl SendError {
    /// Whether not one byte of the request can have been read by the endpoint, so that any other may be tried.
    pub fn nothing_sent(&self) -> bool {
        match self {
            Self::Connect(_) | Self::ConnectTimeout => true,
            // What cannot be connected to now may have died of the request.
            Self::AfterReplay(_) => false,
            Self::ClosedBeforeAnswer { .. } | Self::RequestBroke | Self::FirstByteTimeout | Self::Protocol(_) => false,
        }
    }

    /// Whether the request was begun twice.
    pub fn replayed(&self) -> bool {
        match self {
            Self::AfterReplay(_) | Self::ClosedBeforeAnswer { tried: Tried::ReusedThenFresh, .. } => true,
            Self::ClosedBeforeAnswer {
                tried: Tried::Fresh | Tried::ReusedAndAnswering | Tried::ReusedAndTaken,
                ..
            }
            | Self::RequestBroke
            | Self::Connect(_)
            | Self::ConnectTimeout
            | Self::FirstByteTimeout
            | Self::Protocol(_) => false,
        }
    }

    /// The error of a try that was the second.
    pub(super) fn after_replay(self) -> Self {
        if self.replayed() { self } else { Self::AfterReplay(Box::new(self)) }
    }
}
