//! A way to the API server that ends a process at its n-th write: the write is made, and its answer never arrives.

use std::{
    fs,
    io::{self, Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    path::PathBuf,
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering},
    },
    thread,
};

use harness::{Cluster, Program};

/// The largest head and body of one request together.
const REQUEST_BYTES_MAX: usize = 16 * 1024 * 1024;

pub(crate) struct Gate {
    /// For whoever shall come through here.
    pub(crate) kubeconfig: PathBuf,
    shared: Arc<Shared>,
    _proxy: Program,
    _folder: tempfile::TempDir,
}

#[derive(Default)]
struct Shared {
    about: String,
    writes: AtomicUsize,
    /// The number of the write that is the last one; 0: none is.
    last: AtomicUsize,
    victim: AtomicU32,
    killed: AtomicBool,
}

impl Gate {
    /// `about`: what the path of a write must contain to count, since other tests' objects are looked after as well.
    pub(crate) fn new(about: &str) -> Self {
        let mut command = Command::new(Cluster::shared().folder().join("bin/kubectl"));
        command.args(["proxy", "--port=0", "--accept-hosts=.*"]);
        // It tells of each connection that a killed controller leaves behind.
        let mut proxy = Program::start(command.stderr(Stdio::null()));
        let line = proxy.line().expect("kubectl proxy says where it listens");
        let upstream: SocketAddr = line.trim().rsplit(' ').next().unwrap().parse().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let folder = tempfile::tempdir().unwrap();
        let kubeconfig = folder.path().join("kubeconfig");
        let server = format!("http://{}", listener.local_addr().unwrap());
        let text = format!(
            "{{apiVersion: v1, kind: Config, current-context: c, clusters: [{{name: c, cluster: {{server: '{server}'}}}}], \
             users: [{{name: c, user: {{}}}}], contexts: [{{name: c, context: {{cluster: c, user: c}}}}]}}"
        );
        fs::write(&kubeconfig, text).unwrap();
        let shared = Arc::new(Shared { about: about.to_owned(), ..Shared::default() });
        let seen = Arc::clone(&shared);
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let shared = Arc::clone(&seen);
                // A connection that breaks is the business of its two ends.
                thread::spawn(move || drop(carry(client, upstream, &shared)));
            }
        });
        Self { kubeconfig, shared, _proxy: proxy, _folder: folder }
    }

    /// Counts from here, and ends `victim` at this write; 0: at none.
    pub(crate) fn kill_at(&self, write: usize, victim: u32) {
        self.shared.victim.store(victim, Ordering::SeqCst);
        self.shared.killed.store(false, Ordering::SeqCst);
        self.shared.writes.store(0, Ordering::SeqCst);
        self.shared.last.store(write, Ordering::SeqCst);
    }

    /// Writes since the last call of [`Gate::kill_at`].
    pub(crate) fn writes(&self) -> usize {
        self.shared.writes.load(Ordering::SeqCst)
    }

    pub(crate) fn has_killed(&self) -> bool {
        self.shared.killed.load(Ordering::SeqCst)
    }
}

fn carry(mut client: TcpStream, upstream: SocketAddr, shared: &Arc<Shared>) -> io::Result<()> {
    let mut server = TcpStream::connect(upstream)?;
    let fatal = Arc::new(AtomicBool::new(false));
    thread::spawn({
        let (server, client) = (server.try_clone()?, client.try_clone()?);
        let (fatal, shared) = (Arc::clone(&fatal), Arc::clone(shared));
        move || drop(answer(server, client, &fatal, &shared))
    });
    let mut read = Vec::new();
    while let Some(request) = next(&mut client, &mut read)? {
        if is_write(&request, &shared.about) {
            let number = shared.writes.fetch_add(1, Ordering::SeqCst) + 1;
            if number == shared.last.load(Ordering::SeqCst) {
                fatal.store(true, Ordering::SeqCst);
            }
        }
        server.write_all(&request)?;
    }
    server.shutdown(std::net::Shutdown::Both)
}

/// Passes answers on, until the one that nobody may hear.
fn answer(mut server: TcpStream, mut client: TcpStream, fatal: &AtomicBool, shared: &Shared) -> io::Result<()> {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let count = server.read(&mut buffer)?;
        if fatal.load(Ordering::SeqCst) {
            let victim = shared.victim.load(Ordering::SeqCst).to_string();
            let sent = Command::new("kill").args(["-KILL", &victim]).status()?;
            shared.killed.store(sent.success(), Ordering::SeqCst);
            return Ok(());
        }
        if count == 0 {
            return client.shutdown(std::net::Shutdown::Both);
        }
        client.write_all(&buffer[..count])?;
    }
}

/// The next whole request, as it was sent.
fn next(client: &mut TcpStream, read: &mut Vec<u8>) -> io::Result<Option<Vec<u8>>> {
    let mut buffer = [0; 16 * 1024];
    loop {
        let head = read.windows(4).position(|at| at == b"\r\n\r\n").map(|at| at + 4);
        if let Some(head) = head {
            let whole = head + length(&read[..head]);
            if read.len() >= whole {
                let rest = read.split_off(whole);
                return Ok(Some(std::mem::replace(read, rest)));
            }
        }
        assert!(read.len() < REQUEST_BYTES_MAX);
        match client.read(&mut buffer)? {
            0 => return Ok(None),
            count => read.extend_from_slice(&buffer[..count]),
        }
    }
}

fn length(head: &[u8]) -> usize {
    let head = String::from_utf8_lossy(head).to_ascii_lowercase();
    assert!(!head.contains("transfer-encoding"), "{head}");
    let length = head.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok());
    length.unwrap_or(0)
}

/// Whether a request changes an object. Leases and events are no part of a rollout.
fn is_write(request: &[u8], about: &str) -> bool {
    let line = String::from_utf8_lossy(&request[..request.len().min(400)]).into_owned();
    let mut words = line.split(' ');
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let changes = matches!(method, "POST" | "PUT" | "PATCH" | "DELETE") && path.contains(about);
    changes && !path.contains("/leases") && !path.contains("/events")
}
