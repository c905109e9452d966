//! One request and its answer: journal, faults, the face that serves it.

use std::{
    future::pending,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::{Bytes, BytesMut};
use http::{HeaderValue, Request, Response, StatusCode, header, request::Parts};
use http_body::Body as _;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use xxhash_rust::xxh3::Xxh3;

use super::{
    connection::{Busy, Control},
    paced::{Paced, Tracking},
};
use crate::{
    admin,
    answer::{Body, answer},
    face::{self, Call},
    failure::Failure,
    faults::Fault,
    journal::Entry,
    options::Face,
    sim::Sim,
};

/// Bytes of body a request may have: twice what the gateway in front lets through.
const BODY_BYTES_MAX: usize = 512 << 20;
/// Bytes reserved on a client's word.
const RESERVED_BYTES_MAX: usize = 1 << 20;

/// Serves one request.
pub(super) async fn serve(
    sim: Arc<Sim>,
    request: Request<Incoming>,
    control: Arc<Control>,
    busy: Busy,
) -> Response<Body> {
    let began = Instant::now();
    let (parts, incoming) = request.into_parts();
    if parts.uri.path().starts_with(admin::PREFIX) {
        let body = read(incoming, None).await.unwrap_or_default();
        return admin::answer(&sim, &parts, &body).map(|body| {
            let tracking = Tracking { fault: None, control, entry: None, served: None, busy };
            Paced::new(body, tracking).boxed_unsync()
        });
    }
    let entry = sim.journal.open(&parts, sim.clock);
    let (fault, response) = respond(&sim, &parts, incoming, &control, &entry).await;
    finish(sim, parts, response, Tracking { fault, control, entry: Some(entry), served: None, busy }, began)
}

async fn respond(
    sim: &Arc<Sim>,
    parts: &Parts,
    incoming: Incoming,
    control: &Control,
    entry: &Entry,
) -> (Option<Fault>, Response<Body>) {
    let path = parts.uri.path();
    let mut fault = sim.faults.for_head(path);
    if let Some(early) = fault.as_ref().filter(|fault| fault.early_answer) {
        delay(early.delay_headers_ms).await;
        let response = injected(sim, path, early).unwrap_or_else(|| answer(StatusCode::OK, "application/json", "{}"));
        return (fault, response);
    }
    let Some(body) = read(incoming, Some(entry)).await else {
        return (None, answer(StatusCode::PAYLOAD_TOO_LARGE, "text/plain", "the body is too long or incomplete"));
    };
    fault = fault.or_else(|| sim.faults.for_body(path, &body));
    let Some(known) = &fault else {
        return (None, face::serve(sim, Call { face: sim.options.face, parts, body }).await);
    };
    if known.die_after_events == Some(0) {
        entry.end(crate::Outcome::Broken);
        control.reset();
        return pending().await;
    }
    if known.hang {
        return pending().await;
    }
    let response = match injected(sim, path, known) {
        Some(response) => response,
        None => face::serve(sim, Call { face: sim.options.face, parts, body }).await,
    };
    delay(known.delay_headers_ms).await;
    (fault, response)
}

/// The answer a fault gives instead of serving.
fn injected(sim: &Sim, path: &str, fault: &Fault) -> Option<Response<Body>> {
    let status = StatusCode::from_u16(fault.status?).ok()?;
    let mut response = match &fault.body {
        Some(body) => answer(status, "application/json", body.clone()),
        None => Failure::injected(status).answer(&sim.options, face::dialect(path)),
    };
    if let Some(seconds) = fault.retry_after_s {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    Some(response)
}

fn finish(
    sim: Arc<Sim>,
    parts: Parts,
    mut response: Response<Body>,
    mut tracking: Tracking,
    began: Instant,
) -> Response<Body> {
    if let Some(entry) = &tracking.entry {
        entry.status(response.status().as_u16());
    }
    let headers = response.headers_mut();
    if sim.options.face != Face::Tgi {
        headers.insert(header::SERVER, HeaderValue::from_static("uvicorn"));
    }
    if sim.options.request_id_headers {
        let id = parts.headers.get("x-request-id").cloned();
        headers.insert(
            "x-request-id",
            id.unwrap_or_else(|| face::fresh_hex(&sim).parse().expect("hex is a header value")),
        );
    }
    let length = response.body().size_hint().exact();
    tracking.served = Some((sim, parts, response.status().as_u16(), length.unwrap_or(0), began));
    response.map(|body| Paced::new(body, tracking).boxed_unsync())
}

/// Reads a body to its end; `None` when it is too long or breaks off.
async fn read(mut incoming: Incoming, entry: Option<&Entry>) -> Option<Bytes> {
    let announced = incoming.size_hint().lower().min(RESERVED_BYTES_MAX as u64);
    let mut body = BytesMut::with_capacity(announced as usize);
    let mut hash = Xxh3::new();
    let mut complete = true;
    while let Some(frame) = incoming.frame().await {
        let Ok(frame) = frame else {
            complete = false;
            break;
        };
        let Ok(data) = frame.into_data() else { continue };
        if body.len() + data.len() > BODY_BYTES_MAX {
            complete = false;
            break;
        }
        hash.update(&data);
        body.extend_from_slice(&data);
    }
    if let Some(entry) = entry {
        entry.body(body.len() as u64, hash.digest(), complete);
    }
    complete.then(|| body.freeze())
}

async fn delay(ms: u64) {
    if ms > 0 {
        tokio::time::sleep(Duration::from_millis(ms)).await;
    }
}
