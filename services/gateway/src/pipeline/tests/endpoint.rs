//! An endpoint in this process.

use std::net::SocketAddr;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

/// How a request is answered. The request names it in its prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Manner {
    /// Whole, with its length.
    Whole,
    /// As events, to the end.
    Stream,
    /// As events that break off.
    CutStream,
    /// Not at all: the connection closes.
    Close,
    /// With an error.
    Fail,
    /// With a refusal for want of room.
    Overload,
    /// By nobody: no endpoint listens.
    Refuse,
}

impl Manner {
    pub(super) const ALL: [Self; 7] =
        [Self::Whole, Self::Stream, Self::CutStream, Self::Close, Self::Fail, Self::Overload, Self::Refuse];

    /// How a request ends that waits for all of it.
    pub(super) fn outcome(self) -> &'static str {
        match self {
            Self::Whole | Self::Stream => "ok",
            Self::CutStream | Self::Close => "endpoint_broke",
            Self::Fail => "upstream_5xx",
            Self::Overload => "upstream_4xx",
            Self::Refuse => "endpoint_unreachable",
        }
    }

    /// The word in the prompt.
    pub(super) fn word(self) -> String {
        format!("{self:?}!")
    }
}

/// Listens for as long as the runtime lives.
pub(super) async fn start() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream));
        }
    });
    address
}

/// An address where nobody listens.
pub(super) async fn nobody() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap()
}

/// Answers requests on a connection until the other side, or the manner, ends it.
async fn serve(mut stream: TcpStream) -> Option<()> {
    let mut read = Vec::new();
    loop {
        let body = body(&mut stream, &mut read).await?;
        let text = String::from_utf8_lossy(&body).into_owned();
        let manner = Manner::ALL.into_iter().find(|manner| text.contains(&format!("\"{}\"", manner.word())))?;
        answer(&mut stream, manner).await?;
    }
}

async fn body(stream: &mut TcpStream, read: &mut Vec<u8>) -> Option<Vec<u8>> {
    loop {
        if let Some(end) = read.windows(4).position(|four| four == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&read[..end]).to_ascii_lowercase();
            let length = head.lines().find_map(|line| line.strip_prefix("content-length:"))?;
            let whole = end + 4 + length.trim().parse::<usize>().ok()?;
            if read.len() >= whole {
                return Some(read.drain(..whole).skip(end + 4).collect());
            }
        }
        if stream.read_buf(read).await.ok()? == 0 {
            return None;
        }
    }
}

async fn answer(stream: &mut TcpStream, manner: Manner) -> Option<()> {
    let json = r#"{"id":"c","object":"chat.completion","choices":[],"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}}"#;
    let whole = |status: &str| {
        format!("HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n", json.len())
    };
    match manner {
        Manner::Whole => pieces(stream, &[&whole("200 OK"), &json[..20], &json[20..]]).await,
        Manner::Fail => pieces(stream, &[&whole("500 Internal Server Error"), json]).await,
        Manner::Overload => pieces(stream, &[&whole("429 Too Many Requests"), &json[..20], &json[20..]]).await,
        Manner::Stream => {
            let (head, token) = (stream_head(), token());
            pieces(stream, &[&head, &token, &token, &chunk("data: [DONE]\n\n"), "0\r\n\r\n"]).await
        }
        Manner::CutStream => {
            let (head, token) = (stream_head(), token());
            pieces(stream, &[&head, &token, &token]).await;
            None
        }
        Manner::Close | Manner::Refuse => None,
    }
}

fn stream_head() -> String {
    "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n".into()
}

fn token() -> String {
    let delta = r#"{"id":"c","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"a"}}]}"#;
    chunk(&format!("data: {delta}\n\n"))
}

fn chunk(data: &str) -> String {
    format!("{:x}\r\n{data}\r\n", data.len())
}

/// One piece after the other, each seen by the other side before the next is sent, or nearly always.
async fn pieces(stream: &mut TcpStream, pieces: &[&str]) -> Option<()> {
    for piece in pieces {
        stream.write_all(piece.as_bytes()).await.ok()?;
        for _ in 0..16 {
            tokio::task::yield_now().await;
        }
    }
    Some(())
}
