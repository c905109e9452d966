//! Servers below HTTP: what they do is decided by bytes and sockets alone.

use std::{
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use socket2::{Domain, Socket, Type};

/// A server that gives each connection to a script on a thread of its own. Dropping it closes its listener.
pub struct RawPeer {
    /// Where it listens.
    pub address: SocketAddr,
    stopping: Arc<AtomicBool>,
}

impl RawPeer {
    /// Listens.
    ///
    /// # Panics
    /// When there is no free port.
    pub fn start(script: impl Fn(TcpStream) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port on loopback");
        let address = listener.local_addr().expect("a bound socket has an address");
        let stopping = Arc::new(AtomicBool::new(false));
        let script = Arc::new(script);
        thread::spawn({
            let stopping = Arc::clone(&stopping);
            move || {
                for stream in listener.incoming().map_while(Result::ok) {
                    if stopping.load(Ordering::Acquire) {
                        return;
                    }
                    let script = Arc::clone(&script);
                    thread::spawn(move || script(stream));
                }
            }
        });
        Self { address, stopping }
    }
}

impl Drop for RawPeer {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::Release);
        // Wakes the acceptor, which then closes the listener.
        let _ = TcpStream::connect(self.address);
    }
}

/// An address where a connection is neither accepted nor refused, for as long as the value lives: its listener's queue is
/// full and nobody takes from it.
///
/// # Panics
/// When the sockets cannot be made.
pub fn blackhole() -> (SocketAddr, Vec<Socket>) {
    let listener = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    let any: SocketAddr = "127.0.0.1:0".parse().expect("an address");
    listener.bind(&any.into()).expect("a free port on loopback");
    listener.listen(0).expect("a bound socket listens");
    let address = listener.local_addr().ok().and_then(|address| address.as_socket()).expect("an address");
    let mut held = vec![listener];
    loop {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
        let connected = socket.connect_timeout(&address.into(), Duration::from_millis(300)).is_ok();
        held.push(socket);
        if !connected {
            return (address, held);
        }
    }
}
