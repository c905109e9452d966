//! The admin port's connections: not more than a bound, and none that stays silent for long.
//!
//! Whoever can reach this port could otherwise take all of the process's file descriptors from its clients, by opening
//! connections and saying nothing. Silence is measured on the bytes alone, so it also ends an answer that nobody reads.

use std::{
    io,
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use axum::serve::Listener;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, Sleep, sleep},
};

/// Most connections at once: many scrapers, probes and people. A further one is closed at once.
const CONNECTIONS_MAX: usize = 256;

/// Longest silence of a connection, as on the data port between requests.
const SILENCE_MAX: Duration = Duration::from_secs(75);

/// The port.
pub struct AdminListener {
    listener: TcpListener,
    free: Arc<Semaphore>,
    silence_max: Duration,
}

/// One connection.
pub struct AdminConnection {
    socket: TcpStream,
    silence: Pin<Box<Sleep>>,
    silence_max: Duration,
    _place: OwnedSemaphorePermit,
}

impl AdminListener {
    /// Bounds what `listener` accepts.
    pub fn new(listener: TcpListener) -> Self {
        Self::bounded(listener, CONNECTIONS_MAX, SILENCE_MAX)
    }

    fn bounded(listener: TcpListener, connections_max: usize, silence_max: Duration) -> Self {
        Self { listener, free: Arc::new(Semaphore::new(connections_max)), silence_max }
    }
}

impl Listener for AdminListener {
    type Io = AdminConnection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            // It says and retries what goes wrong.
            let (socket, peer) = Listener::accept(&mut self.listener).await;
            let Ok(place) = Arc::clone(&self.free).try_acquire_owned() else { continue };
            let silence_max = self.silence_max;
            let silence = Box::pin(sleep(silence_max));
            return (AdminConnection { socket, silence, silence_max, _place: place }, peer);
        }
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        self.listener.local_addr()
    }
}

impl AdminConnection {
    /// What came of an attempt to move bytes, unless it is the last of a long silence.
    fn unless_silent<T>(&mut self, cx: &mut Context<'_>, moved: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if moved.is_ready() {
            self.silence.as_mut().reset(Instant::now() + self.silence_max);
            return moved;
        }
        ready!(self.silence.as_mut().poll(cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for AdminConnection {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let moved = Pin::new(&mut self.socket).poll_read(cx, buf);
        self.unless_silent(cx, moved)
    }
}

impl AsyncWrite for AdminConnection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let moved = Pin::new(&mut self.socket).poll_write(cx, bytes);
        self.unless_silent(cx, moved)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use axum::{Router, routing::get};
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        time::timeout,
    };

    use super::*;

    const SOON: Duration = Duration::from_secs(10);

    async fn serving(connections_max: usize, silence_max: Duration) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let listener = AdminListener::bounded(listener, connections_max, silence_max);
        tokio::spawn(axum::serve(listener, Router::new().route("/", get(|| async { "here" }))).into_future());
        address
    }

    async fn all_of(connection: &mut TcpStream) -> Vec<u8> {
        let mut read = Vec::new();
        // A reset is an end too.
        let _ = timeout(SOON, connection.read_to_end(&mut read)).await.expect("the connection is closed");
        read
    }

    #[tokio::test]
    async fn a_silent_connection_is_closed_and_its_place_is_free() {
        let address = serving(1, Duration::from_millis(50)).await;
        for begun in ["", "GET / HT"] {
            let mut connection = TcpStream::connect(address).await.unwrap();
            connection.write_all(begun.as_bytes()).await.unwrap();
            assert!(all_of(&mut connection).await.is_empty());
        }
    }

    #[tokio::test]
    async fn a_connection_over_the_bound_is_closed_and_the_others_are_served() {
        let address = serving(1, SOON).await;
        let mut first = TcpStream::connect(address).await.unwrap();
        first.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
        let mut byte = [0];
        first.read_exact(&mut byte).await.unwrap();
        assert!(all_of(&mut TcpStream::connect(address).await.unwrap()).await.is_empty());
        first.write_all(b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").await.unwrap();
        let text = all_of(&mut first).await;
        assert_eq!(text.windows(4).filter(|four| four == b"here").count(), 2);
    }
}
