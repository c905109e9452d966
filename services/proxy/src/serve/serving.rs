//! The listeners of a process: added and removed while it runs, drained together at its end.
//!
//! Each has its own acceptor, its own signal and its own counts, so that one can drain while the others serve. A removed
//! listener closes its socket at once; what runs on its connections ends as it would at the end of the process, but that
//! nothing cuts it off: answers have limits of their own.
//!
//! Which listener a connection came by is known to the service that answers on it, since each listener has its own: a
//! request carries nothing for it.

use std::{
    io,
    net::{SocketAddr, TcpListener},
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use thiserror::Error;
use tokio::{sync::oneshot, task::JoinHandle, time};

use super::{
    Answers, Drain, Limits, Phase, Refusals, Sendable, acceptor::Acceptor, connection::Shared, signal::Level, tls::Tls,
};
use crate::cores::Cores;

/// Listeners at most, those included that were removed and still drain: as many ports as a Gateway can name.
pub const LISTENERS_MAX: usize = 64;

/// How long nothing may end, at the end of a drain, before connections between requests are closed: longer than clients
/// that are at work pause between two requests, and short beside the time that whoever stops a process gives it.
const STILL_BEFORE_CLOSING: Duration = Duration::from_millis(250);

/// A listener, as clients name it: the socket behind it may be bound to another port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Listener {
    /// The port that clients connect to.
    pub port: u16,
    /// What they speak there.
    pub scheme: Scheme,
}

/// How a listener's URLs begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scheme {
    /// Without TLS.
    Http,
    /// With TLS, which ends here.
    Https,
}

impl Scheme {
    /// As it stands in a URL.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }

    /// The port that a URL of this scheme means where it names none.
    pub const fn default_port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Https => 443,
        }
    }
}

/// Why a listener was not added.
#[derive(Debug, Error)]
pub enum AddError {
    /// There are [`LISTENERS_MAX`].
    #[error("there are {LISTENERS_MAX} listeners, which is the most")]
    TooMany,
    /// One with this port is open.
    #[error("port {0} has a listener")]
    Taken(u16),
    /// The process is ending.
    #[error("the process is shutting down")]
    Draining,
    /// The socket cannot be used.
    #[error(transparent)]
    Socket(#[from] io::Error),
}

/// Listeners at work. Dropping it stops accepting; connections go on until their cores end.
pub struct Serving {
    open: Box<Open>,
    drain: Drain,
    listeners: Mutex<Vec<Running>>,
}

/// Begins to serve on a socket, and ends when told.
type Open = dyn Fn(TcpListener, Listener, Arc<Tls>) -> io::Result<Running> + Send + Sync;

struct Running {
    listener: Listener,
    local_addr: SocketAddr,
    shared: Arc<Shared>,
    /// Ends when the last connection has.
    task: JoinHandle<()>,
    /// Asks it to close its socket; taken then.
    remove: Option<oneshot::Sender<()>>,
    /// Told when its socket is closed and whoever was let in is on a core; taken by the first who waits for that.
    closed: Option<oneshot::Receiver<()>>,
}

/// How a drain ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drained {
    /// Connections that were cut off because time was over.
    pub aborted: usize,
}

/// Serves on `cores` until `drain` begins; [`Serving::add`] says where. `service` is asked once per core and listener.
pub fn start<S, B>(
    cores: &Cores,
    limits: Limits,
    service: impl Fn(usize, Listener) -> S + Send + Sync + 'static,
    drain: Drain,
    refusals: Refusals,
) -> Serving
where
    S: Answers<B>,
    B: Sendable,
{
    let cores = cores.all().to_vec();
    let ends = drain.clone();
    let open = move |socket: TcpListener, listener: Listener, tls: Arc<Tls>| {
        let local_addr = socket.local_addr()?;
        let shared = Arc::new(Shared::new(limits.clone(), cores.len(), Arc::clone(&refusals), tls));
        let services = cores.iter().enumerate().map(|(index, core)| (core.clone(), service(index, listener))).collect();
        let acceptor = Acceptor::new(socket, services, Arc::clone(&shared))?;
        let (remove, removed) = oneshot::channel();
        let (tell_closed, closed) = oneshot::channel();
        let (counts, drain) = (Arc::clone(&shared), ends.clone());
        let task = tokio::spawn(async move {
            acceptor.run(drain, removed).await;
            // Nobody may want to know.
            let _told = tell_closed.send(());
            wait_for_end(&counts).await;
        });
        Ok(Running { listener, local_addr, shared, task, remove: Some(remove), closed: Some(closed) })
    };
    Serving { open: Box::new(open), drain, listeners: Mutex::default() }
}

