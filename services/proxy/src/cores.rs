//! One OS thread with a `current_thread` runtime per core.
//!
//! Measured against one multi-threaded runtime, this serves a proxied request for about a quarter less CPU: nothing is
//! stolen, and wake-ups stay on the thread. What runs here must never block; scraping, config and logging have a runtime
//! of their own. It does not pin threads to processors: the kernel does that better when others share the machine.

use std::{
    future::Future,
    io,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    thread::{self, JoinHandle},
};

use tokio::{
    runtime::{Builder, Handle},
    sync::oneshot,
    task,
};

/// More cores than this are refused: each costs a thread, and no machine we know serves better by it.
pub const CORES_MAX: usize = 1_024;

/// The cores of a process. Dropping it, or [`Cores::shutdown`], ends every task on them and joins the threads.
pub struct Cores {
    cores: Vec<Core>,
    threads: Vec<Thread>,
}

/// A handle to one core.
#[derive(Clone)]
pub struct Core {
    runtime: Handle,
    open: Arc<AtomicUsize>,
}

/// Counts one connection as open on its core until dropped.
pub(crate) struct OpenConnection(Arc<AtomicUsize>);

struct Thread {
    stop: Option<oneshot::Sender<()>>,
    joined: Option<JoinHandle<()>>,
}

impl Cores {
    /// Starts `count` cores (at least one, at most [`CORES_MAX`]); their threads are called `name`-0, `name`-1, ...
    ///
    /// # Errors
    /// The operating system gave no thread, or a runtime could not be made (file descriptors).
    pub fn start(count: usize, name: &str) -> io::Result<Self> {
        let mut cores = Self { cores: Vec::new(), threads: Vec::new() };
        for index in 0..count.clamp(1, CORES_MAX) {
            let (core, thread) = start_one(format!("{name}-{index}"))?;
            cores.cores.push(core);
            cores.threads.push(thread);
        }
        Ok(cores)
    }

    /// How many cores there are; at least one.
    pub fn count(&self) -> usize {
        self.cores.len()
    }

    /// The core with this index, counted from 0 and beginning again after the last.
    pub fn core(&self, index: usize) -> &Core {
        &self.cores[index % self.cores.len()]
    }

    /// All cores, by index.
    pub fn all(&self) -> &[Core] {
        &self.cores
    }

    /// Ends every task at its next await and waits for the threads. Blocks; not for async code.
    pub fn shutdown(mut self) {
        self.stop_and_join();
    }

    fn stop_and_join(&mut self) {
        for thread in &mut self.threads {
            drop(thread.stop.take());
        }
        for thread in &mut self.threads {
            if let Some(joined) = thread.joined.take() {
                // A panic of a task ended that task alone; one of the runtime itself was printed by the thread.
                let _ended = joined.join();
            }
        }
    }
}

impl Drop for Cores {
    fn drop(&mut self) {
        self.stop_and_join();
    }
}

impl Core {
    /// Runs a task on this core.
    pub fn spawn<F>(&self, task: F) -> task::JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.runtime.spawn(task)
    }

    /// Client connections open on this core now.
    pub fn open_connections(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    pub(crate) fn open_connection(&self) -> OpenConnection {
        self.open.fetch_add(1, Ordering::Relaxed);
        OpenConnection(Arc::clone(&self.open))
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn start_one(name: String) -> io::Result<(Core, Thread)> {
    let (stop, stopped) = oneshot::channel::<()>();
    let (started, starts) = mpsc::channel();
    let joined = thread::Builder::new().name(name).spawn(move || {
        let runtime = match Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime,
            Err(error) => return drop(started.send(Err(error))),
        };
        if started.send(Ok(runtime.handle().clone())).is_ok() {
            // An error is the sender dropped, which is the signal.
            let _stop = runtime.block_on(stopped);
        }
    })?;
    let runtime = starts.recv().map_err(|_| io::Error::other("the core's thread ended while starting"))??;
    let core = Core { runtime, open: Arc::default() };
    Ok((core, Thread { stop: Some(stop), joined: Some(joined) }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_run_on_their_core_and_end_with_it() {
        let cores = Cores::start(2, "test-core").unwrap();
        assert_eq!(cores.count(), 2);
        let (names, named) = mpsc::channel();
        for core in cores.all() {
            let names = names.clone();
            core.spawn(async move { names.send(thread::current().name().unwrap().to_owned()).unwrap() });
        }
        drop(names);
        let mut seen: Vec<_> = named.iter().collect();
        seen.sort();
        assert_eq!(seen, ["test-core-0", "test-core-1"]);

        let (held, gone) = mpsc::channel::<()>();
        cores.core(0).spawn(async move {
            std::future::pending::<()>().await;
            drop(held);
        });
        cores.shutdown();
        assert!(gone.recv().is_err(), "a task that waits for ever is dropped at shutdown");
    }
}
