//! gRPC's frames on an HTTP/2 stream: a flag, a length, a message. Nothing is compressed, and no message is larger than
//! gRPC's own default allows.

use std::{
    collections::VecDeque,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use h2::{RecvStream, SendStream, client::ResponseFuture};
use http::HeaderMap;
use prost::Message;
use thiserror::Error;

/// Largest message read, in bytes: the default of gRPC libraries.
const MESSAGE_BYTES_MAX: usize = 4 * 1024 * 1024;
/// The flag and the length.
const FRAME_HEAD_BYTES: usize = 5;
/// Longest text of a status that is kept.
const STATUS_TEXT_MAX: usize = 256;

/// Why a stream gave no further message.
#[derive(Debug, Error)]
pub(crate) enum GrpcError {
    /// The stream or its connection broke.
    #[error("the connection broke: {0}")]
    Http2(#[from] h2::Error),
    /// The other side failed, and says why.
    #[error("it failed with status {code}: {message}")]
    Status {
        /// Of gRPC's list.
        code: String,
        /// Its words.
        message: String,
    },
    /// What it sends is not gRPC.
    #[error("it does not speak gRPC: {0}")]
    Broken(&'static str),
}

/// A message as it is sent.
pub(super) fn frame(message: &impl Message) -> Bytes {
    let length = message.encoded_len();
    let mut framed = BytesMut::with_capacity(FRAME_HEAD_BYTES + length);
    framed.put_u8(0);
    framed.put_u32(u32::try_from(length).expect("messages of ours are far below 4 GiB"));
    message.encode(&mut framed).expect("a buffer that grows takes any message");
    framed.freeze()
}

/// What is still to be sent.
pub(super) struct Outgoing {
    stream: SendStream<Bytes>,
    queue: VecDeque<Bytes>,
}

impl Outgoing {
    pub(super) fn new(stream: SendStream<Bytes>) -> Self {
        Self { stream, queue: VecDeque::new() }
    }

    pub(super) fn push(&mut self, framed: Bytes) {
        self.queue.push_back(framed);
    }

    /// Sends what the other side lets us send. An error shows at the stream's other direction, too, with more to say.
    pub(super) fn advance(&mut self, cx: &mut Context<'_>) {
        while let Some(chunk) = self.queue.front_mut() {
            self.stream.reserve_capacity(chunk.len());
            let room_bytes = self.stream.capacity().min(chunk.len());
            if room_bytes == 0 {
                match self.stream.poll_capacity(cx) {
                    Poll::Ready(Some(Ok(_))) => continue,
                    Poll::Ready(Some(Err(_)) | None) => self.queue.clear(),
                    Poll::Pending => {}
                }
                return;
            }
            let piece = chunk.split_to(room_bytes);
            if chunk.is_empty() {
                self.queue.pop_front();
            }
            if self.stream.send_data(piece, false).is_err() {
                self.queue.clear();
            }
        }
    }

    /// Says that nothing more comes.
    pub(super) fn finish(&mut self) {
        // If it is over already, there is nobody to tell.
        let _told = self.stream.send_data(Bytes::new(), true);
    }
}

/// What comes.
pub(super) struct Incoming {
    part: Part,
    buffer: BytesMut,
}

enum Part {
    Head(ResponseFuture),
    Messages(RecvStream),
    Over,
}

impl Incoming {
    pub(super) fn new(response: ResponseFuture) -> Self {
        Self { part: Part::Head(response), buffer: BytesMut::new() }
    }

    /// The next message; nothing once the other side has ended well.
    pub(super) fn poll_message<M: Message + Default>(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<M>, GrpcError>> {
        loop {
            if let Some(message) = self.take()? {
                return Poll::Ready(Ok(Some(message)));
            }
            match &mut self.part {
                Part::Head(response) => {
                    let (head, stream) = ready!(Pin::new(response).poll(cx))?.into_parts();
                    if !head.status.is_success() {
                        return Poll::Ready(Err(GrpcError::Broken("its answer is no success")));
                    }
                    self.part = if head.headers.contains_key("grpc-status") {
                        ended(&head.headers)?;
                        Part::Over
                    } else {
                        Part::Messages(stream)
                    };
                }
                Part::Messages(stream) => match ready!(stream.poll_data(cx)) {
                    Some(data) => {
                        let data = data?;
                        let _released = stream.flow_control().release_capacity(data.len());
                        self.buffer.extend_from_slice(&data);
                    }
                    None => {
                        let trailers = ready!(stream.poll_trailers(cx))?;
                        self.part = Part::Over;
                        ended(&trailers.ok_or(GrpcError::Broken("it ended without a status"))?)?;
                    }
                },
                Part::Over => return Poll::Ready(Ok(None)),
            }
        }
    }

    /// A message that is all there.
    fn take<M: Message + Default>(&mut self) -> Result<Option<M>, GrpcError> {
        let Some((head, _)) = self.buffer.split_first_chunk::<FRAME_HEAD_BYTES>() else { return Ok(None) };
        let [flag, length @ ..] = *head;
        let length = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
        if flag != 0 {
            return Err(GrpcError::Broken("a message is compressed"));
        }
        if length > MESSAGE_BYTES_MAX {
            return Err(GrpcError::Broken("a message is larger than 4 MiB"));
        }
        if self.buffer.len() < FRAME_HEAD_BYTES + length {
            return Ok(None);
        }
        self.buffer.advance(FRAME_HEAD_BYTES);
        let message = self.buffer.split_to(length).freeze();
        M::decode(message).map(Some).map_err(|_| GrpcError::Broken("a message cannot be read"))
    }
}

fn ended(trailers: &HeaderMap) -> Result<(), GrpcError> {
    let text = |name: &str| {
        let value = trailers.get(name).map(|value| String::from_utf8_lossy(value.as_bytes()));
        value.unwrap_or_default().chars().take(STATUS_TEXT_MAX).collect::<String>()
    };
    match text("grpc-status") {
        code if code == "0" => Ok(()),
        code => Err(GrpcError::Status { code, message: text("grpc-message") }),
    }
}
