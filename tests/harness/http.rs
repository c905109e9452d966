//! A client that sends exactly the bytes it is given and keeps exactly the bytes it gets.

use std::{
    io::{self, ErrorKind, Read, Write},
    net::{Shutdown, SocketAddr, TcpStream},
    time::{Duration, Instant},
};

use serde_json::Value;

/// Longest wait for anything to be read, unless a test says otherwise.
const PATIENCE: Duration = Duration::from_secs(20);

/// One HTTP/1.1 connection.
pub struct Connection {
    stream: TcpStream,
    read: Vec<u8>,
}

/// An answer as it came.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// Header lines in order, names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body, chunks joined.
    pub body: Vec<u8>,
    /// Whether the body ended as its framing says; false when the connection ended first.
    pub complete: bool,
}

impl Answer {
    /// The first header of that name.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON.
    ///
    /// # Panics
    /// When it is none.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }

    /// The `code` of an error object.
    pub fn code(&self) -> String {
        self.json()["error"]["code"].as_str().unwrap_or_default().to_owned()
    }
}

impl Connection {
    /// Connects.
    ///
    /// # Panics
    /// When nobody listens there.
    pub fn open(to: SocketAddr) -> Self {
        let stream = TcpStream::connect(to).unwrap_or_else(|error| panic!("cannot connect to {to}: {error}"));
        stream.set_nodelay(true).expect("a connected socket takes options");
        stream.set_read_timeout(Some(PATIENCE)).expect("a connected socket takes options");
        Self { stream, read: Vec::new() }
    }

    /// Changes how long reads wait.
    pub fn patience(&self, limit: Duration) {
        self.stream.set_read_timeout(Some(limit)).expect("a connected socket takes options");
    }

