//! An API server in as much as watches see of it, with faults on demand. Each answer has a connection of its own.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::watch,
    task::AbortHandle,
    time::{Instant, sleep_until},
};

use super::LONG;

/// What a resource does instead of what it should.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    None,
    /// Every answer is this.
    Status(u16),
    /// Every watch is answered with this, once.
    WatchStatus(u16),
    /// Nothing is answered, and connections stay open.
    Hang,
    /// Watches begin, say nothing and never end.
    SilentWatch,
}

pub(super) struct Fake {
    port: u16,
    shared: Arc<Shared>,
    task: AbortHandle,
}

struct Shared {
    state: Mutex<State>,
    changed: watch::Sender<u64>,
}

#[derive(Default)]
struct State {
    version: u64,
    /// Watches that began before this many cuts end.
    cuts: u64,
    resources: BTreeMap<String, Resource>,
    asked: Vec<String>,
}

struct Resource {
    objects: BTreeMap<String, Value>,
    /// Lines of watches, each with the version it is of.
    lines: Vec<(u64, String)>,
    fault: Fault,
}

impl Default for Resource {
    fn default() -> Self {
        Self { objects: BTreeMap::new(), lines: Vec::new(), fault: Fault::None }
    }
}

impl Fake {
    pub(super) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::new(Shared { state: Mutex::default(), changed: watch::Sender::new(0) });
        let serving = Arc::clone(&shared);
        let task = tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let shared = Arc::clone(&serving);
                tokio::spawn(async move { _ = shared.answer(socket).await });
            }
        });
        Self { port, shared, task: task.abort_handle() }
    }

    pub(super) fn client(&self) -> kube::Client {
        let mut config = kube::Config::new(format!("http://127.0.0.1:{}", self.port).parse().unwrap());
        config.default_retry = false;
        kube::Client::try_from(config).unwrap()
    }

    /// Creates or replaces an object, and says so to watches.
    pub(super) fn put(&self, resource: &str, mut object: Value) {
        self.change(resource, |version, resource| {
            let key = key(&object);
            object["metadata"]["resourceVersion"] = version.to_string().into();
            let kind = if resource.objects.contains_key(&key) { "MODIFIED" } else { "ADDED" };
            resource.lines.push((version, json!({"type": kind, "object": object}).to_string()));
            resource.objects.insert(key, object);
        });
    }

    /// Removes an object, and says so to watches.
    pub(super) fn remove(&self, resource: &str, key: &str) {
        self.change(resource, |version, resource| {
            if let Some(object) = resource.objects.remove(key) {
                resource.lines.push((version, json!({"type": "DELETED", "object": object}).to_string()));
            }
        });
    }

    /// Removes an object, and no watch ever hears of it.
    pub(super) fn forget(&self, resource: &str, key: &str) {
        self.change(resource, |_, resource| _ = resource.objects.remove(key));
    }

    /// Sends a line to the watches that stand now.
    pub(super) fn line(&self, resource: &str, line: &str) {
        self.change(resource, |version, resource| resource.lines.push((version, line.to_owned())));
    }

    pub(super) fn fault(&self, resource: &str, fault: Fault) {
        self.change(resource, |_, resource| resource.fault = fault);
    }

    /// Ends every watch that stands.
    pub(super) fn cut(&self) {
        self.shared.state().cuts += 1;
        self.shared.tell();
    }

    /// The requests so far.
    pub(super) fn asked(&self) -> Vec<String> {
        self.shared.state().asked.clone()
    }

    pub(super) fn names(&self, resource: &str) -> Vec<String> {
        let state = self.shared.state();
        state.resources[resource].objects.keys().map(|key| key.split_once('/').unwrap().1.to_owned()).collect()
    }

    /// Waits for one more request of this kind than there were.
    pub(super) async fn until_asked_again(&self, resource: &str, part: &str) {
        let resource = format!("/{resource}?");
        let count = || self.asked().iter().filter(|path| path.contains(&resource) && path.contains(part)).count();
        let before = count();
        let mut changed = self.shared.changed.subscribe();
        let more = async {
            while count() <= before {
                changed.changed().await.unwrap();
            }
        };
        tokio::time::timeout(LONG, more).await.expect("asked again in time");
    }

    fn change(&self, resource: &str, change: impl FnOnce(u64, &mut Resource)) {
        let mut state = self.shared.state();
        state.version += 1;
        let version = state.version;
        change(version, state.resources.entry(resource.to_owned()).or_default());
        drop(state);
        self.shared.tell();
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn key(object: &Value) -> String {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
    format!("{}/{}", text("namespace"), text("name"))
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    fn tell(&self) {
        self.changed.send_modify(|count| *count += 1);
    }

    async fn answer(&self, mut socket: TcpStream) -> std::io::Result<()> {
        let Some(target) = read_head(&mut socket).await? else { return Ok(()) };
        let asked = Asked::new(&target);
        let fault = {
            let mut state = self.state();
            state.asked.push(target);
            let resource = state.resources.entry(asked.resource.clone()).or_default();
            let fault = resource.fault;
            if matches!(fault, Fault::WatchStatus(_)) && asked.is_watch() {
                resource.fault = Fault::None;
            }
            fault
        };
        self.tell();
        match fault {
            Fault::Hang => self.hang(&asked).await,
            Fault::Status(status) => refuse(&mut socket, status).await,
            Fault::WatchStatus(status) if asked.is_watch() => refuse(&mut socket, status).await,
            Fault::None | Fault::SilentWatch | Fault::WatchStatus(_) if asked.is_watch() => {
                self.watch(&mut socket, &asked).await
            }
            Fault::None | Fault::SilentWatch | Fault::WatchStatus(_) => {
                let text = self.list(&asked);
                let head = format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n", text.len());
                socket.write_all(head.as_bytes()).await?;
                socket.write_all(text.as_bytes()).await
            }
        }
    }

    /// Until the fault is over, and then nothing either.
    async fn hang(&self, asked: &Asked) -> std::io::Result<()> {
        let mut changed = self.changed.subscribe();
        while self.state().resources[&asked.resource].fault == Fault::Hang {
            if changed.changed().await.is_err() {
                break;
            }
        }
        Ok(())
    }

    fn list(&self, asked: &Asked) -> String {
        let state = self.state();
        let selected: Vec<&Value> =
            state.resources[&asked.resource].objects.values().filter(|it| asked.selects(it)).collect();
        let from = asked.number("continue").unwrap_or(0);
        let limit = asked.number("limit").unwrap_or(usize::MAX);
        let page: Vec<&&Value> = selected.iter().skip(from).take(limit).collect();
        let next = if from + page.len() < selected.len() { (from + page.len()).to_string() } else { String::new() };
        json!({"metadata": {"resourceVersion": state.version.to_string(), "continue": next}, "items": page}).to_string()
    }

    async fn watch(&self, socket: &mut TcpStream, asked: &Asked) -> std::io::Result<()> {
        let mut changed = self.changed.subscribe();
        let cuts = self.state().cuts;
        let mut from = asked.number("resourceVersion").unwrap_or(0) as u64;
        let end = Instant::now() + Duration::from_secs(asked.number("timeoutSeconds").unwrap_or(1) as u64);
        socket.write_all(b"HTTP/1.1 200 OK\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n").await?;
        loop {
            let (lines, silent, cut) = {
                let state = self.state();
                let resource = &state.resources[&asked.resource];
                let new = resource.lines.iter().filter(|(version, line)| *version > from && asked.selects_line(line));
                let lines: Vec<String> = new.map(|(_, line)| line.clone()).collect();
                from = from.max(state.version);
                (lines, resource.fault == Fault::SilentWatch, state.cuts > cuts)
            };
            for line in lines.iter().filter(|_| !silent) {
                // In two pieces, as networks do.
                let text = format!("{line}\n");
                for piece in [&text[..text.len() / 2], &text[text.len() / 2..]] {
                    socket.write_all(format!("{:x}\r\n{piece}\r\n", piece.len()).as_bytes()).await?;
                }
            }
            if cut {
                return socket.write_all(b"0\r\n\r\n").await;
            }
            tokio::select! {
                _ = changed.changed() => {}
                () = sleep_until(end), if !silent => return socket.write_all(b"0\r\n\r\n").await,
            }
        }
    }
}

async fn refuse(socket: &mut TcpStream, status: u16) -> std::io::Result<()> {
    let text = json!({"kind": "Status", "code": status, "message": "as the test says"}).to_string();
    let head = format!("HTTP/1.1 {status} No\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{text}", text.len());
    socket.write_all(head.as_bytes()).await
}

async fn read_head(socket: &mut TcpStream) -> std::io::Result<Option<String>> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        if socket.read(&mut byte).await? == 0 {
            return Ok(None);
        }
        head.push(byte[0]);
    }
    let text = String::from_utf8_lossy(&head).into_owned();
    Ok(text.split(' ').nth(1).map(str::to_owned))
}

