//! One request: refused here, or given to the service; and its answer, followed to its end.

use std::{
    convert::Infallible,
    error::Error as StdError,
    future::Future,
    marker::PhantomData,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker, ready},
};

use bytes::Bytes;
use http::{
    HeaderValue, Request, Response, Version,
    header::{CONNECTION, HOST, TRANSFER_ENCODING},
};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use pin_project_lite::pin_project;
use tower::{ServiceExt, util::Oneshot};

use super::{
    Answers, Refused, RequestBody, Sendable,
    activity::{Activity, OpenRequest},
    signal::Level,
    wire::Spoken,
};
use crate::headers;

/// The service as hyper calls it, for one connection.
pub(super) struct Calls<S, B> {
    service: S,
    activity: Arc<Activity>,
    spoken: Spoken,
    _answers: PhantomData<fn() -> B>,
}

pin_project! {
    /// The answer to come.
    pub(super) struct Answering<S, B>
    where
        S: tower::Service<Request<RequestBody>>,
    {
        #[pin]
        stage: Stage<S, B>,
        open: Option<OpenRequest>,
        activity: Arc<Activity>,
        spoken: Spoken,
    }
}

pin_project! {
    #[project = StageProjection]
    enum Stage<S, B>
    where
        S: tower::Service<Request<RequestBody>>,
    {
        Called { #[pin] answer: S::Future },
        Waiting { #[pin] answer: Oneshot<S, Request<RequestBody>> },
        Refused { answer: Option<Response<Sent<B>>> },
        Over,
    }
}

pin_project! {
    /// An answer's body; its request is open until this is dropped.
    pub(super) struct Sent<B> {
        #[pin]
        content: Content<B>,
        failed: Option<Failed>,
        spoken: Spoken,
        open: Option<OpenRequest>,
    }
}

/// An error of the body, held back until what came before it has left: hyper drops what it holds at an error, and a client
/// would lose an answer's last good bytes.
struct Failed {
    error: Box<dyn StdError + Send + Sync>,
    flushes_before: u32,
    rounds_left: Option<u8>,
}

/// How often a failed body of HTTP/2 lets others run before it fails without having seen its bytes leave: the connection is
/// another task, and its client may not want any bytes. HTTP/1.1 asks again by itself when it has written.
const ROUNDS_MAX: u8 = 16;

pin_project! {
    #[project = ContentProjection]
    enum Content<B> {
        Service { #[pin] body: B },
        Refusal { body: Option<Bytes> },
    }
}

impl<S, B> hyper::service::Service<Request<Incoming>> for Calls<S, B>
where
    S: Answers<B>,
    B: Sendable,
{
    type Response = Response<Sent<B>>;
    type Error = Infallible;
    type Future = Answering<S, B>;

    fn call(&self, request: Request<Incoming>) -> Answering<S, B> {
        let open = self.activity.request_opened();
        let stage = match acceptable(&request, self.spoken, self.activity.limits().headers_max) {
            Ok(()) => {
                let (head, body) = request.into_parts();
                let body = RequestBody::arriving(body, &head.headers, Arc::clone(&self.activity), self.spoken);
                self.ask(Request::from_parts(head, body))
            }
            Err(refused) => {
                self.activity.close_after_answer();
                Stage::Refused { answer: Some(self.refuse(refused)) }
            }
        };
        Answering { stage, open: Some(open), activity: Arc::clone(&self.activity), spoken: self.spoken }
    }
}

impl<S, B> Calls<S, B> {
    pub(super) fn new(service: S, activity: &Arc<Activity>, spoken: Spoken) -> Self {
        Self { service, activity: Arc::clone(activity), spoken, _answers: PhantomData }
    }

    /// Asks the service now, not when the answer is first polled: if the client has left meanwhile, hyper drops the answer
    /// unpolled, and nobody would ever know of the request.
    fn ask(&self, request: Request<RequestBody>) -> Stage<S, B>
    where
        S: Answers<B>,
    {
        let mut service = self.service.clone();
        match service.poll_ready(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Ok(())) => Stage::Called { answer: service.call(request) },
            Poll::Pending => Stage::Waiting { answer: service.oneshot(request) },
        }
    }

    fn refuse(&self, refused: Refused) -> Response<Sent<B>> {
        let refusal = (self.activity.counted.shared.refusals)(refused);
        let body = (!refusal.body.is_empty()).then_some(refusal.body);
        let mut answer =
            Response::new(Sent { content: Content::Refusal { body }, failed: None, spoken: self.spoken, open: None });
        *answer.status_mut() = refused.status().expect("what is refused by its head has a status");
        *answer.headers_mut() = refusal.headers;
        answer
    }
}

/// What hyper lets pass and we do not: requests that another reader might read otherwise.
fn acceptable(request: &Request<Incoming>, spoken: Spoken, headers_max: usize) -> Result<(), Refused> {
    let fields = request.headers();
    match spoken {
        Spoken::Http2 if fields.len() > headers_max => Err(Refused::HeadTooLarge),
        Spoken::Http2 => Ok(()),
        Spoken::Http1 => {
            let mut hosts = fields.get_all(HOST).iter();
            let first = hosts.next().is_some();
            if hosts.next().is_some() || (!first && request.version() == Version::HTTP_11) {
                return Err(Refused::BadRequest);
            }
            if !fields.contains_key(TRANSFER_ENCODING) {
                return Ok(());
            }
            // hyper saw that chunked is the last coding; any other before it would reach the service undecoded.
            let codings = fields.get_all(TRANSFER_ENCODING).iter().flat_map(headers::tokens).count();
            if codings == 1 { Ok(()) } else { Err(Refused::BadRequest) }
        }
    }
}

impl<S, B> Future for Answering<S, B>
where
    S: Answers<B>,
    B: Sendable,
{
    type Output = Result<Response<Sent<B>>, Infallible>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        let mut answer = match this.stage.as_mut().project() {
            StageProjection::Called { answer } => {
                let Ok(answer) = ready!(answer.poll(cx));
                Sent::whole(answer, *this.spoken)
            }
            StageProjection::Waiting { answer } => {
                let Ok(answer) = ready!(answer.poll(cx));
                Sent::whole(answer, *this.spoken)
            }
            StageProjection::Refused { answer } => answer.take().expect("a future is not polled after it was ready"),
            StageProjection::Over => unreachable!("a future is not polled after it was ready"),
        };
        // Whatever the service still held of the request goes now, so that the head can say what becomes of the connection.
        this.stage.set(Stage::Over);
        answer.body_mut().open = this.open.take();
        if *this.spoken == Spoken::Http1 && ends_connection(this.activity) {
            answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        Poll::Ready(Ok(answer))
    }
}

fn ends_connection(activity: &Activity) -> bool {
    activity.closes_after_answer() || activity.counted.shared.signal.level() >= Level::Draining
}

impl<B> Sent<B> {
    fn whole(answer: Response<B>, spoken: Spoken) -> Response<Self> {
        answer.map(|body| Self { content: Content::Service { body }, failed: None, spoken, open: None })
    }
}

impl Failed {
    fn poll(
        failed: &mut Option<Self>,
        open: Option<&OpenRequest>,
        cx: &Context<'_>,
    ) -> Poll<Box<dyn StdError + Send + Sync>> {
        let waiting = failed.as_mut().expect("polled only with an error at hand");
        let left = open.is_none_or(|open| open.flushes() != waiting.flushes_before);
        match &mut waiting.rounds_left {
            _ if left => {}
            None => return Poll::Pending,
            Some(0) => {}
            Some(rounds) => {
                *rounds -= 1;
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
        }
        Poll::Ready(failed.take().expect("seen above").error)
    }
}

impl<B: Sendable> Body for Sent<B> {
    type Data = Bytes;
    type Error = Box<dyn StdError + Send + Sync>;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let this = self.project();
        if this.failed.is_none() {
            let polled = match this.content.project() {
                ContentProjection::Service { body } => body.poll_frame(cx).map_err(Into::into),
                ContentProjection::Refusal { body } => Poll::Ready(body.take().map(|body| Ok(Frame::data(body)))),
            };
            let Poll::Ready(Some(Err(error))) = polled else { return polled };
            let flushes_before = this.open.as_ref().map_or(0, OpenRequest::flushes);
            let rounds_left = (*this.spoken == Spoken::Http2).then_some(ROUNDS_MAX);
            *this.failed = Some(Failed { error, flushes_before, rounds_left });
        }
        Failed::poll(this.failed, this.open.as_ref(), cx).map(|error| Some(Err(error)))
    }

    fn is_end_stream(&self) -> bool {
        match &self.content {
            Content::Service { body } => body.is_end_stream(),
            Content::Refusal { body } => body.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            Content::Service { body } => body.size_hint(),
            Content::Refusal { body } => SizeHint::with_exact(body.as_ref().map_or(0, |body| body.len() as u64)),
        }
    }
}
