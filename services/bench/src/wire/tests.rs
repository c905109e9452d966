use std::io::Cursor;

use super::*;

/// Gives its bytes out in pieces of `step`, as a network may.
struct Dripping {
    bytes: Cursor<Vec<u8>>,
    step: usize,
}

impl AsyncRead for Dripping {
    fn poll_read(
        mut self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
        buffer: &mut tokio::io::ReadBuf<'_>,
    ) -> std::task::Poll<io::Result<()>> {
        let start = usize::try_from(self.bytes.position()).unwrap();
        let end = (start + self.step.min(buffer.remaining())).min(self.bytes.get_ref().len());
        buffer.put_slice(&self.bytes.get_ref()[start..end]);
        self.bytes.set_position(end as u64);
        std::task::Poll::Ready(Ok(()))
    }
}

fn reader(text: &str, step: usize) -> Reader<Dripping> {
    Reader::new(Dripping { bytes: Cursor::new(text.as_bytes().to_vec()), step })
}

async fn whole<R: AsyncRead + Unpin>(reader: &mut Reader<R>, framing: Framing) -> io::Result<String> {
    let mut text = Vec::new();
    reader.body(framing, &mut |piece| text.extend_from_slice(piece)).await?;
    Ok(String::from_utf8(text).unwrap())
}

#[tokio::test]
async fn messages_follow_each_other_however_they_are_cut() {
    let text = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello\
                HTTP/1.1 200 OK\r\ntransfer-encoding: Chunked\r\n\r\n3\r\nabc\r\nA;x=1\r\n0123456789\r\n0\r\nt: 1\r\n\r\n\
                HTTP/1.1 503 No\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
    for step in [1, 2, 3, 7, 16, 1000] {
        let mut reader = reader(text, step);
        let first = reader.answer().await.unwrap();
        assert_eq!((first.status, first.framing, first.closes), (200, Framing::Length(5), false));
        assert_eq!(whole(&mut reader, first.framing).await.unwrap(), "hello");
        let second = reader.answer().await.unwrap();
        assert_eq!(whole(&mut reader, second.framing).await.unwrap(), "abc0123456789");
        let third = reader.answer().await.unwrap();
        assert_eq!((third.status, third.closes), (503, true));
        assert!(reader.answer().await.is_err());
    }
}

#[tokio::test]
async fn a_request_has_a_path_and_may_have_no_body() {
    let mut reader =
        reader("GET /metrics HTTP/1.1\r\nhost: a\r\n\r\nPOST /v1 HTTP/1.1\r\nhost: a\r\ncontent-length: 1\r\n\r\nx", 9);
    let first = reader.request().await.unwrap().unwrap();
    assert_eq!((first.path.as_str(), first.framing), ("/metrics", Framing::Length(0)));
    let second = reader.request().await.unwrap().unwrap();
    assert_eq!(whole(&mut reader, second.framing).await.unwrap(), "x");
    assert_eq!(reader.request().await.unwrap(), None);
}

#[tokio::test]
async fn a_cut_or_wrong_message_is_an_error() {
    for text in [
        "HTTP/1.1 200 OK\r\ncontent-len",
        "HTTP/1.1 200 OK\r\n\r\nuntil the end",
        "HTTP/1.1 200 OK\r\ncontent-length: many\r\n\r\n",
        "ICY 200\r\n\r\n",
    ] {
        assert!(reader(text, 5).answer().await.is_err(), "{text}");
    }
    assert!(whole(&mut reader("abc", 5), Framing::Length(4)).await.is_err());
    assert!(whole(&mut reader("3\r\nabc\r\n", 5), Framing::Chunked).await.is_err());
    assert!(whole(&mut reader("zz\r\nabc\r\n", 5), Framing::Chunked).await.is_err());
}
