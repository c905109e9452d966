//! What the listener refuses before it is a request: answered in our words, and counted and logged like one.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderValue, header::CONTENT_TYPE};
use protocol::{ErrorBody, Reason, headers::REQUEST_ID, path::Dialect};
use proxy::serve::{Refusal, Refusals, Refused};
use telemetry::catalog::CONNECTIONS_REFUSED;

use crate::{metrics::Outcome, record::Record, request_id, world::World};

/// Books each refusal and says what to answer.
pub fn book(world: Arc<World>) -> Refusals {
    Arc::new(move |refused| {
        world.metrics.counter(&CONNECTIONS_REFUSED, &[cause(refused)]).increment(1);
        let Some(status) = refused.status() else { return Refusal::default() };
        let (reason, message) = words(refused);
        let body = ErrorBody { reason, message, param: None }.to_json(Dialect::OpenAi);
        // A head that was not read to its end may have named another: ours is in the log and in the answer.
        let (id, id_header) = request_id::keep_or_make(None);
        let mut record = Record::new(Arc::clone(&world.observer), id);
        record.status = Some(status.as_u16());
        record.bytes_out = body.len() as u64;
        record.detail(message);
        record.end(Outcome::Refused(reason));
        let content_type = (CONTENT_TYPE, HeaderValue::from_static("application/json"));
        Refusal { headers: [content_type, (REQUEST_ID, id_header)].into_iter().collect(), body: Bytes::clone(&body) }
    })
}

const fn cause(refused: Refused) -> &'static str {
    match refused {
        Refused::BadRequest => "bad_head",
        Refused::HeadTooLarge | Refused::UriTooLong => "head_too_large",
        Refused::HeadTimeout => "head_timeout",
        Refused::NoConnection => "limit",
        Refused::Handshake => "tls_handshake",
        Refused::HandshakeTimeout => "tls_timeout",
    }
}

const fn words(refused: Refused) -> (Reason, &'static str) {
    match refused {
        Refused::BadRequest | Refused::NoConnection | Refused::Handshake | Refused::HandshakeTimeout => {
            (Reason::InvalidRequest, "the request is not HTTP, or its length can be read in two ways: check the client")
        }
        Refused::HeadTooLarge => {
            (Reason::HeadTooLarge, "the request's headers are larger than 64 KiB or more than 100 lines: send fewer")
        }
        Refused::UriTooLong => (Reason::HeadTooLarge, "the request line is too long: put long inputs into the body"),
        Refused::HeadTimeout => {
            (Reason::RequestTimeout, "the request's head did not arrive in time: send it without pauses")
        }
    }
}
