//! The metrics page.
//!
//! Rendered anew for each reader from the engine's numbers, in the text format of the Python client (vLLM, SGLang) or of
//! metrics-rs (TGI). Which families a release has is a table; what is wrong with the page is a fault.

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use http_body_util::BodyExt;
use parking_lot::Mutex;

use crate::{
    answer::{Body, BrokenOff, answer as plain},
    failure::Failure,
    faults::MetricsFault,
    options::Face,
    sim::Sim,
};

mod exposition;
mod process;
mod sglang;
mod tgi;
mod vllm;
mod vllm_families;
mod web;

/// A page that no longer changes.
#[derive(Debug, Default)]
pub(crate) struct Frozen(Mutex<Option<Bytes>>);

/// Which numbers a page shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Show {
    /// What is true.
    All,
    /// NaN for gauges.
    NanGauges,
    /// Nothing of the engine.
    NoEngine,
}

impl Frozen {
    fn page(&self, sim: &Sim) -> Bytes {
        self.0.lock().get_or_insert_with(|| render(sim, Show::All)).clone()
    }

    fn thaw(&self) {
        self.0.lock().take();
    }
}

impl Sim {
    /// Freezes the page as it is, or lets it live again.
    pub(crate) fn freeze_page(&self, fault: MetricsFault) {
        if fault == MetricsFault::Frozen {
            self.frozen.page(self);
        } else {
            self.frozen.thaw();
        }
    }
}

/// Answers a scrape.
pub(crate) async fn answer(sim: &Sim) -> Result<Response<Body>, Failure> {
    let (fault, delay_ms) = sim.faults.metrics();
    if delay_ms > 0 {
        tokio::time::sleep(std::time::Duration::from_millis(delay_ms)).await;
    }
    Ok(match fault {
        MetricsFault::Ok => page(sim, render(sim, Show::All)),
        MetricsFault::Frozen => page(sim, sim.frozen.page(sim)),
        MetricsFault::Missing => page(sim, render(sim, Show::NoEngine)),
        MetricsFault::Nan => page(sim, render(sim, Show::NanGauges)),
        MetricsFault::Empty => page(sim, Bytes::new()),
        MetricsFault::Broken => page(sim, Bytes::from_static(b"\xff\x00<html>not { an = exposition\n\n\"")),
        MetricsFault::Half => half(sim),
        MetricsFault::Hang => std::future::pending().await,
        MetricsFault::NotFound => return Err(Failure::unknown_path()),
        MetricsFault::Failing => return Err(Failure::injected(StatusCode::INTERNAL_SERVER_ERROR)),
        MetricsFault::Redirect => {
            let mut response = plain(StatusCode::TEMPORARY_REDIRECT, "", Bytes::new());
            response.headers_mut().insert(header::LOCATION, HeaderValue::from_static("/elsewhere"));
            response
        }
    })
}

fn page(sim: &Sim, text: Bytes) -> Response<Body> {
    let content_type = match sim.options.face {
        Face::Vllm | Face::Sglang => "text/plain; version=1.0.0; charset=utf-8; escaping=underscores",
        Face::Tgi => "text/plain; charset=utf-8",
    };
    plain(StatusCode::OK, content_type, text)
}

/// Announces a whole page and ends in its middle.
fn half(sim: &Sim) -> Response<Body> {
    let whole = render(sim, Show::All);
    let body = HalfBody { sent: whole.slice(..whole.len() / 2), announced: whole.len() as u64, stage: HalfStage::Send };
    page(sim, Bytes::new()).map(|_| body.boxed_unsync())
}

struct HalfBody {
    sent: Bytes,
    announced: u64,
    stage: HalfStage,
}

/// Between the two the half is flushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HalfStage {
    Send,
    Flush,
    Break,
}

impl http_body::Body for HalfBody {
    type Data = Bytes;
    type Error = BrokenOff;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<http_body::Frame<Bytes>, BrokenOff>>> {
        match self.stage {
            HalfStage::Send => {
                self.stage = HalfStage::Flush;
                std::task::Poll::Ready(Some(Ok(http_body::Frame::data(self.sent.clone()))))
            }
            HalfStage::Flush => {
                self.stage = HalfStage::Break;
                context.waker().wake_by_ref();
                std::task::Poll::Pending
            }
            HalfStage::Break => std::task::Poll::Ready(Some(Err(BrokenOff))),
        }
    }

    fn size_hint(&self) -> http_body::SizeHint {
        http_body::SizeHint::with_exact(self.announced)
    }
}

fn render(sim: &Sim, show: Show) -> Bytes {
    match sim.options.face {
        Face::Vllm => vllm::render(sim, show),
        Face::Sglang => sglang::render(sim, show),
        Face::Tgi => tgi::render(sim, show),
    }
    .into()
}
