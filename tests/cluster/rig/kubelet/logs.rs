//! The one part of a kubelet's own API that is served: containers' logs, because operators type `kubectl logs`.

use std::{io::SeekFrom, net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    net::TcpListener,
};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{ServerConfig, crypto::ring, pki_types::PrivateKeyDer},
};

use crate::place::{KUBELET_PORT, NODE_ADDRESS, Place};

/// How often a log that is followed is looked at.
const FOLLOW: Duration = Duration::from_millis(100);
/// Lines of a request's head.
const HEAD_LINES_MAX: usize = 100;

/// Listens from now on.
///
/// # Errors
/// When it cannot.
pub(crate) async fn serve(place: Place) -> anyhow::Result<()> {
    let acceptor = acceptor()?;
    let listener = TcpListener::bind(SocketAddr::from((NODE_ADDRESS, KUBELET_PORT))).await?;
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (acceptor, place) = (acceptor.clone(), place.clone());
            tokio::spawn(async move {
                if let Ok(stream) = acceptor.accept(stream).await {
                    // A reader that leaves ends it.
                    let _ = answer(stream, &place).await;
                }
            });
        }
    });
    Ok(())
}

fn acceptor() -> anyhow::Result<TlsAcceptor> {
    let own = rcgen::generate_simple_self_signed(vec![NODE_ADDRESS.to_string()])?;
    let key = PrivateKeyDer::Pkcs8(own.signing_key.serialize_der().into());
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![own.cert.der().clone()], key)?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// What a request for logs asks.
#[derive(Debug, PartialEq, Eq)]
struct Asked {
    namespace: String,
    pod: String,
    container: String,
    follow: bool,
    tail: Option<usize>,
}

impl Asked {
    /// Of `GET /containerLogs/NAMESPACE/POD/CONTAINER?follow=true&tailLines=5 HTTP/1.1`.
    fn parsed(line: &str) -> Option<Self> {
        let target = line.split(' ').nth(1)?;
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let mut parts = path.strip_prefix("/containerLogs/")?.split('/').map(str::to_owned);
        let value = |name: &str| query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
        Some(Self {
            namespace: parts.next()?,
            pod: parts.next()?,
            container: parts.next()?,
            follow: value("follow") == Some("true"),
            tail: value("tailLines").and_then(|count| count.parse().ok()),
        })
    }

    /// The log of the newest pod of that name.
    fn file(&self, place: &Place) -> Option<PathBuf> {
        let prefix = format!("{}_{}_", self.namespace, self.pod);
        let entries = std::fs::read_dir(place.file("pods")).ok()?.flatten();
        let own = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(&prefix));
        let newest = own.max_by_key(|entry| entry.metadata().and_then(|data| data.created()).ok())?;
        Some(newest.path().join(format!("{}.log", self.container))).filter(|path| path.is_file())
    }
}

async fn answer<S>(stream: S, place: &Place) -> std::io::Result<()>
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
{
    let mut stream = BufReader::new(stream);
    let mut first = String::new();
    stream.read_line(&mut first).await?;
    for _ in 0..HEAD_LINES_MAX {
        let mut line = String::new();
        if stream.read_line(&mut line).await? <= 2 {
            break;
        }
    }
    let asked = Asked::parsed(&first);
    let Some((asked, file)) = asked.and_then(|asked| asked.file(place).map(|file| (asked, file))) else {
        stream.write_all(b"HTTP/1.1 404 Not Found\r\nconnection: close\r\ncontent-length: 0\r\n\r\n").await?;
        return stream.shutdown().await;
    };
    stream.write_all(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-type: text/plain\r\n\r\n").await?;
    let mut sent = 0;
    loop {
        let bytes = read_from(&file, sent)?;
        let shown = match asked.tail.filter(|_| sent == 0) {
            Some(count) => last_lines(&bytes, count),
            None => &bytes,
        };
        stream.write_all(shown).await?;
        stream.flush().await?;
        sent += bytes.len() as u64;
        if !asked.follow || !file.exists() {
            return stream.shutdown().await;
        }
        tokio::time::sleep(FOLLOW).await;
    }
}

fn read_from(file: &std::path::Path, start: u64) -> std::io::Result<Vec<u8>> {
    use std::io::{Read as _, Seek as _};
    let mut file = std::fs::File::open(file)?;
    file.seek(SeekFrom::Start(start))?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn last_lines(bytes: &[u8], count: usize) -> &[u8] {
    let body = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    let newlines = body.iter().enumerate().rev().filter(|&(_, &byte)| byte == b'\n').map(|(at, _)| at);
    match count.checked_sub(1) {
        None => &[],
        Some(before) => newlines.into_iter().nth(before).map_or(bytes, |at| &bytes[at + 1..]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_read() {
        let asked = Asked::parsed("GET /containerLogs/ns/p/c?follow=true&tailLines=5 HTTP/1.1\r\n").unwrap();
        assert_eq!((asked.namespace.as_str(), asked.pod.as_str(), asked.container.as_str()), ("ns", "p", "c"));
        assert_eq!((asked.follow, asked.tail), (true, Some(5)));
        assert_eq!(Asked::parsed("GET /pods HTTP/1.1"), None);
    }

    #[test]
    fn the_last_lines_are_whole() {
        let log = b"one\ntwo\nthree\n";
        assert_eq!(last_lines(log, 2), b"two\nthree\n");
        assert_eq!(last_lines(log, 9), log);
        assert_eq!(last_lines(log, 0), b"");
    }
}
