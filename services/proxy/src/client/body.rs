//! A request's body: read in full before an endpoint is picked, so it can be sent again as often as needed, for nothing.

use std::{
    convert::Infallible,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

/// The chunks of a body, in order. Clones share them and are read apart.
#[derive(Clone, Debug)]
pub struct Chunks {
    chunks: Stored,
    next: usize,
    left_bytes: u64,
}

/// Most bodies are one chunk: that one needs no list.
#[derive(Clone, Debug)]
enum Stored {
    One(Bytes),
    Many(Arc<[Bytes]>),
}

impl Chunks {
    /// No body.
    pub fn empty() -> Self {
        Self::from(Bytes::new())
    }

    /// Bytes not yet read from this clone.
    pub fn len_bytes(&self) -> u64 {
        self.left_bytes
    }

    /// Whether nothing is left to read.
    pub fn is_empty(&self) -> bool {
        self.left_bytes == 0
    }

    /// The next chunk that is not empty.
    pub fn next_chunk(&mut self) -> Option<Bytes> {
        loop {
            let chunk = match &self.chunks {
                Stored::One(chunk) => (self.next == 0).then(|| chunk.clone())?,
                Stored::Many(chunks) => chunks.get(self.next)?.clone(),
            };
            self.next += 1;
            if !chunk.is_empty() {
                self.left_bytes -= chunk.len() as u64;
                return Some(chunk);
            }
        }
    }
}

impl From<Bytes> for Chunks {
    fn from(chunk: Bytes) -> Self {
        Self { left_bytes: chunk.len() as u64, chunks: Stored::One(chunk), next: 0 }
    }
}

impl From<Arc<[Bytes]>> for Chunks {
    fn from(chunks: Arc<[Bytes]>) -> Self {
        Self { left_bytes: chunks.iter().map(|chunk| chunk.len() as u64).sum(), chunks: Stored::Many(chunks), next: 0 }
    }
}

impl From<Vec<Bytes>> for Chunks {
    fn from(mut chunks: Vec<Bytes>) -> Self {
        if chunks.len() == 1
            && let Some(only) = chunks.pop()
        {
            return Self::from(only);
        }
        Self::from(Arc::<[Bytes]>::from(chunks))
    }
}

impl Body for Chunks {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.next_chunk().map(|chunk| Ok(Frame::data(chunk))))
    }

    fn is_end_stream(&self) -> bool {
        self.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clones_read_the_same_bytes_apart() {
        let parts = [&b""[..], b"ab", b"", b"c", b""].map(Bytes::from_static);
        let mut first = Chunks::from(parts.to_vec());
        let mut again = first.clone();
        assert_eq!(first.len_bytes(), 3);
        assert_eq!(first.next_chunk().unwrap(), "ab");
        assert_eq!(first.len_bytes(), 1);
        assert_eq!(first.next_chunk().unwrap(), "c");
        assert!(first.is_empty() && first.next_chunk().is_none());
        assert_eq!(again.next_chunk().unwrap(), "ab");
        assert!(Chunks::empty().is_end_stream());
        assert_eq!(Chunks::from(vec![Bytes::from_static(b"one")]).next_chunk().unwrap(), "one");
    }
}