impl Serving {
    /// Serves on `socket`, too, and says where that is. `tls` says what is spoken there, and may change it later.
    ///
    /// The acceptor runs on the tokio runtime this is called in, which should not be one of the cores'.
    ///
    /// # Errors
    /// The socket cannot be watched by that runtime, or there may be no such listener now.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn add(&self, socket: TcpListener, listener: Listener, tls: Arc<Tls>) -> Result<SocketAddr, AddError> {
        let mut listeners = self.listeners.lock();
        listeners.retain(|running| !running.task.is_finished());
        if self.drain.phase() >= Phase::Draining {
            return Err(AddError::Draining);
        }
        if listeners.len() >= LISTENERS_MAX {
            return Err(AddError::TooMany);
        }
        if listeners.iter().any(|running| running.is_open(listener.port)) {
            return Err(AddError::Taken(listener.port));
        }
        let running = (self.open)(socket, listener, tls)?;
        let local_addr = running.local_addr;
        listeners.push(running);
        Ok(local_addr)
    }

    /// Stops listening at `port`, and returns once the socket is closed. Connections that came by it drain. False when
    /// there is no such listener.
    pub async fn remove(&self, port: u16) -> bool {
        let closed = {
            let mut listeners = self.listeners.lock();
            let Some(running) = listeners.iter_mut().find(|running| running.is_open(port)) else { return false };
            // Dropping it is the signal.
            running.remove = None;
            running.closed.take()
        };
        wait_for(closed).await;
        true
    }

    /// Those that are open, and where they listen.
    pub fn listeners(&self) -> Vec<(Listener, SocketAddr)> {
        let listeners = self.listeners.lock();
        let open = listeners.iter().filter(|running| running.remove.is_some());
        open.map(|running| (running.listener, running.local_addr)).collect()
    }

    /// Connections open now.
    pub fn open_connections(&self) -> usize {
        self.listeners.lock().iter().map(|running| running.shared.ledger.connections()).sum()
    }

    /// Requests being answered now.
    pub fn open_requests(&self) -> usize {
        self.listeners.lock().iter().map(|running| running.shared.ledger.requests()).sum()
    }

    /// Waits for the drain to begin, and then for all connections to end, for at most `limit`; then cuts the rest off.
    ///
    /// Connections between requests stay open while any request of their listener is being answered, and until none has
    /// come for a quarter of a second, so that a client which has not noticed yet is told by an answer instead of a lost
    /// request; then they are closed.
    pub async fn drained(&self, limit: Duration) -> Drained {
        self.drained_or(limit, || {}).await
    }

    /// [`Serving::drained`] that calls `cutting` before it cuts anything off.
    pub async fn drained_or(&self, limit: Duration, cutting: impl FnOnce()) -> Drained {
        self.drained_until(time::sleep(limit), cutting).await
    }

    /// [`Serving::drained_or`] for as long as `over` has not happened. It is looked at from the beginning of the drain on.
    pub async fn drained_until(&self, over: impl Future<Output = ()>, cutting: impl FnOnce()) -> Drained {
        self.drain.reached(Phase::Draining).await;
        // Nothing is added any more.
        let mut listeners = std::mem::take(&mut *self.listeners.lock());
        for running in &mut listeners {
            wait_for(running.closed.take()).await;
        }
        let all_ended = async {
            for running in &mut listeners {
                // An error is a task that ended in another way.
                let _ended = (&mut running.task).await;
            }
        };
        tokio::select! {
            biased;
            () = all_ended => return Drained { aborted: 0 },
            () = over => {}
        }
        let aborted = listeners.iter().map(|running| running.shared.ledger.connections()).sum();
        cutting();
        for running in &listeners {
            running.shared.signal.raise(Level::Aborted);
        }
        for running in listeners.iter_mut().filter(|running| !running.task.is_finished()) {
            let _ended = (&mut running.task).await;
        }
        Drained { aborted }
    }
}

impl Running {
    fn is_open(&self, port: u16) -> bool {
        self.remove.is_some() && self.listener.port == port
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        for running in self.listeners.get_mut() {
            running.task.abort();
        }
    }
}

/// An error is the acceptor gone, and its socket with it.
async fn wait_for(closed: Option<oneshot::Receiver<()>>) {
    if let Some(closed) = closed {
        let _gone = closed.await;
    }
}

async fn wait_for_end(shared: &Shared) {
    let ledger = &shared.ledger;
    loop {
        ledger.until(|| ledger.requests() == 0).await;
        let is_cut = shared.signal.level() == Level::Aborted;
        let is_over = is_cut || ledger.connections() == 0 || ledger.is_still_for(STILL_BEFORE_CLOSING).await;
        if is_over && ledger.requests() == 0 {
            break;
        }
    }
    shared.signal.raise(Level::Closing);
    ledger.until(|| ledger.connections() == 0).await;
}
