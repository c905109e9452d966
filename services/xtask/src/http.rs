//! A blocking HTTP/1.1 client for the demo: one request, one connection, every size and wait bounded.
//!
//! A real client crate would double what a fresh machine compiles before the demo answers. This one speaks to our own
//! programs on loopback only, so it knows no TLS, no redirects, no proxies and no compression.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::Context;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Longer than any answer of the demo takes, shorter than a person's patience.
const SILENCE_MAX: Duration = Duration::from_secs(60);
const HEAD_BYTES_MAX: u64 = 64 << 10;
const BODY_BYTES_MAX: usize = 16 << 20;

/// A whole answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub status: u16,
    headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Answer {
    /// The first header of that name.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Fails with the body shown when it is not JSON.
    pub(crate) fn json(&self) -> anyhow::Result<serde_json::Value> {
        serde_json::from_slice(&self.body)
            .with_context(|| format!("not JSON (status {}): {}", self.status, self.text()))
    }
}

/// `GET path`.
pub(crate) fn get(to: SocketAddr, path: &str) -> anyhow::Result<Answer> {
    exchange(to, &format!("GET {path} HTTP/1.1\r\nhost: {to}\r\nconnection: close\r\n\r\n"), &mut |_| {})
}

/// `POST path` with a JSON body; `seen` gets each piece of the answer's body as it arrives.
pub(crate) fn post(
    to: SocketAddr,
    path: &str,
    body: &serde_json::Value,
    seen: &mut dyn FnMut(&[u8]),
) -> anyhow::Result<Answer> {
    let (body, kind) = (body.to_string(), "content-type: application/json");
    let length = body.len();
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: {to}\r\nconnection: close\r\n{kind}\r\ncontent-length: {length}\r\n\r\n"
    );
    exchange(to, &(head + &body), seen)
}

fn exchange(to: SocketAddr, request: &str, seen: &mut dyn FnMut(&[u8])) -> anyhow::Result<Answer> {
    let mut stream =
        TcpStream::connect_timeout(&to, CONNECT_TIMEOUT).with_context(|| format!("cannot connect to {to}"))?;
    stream.set_read_timeout(Some(SILENCE_MAX))?;
    stream.set_write_timeout(Some(SILENCE_MAX))?;
    stream.set_nodelay(true)?;
    stream.write_all(request.as_bytes()).with_context(|| format!("sending to {to}"))?;
    read_answer(&mut BufReader::new(stream), seen).with_context(|| format!("the answer of {to}"))
}

/// Reads head and body; interim (1xx) answers are skipped.
fn read_answer(from: &mut impl BufRead, seen: &mut dyn FnMut(&[u8])) -> anyhow::Result<Answer> {
    let (status, headers) = loop {
        let (status, headers) = read_head(from)?;
        if status >= 200 {
            break (status, headers);
        }
    };
    let mut answer = Answer { status, headers, body: Vec::new() };
    let chunked = answer.header("transfer-encoding").is_some_and(|value| value.eq_ignore_ascii_case("chunked"));
    let length = answer.header("content-length").map(str::parse::<usize>).transpose().context("content-length")?;
    let mut body = Body { bytes: Vec::new(), seen };
    match (chunked, length) {
        (true, _) => while body.chunk(from)? {},
        (false, Some(length)) => body.exactly(from, length)?,
        (false, None) => body.until_end(from)?,
    }
    answer.body = body.bytes;
    Ok(answer)
}

type Head = (u16, Vec<(String, String)>);

fn read_head(from: &mut impl BufRead) -> anyhow::Result<Head> {
    let mut from = from.take(HEAD_BYTES_MAX);
    let first = line(&mut from)?;
    let status = first.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)).and_then(|digits| digits.parse().ok());
    let status = status.with_context(|| format!("not a status line: `{first}`"))?;
    let mut headers = Vec::new();
    loop {
        let text = line(&mut from)?;
        if text.is_empty() {
            return Ok((status, headers));
        }
        let (name, value) = text.split_once(':').with_context(|| format!("not a header: `{text}`"))?;
        headers.push((name.trim().to_owned(), value.trim().to_owned()));
    }
}

