//! HTTP/1.1 as far as a load generator and a static backend need it: heads, lengths, chunks, kept-alive connections.
//!
//! A full HTTP library here would use the CPU that the measured process should have. It trusts its peer to speak
//! correct HTTP/1.1 and fails loudly when it does not.

use std::io;

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt};

const HEAD_BYTES_MAX: usize = 64 << 10;
const HEADERS_MAX: usize = 64;
/// One read of the socket; large bodies come in pieces of this size.
const READ_BYTES: usize = 64 << 10;

/// How the end of a body is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    Length(usize),
    Chunked,
}

/// What was learned from a head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// Of an answer; 0 for a request.
    pub status: u16,
    /// Of a request; empty for an answer.
    pub path: String,
    pub framing: Framing,
    /// The peer will close the connection after this message.
    pub closes: bool,
}

/// Reads messages off one connection.
#[derive(Debug)]
pub struct Reader<R> {
    from: R,
    buffer: BytesMut,
}

impl<R: AsyncRead + Unpin> Reader<R> {
    pub fn new(from: R) -> Self {
        Self { from, buffer: BytesMut::with_capacity(READ_BYTES) }
    }

    /// The next request's head; `None` when the connection ended between two messages.
    pub async fn request(&mut self) -> io::Result<Option<Head>> {
        self.head(parse_request).await
    }

    /// The next answer's head; an end of the connection is an error.
    pub async fn answer(&mut self) -> io::Result<Head> {
        self.head(parse_answer).await?.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }

    /// Reads a body to its end and hands each piece to `seen`. Returns its length.
    pub async fn body(&mut self, framing: Framing, seen: &mut impl FnMut(&[u8])) -> io::Result<usize> {
        match framing {
            Framing::Length(length) => self.exactly(length, seen).await.map(|()| length),
            Framing::Chunked => self.chunks(seen).await,
        }
    }

    async fn head(&mut self, parse: fn(&[u8]) -> Parsed) -> io::Result<Option<Head>> {
        loop {
            if !self.buffer.is_empty()
                && let Some((length, head)) = parse(&self.buffer)?
            {
                self.buffer.advance(length);
                return Ok(Some(head));
            }
            if self.buffer.len() > HEAD_BYTES_MAX {
                return Err(bad("a head without an end"));
            }
            if !self.more().await? {
                let between = self.buffer.is_empty();
                return if between { Ok(None) } else { Err(io::ErrorKind::UnexpectedEof.into()) };
            }
        }
    }

    async fn chunks(&mut self, seen: &mut impl FnMut(&[u8])) -> io::Result<usize> {
        let mut total = 0;
        loop {
            let size = self.line().await?;
            let length = chunk_length(&size)?;
            if length == 0 {
                while !self.line().await?.is_empty() {}
                return Ok(total);
            }
            self.exactly(length, seen).await?;
            self.line().await?;
            total += length;
        }
    }

    async fn exactly(&mut self, length: usize, seen: &mut impl FnMut(&[u8])) -> io::Result<()> {
        let mut left = length;
        while left > 0 {
            if self.buffer.is_empty() && !self.more().await? {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let here = left.min(self.buffer.len());
            seen(&self.buffer[..here]);
            self.buffer.advance(here);
            left -= here;
        }
        Ok(())
    }

    /// One line without its CRLF.
    async fn line(&mut self) -> io::Result<BytesMut> {
        loop {
            if let Some(end) = memchr::memchr(b'\n', &self.buffer) {
                let mut line = self.buffer.split_to(end + 1);
                line.truncate(end.saturating_sub(usize::from(end > 0 && line[end - 1] == b'\r')));
                return Ok(line);
            }
            if self.buffer.len() > HEAD_BYTES_MAX {
                return Err(bad("a line without an end"));
            }
            if !self.more().await? {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    async fn more(&mut self) -> io::Result<bool> {
        self.buffer.reserve(READ_BYTES);
        Ok(self.from.read_buf(&mut self.buffer).await? > 0)
    }
}

/// A head and its length in bytes; `None` while it is not whole.
type Parsed = io::Result<Option<(usize, Head)>>;

fn parse_request(bytes: &[u8]) -> Parsed {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut headers);
    let status = request.parse(bytes).map_err(bad)?;
    let httparse::Status::Complete(length) = status else { return Ok(None) };
    let path = request.path.unwrap_or_default().to_owned();
    // A request without a length has no body.
    let framing = framing(request.headers)?.unwrap_or(Framing::Length(0));
    Ok(Some((length, Head { status: 0, path, framing, closes: closes(request.headers) })))
}

fn parse_answer(bytes: &[u8]) -> Parsed {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut answer = httparse::Response::new(&mut headers);
    let status = answer.parse(bytes).map_err(bad)?;
    let httparse::Status::Complete(length) = status else { return Ok(None) };
    let status = answer.code.unwrap_or_default();
    let framing = framing(answer.headers)?.ok_or_else(|| bad("an answer that only its connection's end would end"))?;
    Ok(Some((length, Head { status, path: String::new(), framing, closes: closes(answer.headers) })))
}

fn framing(headers: &[httparse::Header<'_>]) -> io::Result<Option<Framing>> {
    if header(headers, "transfer-encoding").is_some_and(|value| value.eq_ignore_ascii_case(b"chunked")) {
        return Ok(Some(Framing::Chunked));
    }
    let Some(value) = header(headers, "content-length") else { return Ok(None) };
    let length = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok());
    length.map(|length| Some(Framing::Length(length))).ok_or_else(|| bad("a content-length that is no number"))
}

fn closes(headers: &[httparse::Header<'_>]) -> bool {
    header(headers, "connection").is_some_and(|value| value.eq_ignore_ascii_case(b"close"))
}

fn header<'a>(headers: &[httparse::Header<'a>], name: &str) -> Option<&'a [u8]> {
    headers.iter().find(|header| header.name.eq_ignore_ascii_case(name)).map(|header| header.value)
}

fn chunk_length(line: &[u8]) -> io::Result<usize> {
    let digits = line.split(|byte| *byte == b';').next().unwrap_or_default();
    let text = std::str::from_utf8(digits).map_err(bad)?.trim();
    usize::from_str_radix(text, 16).map_err(bad)
}

fn bad(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

#[cfg(test)]
mod tests;