/// What a request is about.
struct Asked {
    resource: String,
    namespace: Option<String>,
    query: BTreeMap<String, String>,
}

impl Asked {
    fn new(target: &str) -> Self {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let steps: Vec<&str> = path.split('/').collect();
        let plural = *steps.last().unwrap();
        let group = steps.get(2).filter(|_| steps[1] == "apis" && plural.starts_with("inferenceobjective"));
        let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        Self {
            resource: group.map_or(plural.to_owned(), |group| format!("{group}/{plural}")),
            namespace: steps.iter().position(|step| *step == "namespaces").map(|at| steps[at + 1].to_owned()),
            query: pairs.map(|(key, value)| (key.to_owned(), value.replace("%3D", "=").replace("%2F", "/"))).collect(),
        }
    }

    fn is_watch(&self) -> bool {
        self.query.contains_key("watch")
    }

    fn number(&self, key: &str) -> Option<usize> {
        self.query.get(key).and_then(|value| value.parse().ok())
    }

    fn selects(&self, object: &Value) -> bool {
        let field = self.query.get("fieldSelector").and_then(|selector| selector.split_once('='));
        let label = self.query.get("labelSelector").and_then(|selector| selector.split_once('='));
        self.namespace.as_ref().is_none_or(|namespace| object["metadata"]["namespace"] == **namespace)
            && field.is_none_or(|(_, name)| object["metadata"]["name"] == name)
            && label.is_none_or(|(key, value)| object["metadata"]["labels"][key] == value)
    }

    /// Lines that are no objects go to everybody.
    fn selects_line(&self, line: &str) -> bool {
        let object = serde_json::from_str::<Value>(line).ok().and_then(|line| line.get("object").cloned());
        object.is_none_or(|object| object["metadata"]["name"].is_null() || self.selects(&object))
    }
}
