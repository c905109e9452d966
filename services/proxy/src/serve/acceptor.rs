//! Accepts connections and gives each to the core with the fewest.
//!
//! `SO_REUSEPORT` would let the kernel do it, by hash: with the few long-lived connections that gateways get from their
//! load balancers and SDKs, that leaves cores idle.

use std::{
    io,
    net::{TcpListener, TcpStream},
    sync::Arc,
    time::Duration,
};

use socket2::SockRef;
use tokio::{
    sync::oneshot,
    time::{self, Instant},
};

use super::{
    Answers, Drain, Phase, Refused, Sendable,
    connection::{self, Shared},
    signal::Level,
};
use crate::cores::Core;

/// Connections that the kernel holds ready while the acceptor is busy; it uses less where it allows less.
const BACKLOG: i32 = 4_096;

/// How long accepting rests when the process has no file descriptors or memory left: trying on would spin.
const REST_AFTER_FAILURE: Duration = Duration::from_millis(50);

/// How often at most such a failure is said: it is counted each time, and may last.
const SAID_EVERY: Duration = Duration::from_secs(10);

pub(super) struct Acceptor<S> {
    listener: tokio::net::TcpListener,
    cores: Vec<(Core, S)>,
    shared: Arc<Shared>,
}

impl<S> Acceptor<S> {
    pub(super) fn new(listener: TcpListener, cores: Vec<(Core, S)>, shared: Arc<Shared>) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        SockRef::from(&listener).listen(BACKLOG)?;
        Ok(Self { listener: tokio::net::TcpListener::from_std(listener)?, cores, shared })
    }

    /// Accepts until the drain begins or the other end of `removed` is dropped.
    pub(super) async fn run<B>(mut self, drain: Drain, removed: oneshot::Receiver<()>)
    where
        S: Answers<B>,
        B: Sendable,
    {
        tokio::select! {
            biased;
            () = drain.reached(Phase::Draining) => {}
            _ = removed => {}
            () = self.accept_for_ever() => {}
        }
        let Self { listener, cores, shared } = self;
        // Who was already connected gets an answer, not a reset.
        if let Ok(listener) = listener.into_std() {
            while let Ok((stream, _)) = listener.accept() {
                hand_out(&cores, &shared, stream);
            }
        }
        shared.signal.raise(Level::Draining);
    }

    async fn accept_for_ever<B>(&mut self)
    where
        S: Answers<B>,
        B: Sendable,
    {
        let mut said: Option<Instant> = None;
        loop {
            let accepted = self.listener.accept().await;
            // Out of this runtime's event loop: it will be a core's.
            match accepted.and_then(|(stream, _)| stream.into_std()) {
                Ok(stream) => hand_out(&self.cores, &self.shared, stream),
                Err(error) if is_of_one_connection(&error) => {}
                Err(error) => {
                    if said.is_none_or(|at| at.elapsed() >= SAID_EVERY) {
                        said = Some(Instant::now());
                        tracing::warn!(%error, "cannot accept connections");
                    }
                    (self.shared.refusals)(Refused::NoConnection);
                    time::sleep(REST_AFTER_FAILURE).await;
                }
            }
        }
    }
}

fn hand_out<S, B>(cores: &[(Core, S)], shared: &Arc<Shared>, stream: TcpStream)
where
    S: Answers<B>,
    B: Sendable,
{
    // Those of all listeners.
    let open: usize = cores.iter().map(|(core, _)| core.open_connections()).sum();
    if open >= shared.limits.connections_max {
        (shared.refusals)(Refused::NoConnection);
        return;
    }
    let fewest = cores.iter().enumerate().min_by_key(|(_, (core, _))| core.open_connections());
    let Some((index, (core, service))) = fewest else { return };
    let counted = shared.open_connection(index, core.open_connection());
    core.spawn(connection::serve(stream, service.clone(), counted));
}

/// Errors that say something about the connection that was to be accepted, and nothing about the next.
fn is_of_one_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::Interrupted
            | io::ErrorKind::WouldBlock
            | io::ErrorKind::PermissionDenied
    )
}
