//! One connection: HTTP/1.1 or HTTP/2 in clear text, with uvicorn's manners.
//!
//! uvicorn closes a connection that stays silent for a few seconds after an answer. A fault may reset it at any moment.

use std::{
    convert::Infallible,
    future::pending,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use hyper::service::service_fn;
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto,
};
use tokio::{
    net::TcpStream,
    sync::{Notify, watch},
};

use super::{Door, Stage, exchange, socket::Socket};
use crate::sim::Sim;

/// What requests on a connection and the connection's task tell each other.
#[derive(Debug, Default)]
pub(super) struct Control {
    reset: Arc<AtomicBool>,
    busy: AtomicUsize,
    answered: AtomicBool,
    changed: Notify,
}

/// Held while a request is on the connection.
#[derive(Debug)]
pub(super) struct Busy(Arc<Control>);

impl Control {
    /// Resets the connection as soon as its task runs.
    pub(super) fn reset(&self) {
        self.reset.store(true, Ordering::Release);
        self.changed.notify_one();
    }

    pub(super) fn busy(self: &Arc<Self>) -> Busy {
        self.busy.fetch_add(1, Ordering::AcqRel);
        self.changed.notify_one();
        Busy(self.clone())
    }

    fn is_idle(&self) -> bool {
        self.busy.load(Ordering::Acquire) == 0
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.busy.fetch_sub(1, Ordering::AcqRel);
        self.0.answered.store(true, Ordering::Release);
        self.0.changed.notify_one();
    }
}

/// Serves a connection until it ends, by whichever side.
pub(super) async fn serve(sim: Arc<Sim>, stream: TcpStream, mut stage: watch::Receiver<Stage>, door: Door) {
    if stream.set_nodelay(true).is_err() {
        return;
    }
    let control = Arc::new(Control::default());
    let io = TokioIo::new(Socket::new(stream, control.reset.clone()));
    let service = {
        let (sim, control) = (sim.clone(), control.clone());
        service_fn(move |request| {
            let busy = control.busy();
            let exchange = exchange::serve(sim.clone(), request, control.clone(), busy);
            async move { Ok::<_, Infallible>(exchange.await) }
        })
    };
    let mut builder = auto::Builder::new(TokioExecutor::new());
    // The idle limit is ours: hyper's would also cut slow heads, which uvicorn does not.
    builder.http1().timer(TokioTimer::new()).header_read_timeout(None);
    let mut faults = sim.faults_changed.subscribe();
    let connection = builder.serve_connection(io, service);
    tokio::pin!(connection);
    let mut closing = false;
    loop {
        let refusing = door == Door::Front && sim.faults.refuse();
        if control.reset.load(Ordering::Acquire) || *stage.borrow() == Stage::Dropping {
            return;
        }
        let should_close = refusing && control.is_idle() || *stage.borrow() == Stage::Draining;
        if should_close && !closing {
            closing = true;
            connection.as_mut().graceful_shutdown();
        }
        let idle_limit = (!closing && control.is_idle() && control.answered.load(Ordering::Acquire))
            .then(|| sim.faults.close_idle_ms().map_or(sim.options.keep_alive, Duration::from_millis));
        tokio::select! {
            ended = connection.as_mut() => {
                if let Err(error) = ended {
                    tracing::debug!(error, "connection ended");
                }
                return;
            }
            () = control.changed.notified() => {}
            _ = stage.changed() => {}
            _ = faults.changed() => {}
            () = silence(idle_limit) => {
                closing = true;
                connection.as_mut().graceful_shutdown();
            }
        }
    }
}

async fn silence(limit: Option<Duration>) {
    match limit {
        Some(limit) => tokio::time::sleep(limit).await,
        None => pending().await,
    }
}
