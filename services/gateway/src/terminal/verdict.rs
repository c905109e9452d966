//! What the outcome of one try says of the endpoint: the one table.
//!
//! Only what is the endpoint's own doing counts. What a client did wrong, asked of the wrong server, or gave up on says
//! nothing; a refusal for want of room (429, 503) is honest, and marks the endpoint as full instead.

use dispatch::{Failure, Verdict};
use http::StatusCode;
use proxy::client::{ProtocolFault, SendError};

/// Of an answer's head. `None` for 2xx: its end decides.
pub(crate) fn of_status(status: StatusCode) -> Option<Verdict> {
    match status {
        _ if status.is_success() => None,
        StatusCode::INTERNAL_SERVER_ERROR | StatusCode::BAD_GATEWAY | StatusCode::GATEWAY_TIMEOUT => {
            Some(Verdict::Failure(Failure::Status))
        }
        _ => Some(Verdict::Neutral),
    }
}

/// Of an error event inside a stream, which stands for a status.
pub(crate) fn of_error_event(code: Option<u16>) -> Verdict {
    match code.and_then(|code| StatusCode::from_u16(code).ok()) {
        Some(status) => of_status(status).unwrap_or(Verdict::Failure(Failure::Status)),
        // It says that it failed, and not how.
        None => Verdict::Failure(Failure::Status),
    }
}

/// Of a try without an answer.
pub(crate) fn of_error(error: &SendError) -> Verdict {
    match error {
        SendError::Connect(_) | SendError::ConnectTimeout => Verdict::Failure(Failure::Connect),
        SendError::FirstByteTimeout => Verdict::Failure(Failure::Timeout),
        SendError::ClosedBeforeAnswer { .. } => Verdict::Failure(Failure::Broke),
        SendError::RequestBroke => Verdict::Neutral,
        SendError::AfterReplay(error) => of_error(error),
        SendError::Protocol(fault) => match fault {
            ProtocolFault::Request(_) => Verdict::Neutral,
            ProtocolFault::HeadTooLarge
            | ProtocolFault::BadHead(_)
            | ProtocolFault::TransferCoding
            | ProtocolFault::Switched
            | ProtocolFault::Http2(_) => Verdict::Failure(Failure::Broke),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn e10_only_the_endpoints_own_failures_count() {
        for status in 100..600 {
            let status = StatusCode::from_u16(status).unwrap();
            let expected = match status.as_u16() {
                200..300 => None,
                500 | 502 | 504 => Some(Verdict::Failure(Failure::Status)),
                _ => Some(Verdict::Neutral),
            };
            assert_eq!(of_status(status), expected, "{status}");
        }
    }

    #[test]
    fn an_error_event_is_judged_like_the_status_it_stands_for() {
        for code in [None, Some(500), Some(200), Some(7)] {
            assert_eq!(of_error_event(code), Verdict::Failure(Failure::Status), "{code:?}");
        }
        for code in [400, 429, 501, 503] {
            assert_eq!(of_error_event(Some(code)), Verdict::Neutral, "{code}");
        }
    }
}