/// One line without its end; fails when the stream ends first.
fn line(from: &mut impl BufRead) -> anyhow::Result<String> {
    let mut text = String::new();
    from.read_line(&mut text)?;
    anyhow::ensure!(text.ends_with('\n'), "it ended inside a line: `{text}`");
    Ok(text.trim_end().to_owned())
}

struct Body<'a> {
    bytes: Vec<u8>,
    seen: &'a mut dyn FnMut(&[u8]),
}

impl Body<'_> {
    /// One chunk; false after the last.
    fn chunk(&mut self, from: &mut impl BufRead) -> anyhow::Result<bool> {
        let size = line(from)?;
        let digits = size.split(';').next().unwrap_or_default().trim();
        let length = usize::from_str_radix(digits, 16).with_context(|| format!("not a chunk's size: `{size}`"))?;
        if length == 0 {
            while !line(from)?.is_empty() {}
            return Ok(false);
        }
        self.exactly(from, length)?;
        line(from)?;
        Ok(true)
    }

    fn exactly(&mut self, from: &mut impl Read, length: usize) -> anyhow::Result<()> {
        anyhow::ensure!(self.bytes.len() + length <= BODY_BYTES_MAX, "its body is larger than {BODY_BYTES_MAX} bytes");
        let start = self.bytes.len();
        self.bytes.resize(start + length, 0);
        from.read_exact(&mut self.bytes[start..]).context("it ended inside its body")?;
        (self.seen)(&self.bytes[start..]);
        Ok(())
    }

    fn until_end(&mut self, from: &mut impl Read) -> anyhow::Result<()> {
        let start = self.bytes.len();
        from.take(BODY_BYTES_MAX as u64).read_to_end(&mut self.bytes)?;
        (self.seen)(&self.bytes[start..]);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> (anyhow::Result<Answer>, Vec<String>) {
        let mut pieces = Vec::new();
        let answer =
            read_answer(&mut text.as_bytes(), &mut |piece| pieces.push(String::from_utf8_lossy(piece).into_owned()));
        (answer, pieces)
    }

    #[test]
    fn a_sized_answer_is_read() {
        let (answer, _) = read("HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\nX-Request-Id: a:b\r\n\r\n{}rest");
        let answer = answer.unwrap();
        assert_eq!((answer.status, answer.header("x-request-id"), answer.text().as_str()), (404, Some("a:b"), "{}"));
    }

    #[test]
    fn chunks_are_seen_one_by_one() {
        let (answer, pieces) = read(
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\nt: 1\r\n\r\n",
        );
        assert_eq!(answer.unwrap().text(), "abcde");
        assert_eq!(pieces, ["abc", "de"]);
    }

    #[test]
    fn an_answer_without_a_length_ends_with_the_connection() {
        assert_eq!(read("HTTP/1.1 200 OK\r\n\r\nabc").0.unwrap().text(), "abc");
    }

    #[test]
    fn a_cut_answer_is_an_error() {
        for cut in [
            "",
            "HTTP/1.1 200",
            "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nabc",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nab",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nxyz\r\n",
            "nonsense\r\n\r\n",
        ] {
            assert!(read(cut).0.is_err(), "{cut:?}");
        }
    }

    #[test]
    fn a_body_without_measure_is_refused() {
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", BODY_BYTES_MAX + 1);
        assert!(read(&head).0.unwrap_err().to_string().contains("larger than"));
    }

    #[test]
    fn a_request_goes_over_a_socket() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let to = listener.local_addr().unwrap();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 1024];
            let length = stream.read(&mut request).unwrap();
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").unwrap();
            String::from_utf8_lossy(&request[..length]).into_owned()
        });
        assert_eq!(get(to, "/readyz").unwrap().text(), "ok");
        assert!(server.join().unwrap().starts_with("GET /readyz HTTP/1.1\r\nhost: 127.0.0.1:"));
    }
}
