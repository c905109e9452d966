//! Answers of the API server: pages of a list, lines of a watch, refusals. Everything bounded in bytes and in time.

use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use http::{Request, StatusCode, header};
use http_body_util::BodyExt;
use kube::client::Body;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::time::{Instant, timeout, timeout_at};

use super::{
    layer::NoObject,
    limits::{EVENT_BYTES_MAX, OBJECTS_MAX, PAGE_BYTES_MAX},
};

/// Bytes of a refusal that are read, for its message.
const REFUSAL_BYTES_MAX: usize = 64 << 10;

/// Why a list or a watch ended.
#[derive(Debug, thiserror::Error)]
pub(super) enum Problem {
    /// The kind is not installed, or not shown to us.
    #[error("{status}: {message}")]
    Absent { status: StatusCode, message: String },
    /// The version that was asked for is too old: a new list mends it.
    #[error("what was watched is too old by now")]
    Expired,
    /// Anything else that the API server said.
    #[error("{status}: {message}")]
    Refused { status: u16, message: String },
    /// No answer in time.
    #[error("no answer within {} ms", .0.as_millis())]
    Late(Duration),
    /// No connection, or a cut one.
    #[error("{0}")]
    Unreachable(String),
    /// Something that the API server never sends.
    #[error("not understood: {0}")]
    Garbage(String),
    /// More than is followed.
    #[error("more than {0}")]
    TooMuch(&'static str),
}

impl From<NoObject> for Problem {
    fn from(error: NoObject) -> Self {
        Self::Garbage(error.to_string())
    }
}

/// One page of a list.
#[derive(Deserialize)]
pub(super) struct Page {
    pub(super) metadata: PageMeta,
    #[serde(default)]
    pub(super) items: Option<Vec<Box<RawValue>>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PageMeta {
    #[serde(default)]
    pub(super) resource_version: String,
    #[serde(default)]
    pub(super) r#continue: Option<String>,
}

/// One event of a watch.
#[derive(Deserialize)]
pub(super) struct Event {
    pub(super) r#type: String,
    pub(super) object: Box<RawValue>,
}

/// What the API server says when something is wrong.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Status {
    pub(super) code: u16,
    pub(super) message: String,
    pub(super) reason: String,
}

impl Status {
    pub(super) fn problem(self) -> Problem {
        match (self.code, self.reason.as_str()) {
            (410, _) | (_, "Expired" | "Gone") => Problem::Expired,
            (status, _) => Problem::Refused { status, message: self.message },
        }
    }
}

/// Asks for a path and returns the body of a good answer.
pub(super) async fn ask(client: &kube::Client, path: &str, within: Duration) -> Result<Body, Problem> {
    let request = Request::get(path).header(header::ACCEPT, "application/json").body(Body::empty());
    let request = request.map_err(|error| Problem::Garbage(error.to_string()))?;
    let answer = timeout(within, client.send(request)).await.map_err(|_| Problem::Late(within))?;
    let answer = answer.map_err(|error| Problem::Unreachable(chain(&error)))?;
    let (head, body) = answer.into_parts();
    if head.status.is_success() {
        return Ok(body);
    }
    let text = timeout(within, whole(body, REFUSAL_BYTES_MAX, "64 KiB of refusal")).await;
    let text = text.map_err(|_| Problem::Late(within))?.unwrap_or_default();
    let message = serde_json::from_slice::<Status>(&text).unwrap_or_default().message;
    Err(match head.status {
        status @ (StatusCode::NOT_FOUND | StatusCode::FORBIDDEN) => Problem::Absent { status, message },
        StatusCode::GONE => Problem::Expired,
        status => Problem::Refused { status: status.as_u16(), message },
    })
}

/// One page of a list.
pub(super) async fn page(client: &kube::Client, path: &str, within: Duration) -> Result<Page, Problem> {
    let deadline = Instant::now() + within;
    let body = ask(client, path, within).await?;
    let text = timeout_at(deadline, whole(body, PAGE_BYTES_MAX, "64 MiB in a page")).await;
    let text = text.map_err(|_| Problem::Late(within))??;
    let page: Page = serde_json::from_slice(&text).map_err(|error| Problem::Garbage(error.to_string()))?;
    if page.items.as_ref().is_some_and(|items| items.len() > OBJECTS_MAX) {
        return Err(Problem::TooMuch("100000 objects of a kind"));
    }
    Ok(page)
}

async fn whole(mut body: Body, bytes_max: usize, what: &'static str) -> Result<Bytes, Problem> {
    let mut text = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| Problem::Unreachable(chain(&error)))?;
        if let Ok(data) = frame.into_data() {
            if text.len() + data.len() > bytes_max {
                return Err(Problem::TooMuch(what));
            }
            text.extend_from_slice(&data);
        }
    }
    Ok(text.freeze())
}

/// The events of a watch, one after the other.
pub(super) struct Events {
    body: Body,
    held: BytesMut,
    /// How far `held` was searched for the end of a line.
    searched: usize,
}

impl Events {
    pub(super) fn new(body: Body) -> Self {
        Self { body, held: BytesMut::new(), searched: 0 }
    }

    /// The next event; `None` when the server has ended the watch. May be dropped while it waits, without a loss.
    pub(super) async fn next(&mut self) -> Result<Option<Event>, Problem> {
        loop {
            if let Some(line) = self.line()? {
                return serde_json::from_slice(&line).map(Some).map_err(|error| Problem::Garbage(error.to_string()));
            }
            match self.body.frame().await {
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        self.held.extend_from_slice(&data);
                    }
                }
                Some(Err(error)) => return Err(Problem::Unreachable(chain(&error))),
                // What stands there without an end of line was cut off.
                None => return Ok(None),
            }
        }
    }

    fn line(&mut self) -> Result<Option<BytesMut>, Problem> {
        loop {
            let Some(end) = memchr::memchr(b'\n', &self.held[self.searched..]) else {
                self.searched = self.held.len();
                let too_long = self.held.len() > EVENT_BYTES_MAX;
                return if too_long { Err(Problem::TooMuch("8 MiB in an event")) } else { Ok(None) };
            };
            let line = self.held.split_to(self.searched + end);
            self.held.advance(1);
            self.searched = 0;
            if !line.iter().all(u8::is_ascii_whitespace) {
                return Ok(Some(line));
            }
        }
    }
}

/// An error with all that caused it.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let inner_text = inner.to_string();
        if !text.contains(&inner_text) {
            text.push_str(": ");
            text.push_str(&inner_text);
        }
        cause = inner.source();
    }
    text
}