    /// Takes what was read so far and not consumed.
    pub fn take_read(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.read)
    }

    /// Sends bytes.
    ///
    /// # Errors
    /// When the other side has closed.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        self.stream.write_all(bytes.as_ref())
    }

    /// Ends the sending half.
    pub fn finish_sending(&self) {
        // An error means that the other side has closed already.
        let _ = self.stream.shutdown(Shutdown::Write);
    }

    /// Whether the other side has closed by now, which clients look for before they use a connection again.
    ///
    /// # Panics
    /// When the socket takes no options.
    pub fn is_closed(&self) -> bool {
        self.stream.set_nonblocking(true).expect("a connected socket takes options");
        let peeked = self.stream.peek(&mut [0]);
        self.stream.set_nonblocking(false).expect("a connected socket takes options");
        match peeked {
            Ok(bytes) => bytes == 0,
            Err(error) => error.kind() != ErrorKind::WouldBlock,
        }
    }

    /// Reads until `wanted` holds of what was read so far; gives it, unconsumed.
    ///
    /// # Errors
    /// When the connection ends or nothing comes in time.
    pub fn read_until(&mut self, wanted: impl Fn(&[u8]) -> bool) -> io::Result<&[u8]> {
        while !wanted(&self.read) {
            self.more()?;
        }
        Ok(&self.read)
    }

    /// The time until the other side closes; nothing else may come before.
    ///
    /// # Errors
    /// When it does not close in time.
    pub fn closed_within(&mut self) -> io::Result<Duration> {
        let started = Instant::now();
        loop {
            match self.more() {
                Ok(()) => {}
                Err(error)
                    if error.kind() == ErrorKind::UnexpectedEof || error.kind() == ErrorKind::ConnectionReset =>
                {
                    return Ok(started.elapsed());
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Reads one answer to a request of `method`; 1xx answers are skipped.
    ///
    /// # Errors
    /// When there is no whole head of one.
    pub fn answer_to(&mut self, method: &str) -> io::Result<Answer> {
        loop {
            let (status, headers) = self.head()?;
            if (100..200).contains(&status) && status != 101 {
                continue;
            }
            let (body, complete) = self.body(method, status, &headers)?;
            return Ok(Answer { status, headers, body, complete });
        }
    }

    /// Reads the answer to a POST.
    ///
    /// # Errors
    /// When there is no whole head of one.
    pub fn answer(&mut self) -> io::Result<Answer> {
        self.answer_to("POST")
    }

    /// Reads one head.
    ///
    /// # Errors
    /// When it does not come, or is none.
    pub fn head(&mut self) -> io::Result<(u16, Vec<(String, String)>)> {
        let end = |bytes: &[u8]| bytes.windows(4).position(|four| four == b"\r\n\r\n");
        self.read_until(|bytes| end(bytes).is_some())?;
        let length = end(&self.read).expect("just seen") + 4;
        let head: Vec<u8> = self.read.drain(..length).collect();
        let text = String::from_utf8_lossy(&head).into_owned();
        let mut lines = text.trim_end().split("\r\n");
        let status = lines.next().and_then(|line| line.split(' ').nth(1)).and_then(|code| code.parse().ok());
        let status = status.ok_or_else(|| io::Error::other(format!("no status line: {text:?}")))?;
        let split = |line: &str| {
            let (name, value) = line.split_once(':').unwrap_or((line, ""));
            (name.to_ascii_lowercase(), value.trim().to_owned())
        };
        Ok((status, lines.map(split).collect()))
    }

    fn body(&mut self, method: &str, status: u16, headers: &[(String, String)]) -> io::Result<(Vec<u8>, bool)> {
        let header = |name: &str| headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str());
        if method == "HEAD" || status == 204 || status == 304 {
            return Ok((Vec::new(), true));
        }
        if header("transfer-encoding").is_some_and(|coding| coding.eq_ignore_ascii_case("chunked")) {
            return Ok(self.chunked());
        }
        let Some(length) = header("content-length").and_then(|length| length.parse::<usize>().ok()) else {
            while self.more().is_ok() {}
            return Ok((std::mem::take(&mut self.read), true));
        };
        let complete = self.read_until(|bytes| bytes.len() >= length).is_ok();
        let take = length.min(self.read.len());
        Ok((self.read.drain(..take).collect(), complete))
    }

    fn chunked(&mut self) -> (Vec<u8>, bool) {
        let mut body = Vec::new();
        while let Ok(size) = self.chunk_size() {
            if self.read_until(|bytes| bytes.len() >= size + 2).is_err() {
                body.append(&mut self.read);
                return (body, false);
            }
            body.extend(self.read.drain(..size));
            self.read.drain(..2);
            if size == 0 {
                return (body, true);
            }
        }
        (body, false)
    }

    fn chunk_size(&mut self) -> io::Result<usize> {
        let end = |bytes: &[u8]| bytes.windows(2).position(|two| two == b"\r\n");
        self.read_until(|bytes| end(bytes).is_some())?;
        let length = end(&self.read).expect("just seen");
        let line: Vec<u8> = self.read.drain(..length + 2).take(length).collect();
        let text = String::from_utf8_lossy(&line).into_owned();
        usize::from_str_radix(text.trim(), 16).map_err(|_| io::Error::other(format!("no chunk size: {text:?}")))
    }

    fn more(&mut self) -> io::Result<()> {
        let mut buffer = [0; 16 * 1024];
        match self.stream.read(&mut buffer)? {
            0 => Err(ErrorKind::UnexpectedEof.into()),
            count => {
                self.read.extend_from_slice(&buffer[..count]);
                Ok(())
            }
        }
    }
}

/// Sends one request on a connection of its own and reads its answer.
///
/// # Panics
/// When no answer comes.
pub fn request(to: SocketAddr, method: &str, path: &str, headers: &[(&str, &str)], body: impl AsRef<[u8]>) -> Answer {
    let body = body.as_ref();
    let mut head = format!("{method} {path} HTTP/1.1\r\nhost: gateway\r\ncontent-length: {}\r\n", body.len());
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str("\r\n");
    let mut connection = Connection::open(to);
    connection.send([head.as_bytes(), body].concat()).expect("a request can be sent");
    connection.answer_to(method).unwrap_or_else(|error| panic!("no answer to {method} {path}: {error}"))
}

/// [`request`] with the body in chunks of at most `piece_bytes`.
///
/// # Panics
/// When no answer comes.
pub fn request_in_chunks(
    to: SocketAddr,
    path: &str,
    headers: &[(&str, &str)],
    body: impl AsRef<[u8]>,
    piece_bytes: usize,
) -> Answer {
    let mut bytes = format!("POST {path} HTTP/1.1\r\nhost: gateway\r\ntransfer-encoding: chunked\r\n").into_bytes();
    for (name, value) in headers {
        bytes.extend(format!("{name}: {value}\r\n").into_bytes());
    }
    bytes.extend(b"\r\n");
    for piece in body.as_ref().chunks(piece_bytes) {
        bytes.extend(format!("{:x}\r\n", piece.len()).into_bytes());
        bytes.extend(piece);
        bytes.extend(b"\r\n");
    }
    bytes.extend(b"0\r\n\r\n");
    let mut connection = Connection::open(to);
    connection.send(bytes).expect("a request can be sent");
    connection.answer().unwrap_or_else(|error| panic!("no answer to POST {path}: {error}"))
}

/// Posts JSON.
pub fn post(to: SocketAddr, path: &str, body: impl AsRef<[u8]>) -> Answer {
    request(to, "POST", path, &[("content-type", "application/json")], body)
}
