//! The log's writer: one line per request, and events of the process, written by a thread of its own.
//!
//! The request path hands over a [`Line`] of numbers and shared names under a short lock and goes on: it formats
//! nothing and never waits for whoever reads the log. The thread wakes a few times a second, or at once when the
//! buffer is half full, and writes what it finds in one go. When the reader is too slow, lines are dropped and counted.
//!
//! Events take the same way: written where they happen, one full pipe would stop whoever has something to say, up to the
//! thread that accepts connections and takes SIGTERM.

use std::{
    io::Write,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{self, Receiver, RecvTimeoutError},
    },
    thread::Thread,
    time::{Duration, SystemTime},
};

use metrics::Counter;
use parking_lot::Mutex;
use serde::Serialize;

/// Lines held for the writer; beyond that they are dropped and counted.
pub const LINES_MAX: usize = 8192;
/// Bytes of events held for the writer; an event beyond that is dropped and counted.
pub const EVENT_BYTES_MAX: usize = 256 * 1024;
/// Longest time a line stays in memory while the process runs.
const FLUSH_EVERY: Duration = Duration::from_millis(50);
/// How long the end of the process waits for its last lines to be taken: a reader that stopped must not keep it alive.
const FAREWELL_MAX: Duration = Duration::from_secs(3);

/// How lines are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// One JSON object per line.
    Json,
    /// `key=value` for people.
    Text,
}

/// The level of every line.
pub const LEVEL: &str = "INFO";

/// What is said of one request. Absent values are `null`, never guessed.
#[derive(Clone, Debug, Serialize)]
pub struct Line {
    /// When it ended.
    #[serde(rename = "timestamp", serialize_with = "as_rfc3339")]
    pub ended: SystemTime,
    /// Always `INFO`, as `tracing` writes it in the other lines.
    pub level: &'static str,
    /// Always `request`.
    pub message: &'static str,
    /// The id sent to the endpoint and back to the client.
    #[serde(rename = "x-request-id")]
    pub request_id: Box<str>,
    /// The model as asked for; absent when the request named none.
    #[serde(rename = "modelName")]
    pub model: Option<Arc<str>>,
    /// The pool it went to.
    pub pool: Option<Arc<str>>,
    /// The endpoint that answered, or was tried last.
    pub endpoint: Option<Arc<str>>,
    /// Which API of docs/openapi.yaml.
    pub api: &'static str,
    /// Priority band.
    pub band: &'static str,
    /// Status sent to the client; 499 when it had gone.
    pub status: u16,
    /// The one outcome, as in the metric.
    pub outcome: &'static str,
    /// Detail of a failure, for the operator.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<Box<str>>,
    /// Whether the answer was an event stream.
    pub stream: bool,
    /// Tries on endpoints.
    pub tries: u32,
    /// Prompt tokens, cached ones included, as the engine says.
    pub prompt_tokens: Option<u64>,
    /// Of these, found in the engine's prefix cache.
    pub cached_tokens: Option<u64>,
    /// Generated tokens, as the engine says.
    pub completion_tokens: Option<u64>,
    /// Time from the end of the request's body to its dispatch, or to its end if it waited in vain, in milliseconds.
    pub queue_ms: f64,
    /// From the request's head to the first content event; absent if there was none.
    pub ttft_ms: Option<f64>,
    /// From the request's head to the end of the answer.
    pub duration_ms: f64,
    /// Body bytes taken from the client.
    pub bytes_in: u64,
    /// Body bytes given to the client.
    pub bytes_out: u64,
}

/// The handle the request path holds.
#[derive(Clone)]
pub struct RequestLog {
    shared: Arc<Shared>,
    writer: Thread,
}

struct Shared {
    waiting: Mutex<Waiting>,
    stopping: AtomicBool,
    dropped: Counter,
}

/// What the writer has not taken yet.
#[derive(Default)]
struct Waiting {
    lines: Vec<Line>,
    events: Vec<u8>,
}

/// Takes events as they were formatted, one in each write.
pub struct EventWriter(RequestLog);

/// The writing thread. Dropping it waits until what is left is written, or its reader has not taken it for three seconds.
pub struct Writer {
    log: RequestLog,
    ended: Receiver<()>,
}

/// Starts the writing thread. `dropped` counts the lines that found no room.
///
/// # Errors
/// When the thread cannot be started.
pub fn start(
    style: Style,
    out: impl Write + Send + 'static,
    dropped: Counter,
) -> std::io::Result<(RequestLog, Writer)> {
    let waiting = Waiting { lines: Vec::with_capacity(256), events: Vec::new() };
    let shared = Arc::new(Shared { waiting: Mutex::new(waiting), stopping: AtomicBool::new(false), dropped });
    let (ends, ended) = mpsc::channel();
    let thread = std::thread::Builder::new().name("request-log".into()).spawn({
        let shared = Arc::clone(&shared);
        move || {
            // Dropped at the end, also by a panic: that is the signal.
            let _ends: mpsc::Sender<()> = ends;
            write_until_stopped(&shared, style, out);
        }
    })?;
    let log = RequestLog { shared, writer: thread.thread().clone() };
    Ok((log.clone(), Writer { log, ended }))
}

impl RequestLog {
    /// Hands a line over. Never blocks for the writer.
    pub fn write(&self, line: Line) {
        let mut waiting = self.shared.waiting.lock();
        let held = waiting.lines.len();
        if held < LINES_MAX {
            waiting.lines.push(line);
        }
        drop(waiting);
        if held >= LINES_MAX {
            self.shared.dropped.increment(1);
        } else if held == LINES_MAX / 2 {
            self.writer.unpark();
        }
    }

    /// Where events of the process are written. Never blocks for the writer either.
    pub fn events(&self) -> EventWriter {
        EventWriter(self.clone())
    }
}

impl Write for EventWriter {
    fn write(&mut self, event: &[u8]) -> std::io::Result<usize> {
        let RequestLog { shared, writer } = &self.0;
        let mut waiting = shared.waiting.lock();
        let fits = waiting.events.len() + event.len() <= EVENT_BYTES_MAX;
        if fits {
            waiting.events.extend_from_slice(event);
        }
        drop(waiting);
        if fits {
            writer.unpark();
        } else {
            shared.dropped.increment(1);
        }
        Ok(event.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.log.shared.stopping.store(true, Ordering::Release);
        self.log.writer.unpark();
        match self.ended.recv_timeout(FAREWELL_MAX) {
            // It has ended. (A panic of its own has been reported by the panic hook; nothing is left to flush then.)
            Ok(()) | Err(RecvTimeoutError::Disconnected) => {}
            // It waits for a reader that does not read, and ends with the process.
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
}

fn write_until_stopped(shared: &Shared, style: Style, mut out: impl Write) {
    let mut taken = Waiting::default();
    let mut text = Vec::with_capacity(64 * 1024);
    loop {
        let stopping = shared.stopping.load(Ordering::Acquire);
        std::mem::swap(&mut *shared.waiting.lock(), &mut taken);
        text.append(&mut taken.events);
        for line in taken.lines.drain(..) {
            format_line(&mut text, style, &line);
        }
        if !text.is_empty() {
            // Nobody is left to be told when standard error is closed.
            let _ = out.write_all(&text).and_then(|()| out.flush());
            text.clear();
        }
        if stopping {
            return;
        }
        std::thread::park_timeout(FLUSH_EVERY);
    }
}

fn format_line(text: &mut Vec<u8>, style: Style, line: &Line) {
    match style {
        Style::Json => {
            serde_json::to_writer(&mut *text, line)
                .expect("a line holds only strings and numbers, and memory takes it");
            text.push(b'\n');
        }
        Style::Text => {
            let named = |name: &Option<Arc<str>>| name.as_deref().map_or_else(|| "-".to_owned(), in_one_word);
            let _ = writeln!(
                text,
                "{:.6} {} {} model={} pool={} endpoint={} band={} outcome={} tokens={}+{} queue_ms={:.1} ttft_ms={} \
                 duration_ms={:.1} id={}{}",
                jiff::Timestamp::try_from(line.ended).unwrap_or_default(),
                line.status,
                line.api,
                named(&line.model),
                named(&line.pool),
                named(&line.endpoint),
                line.band,
                line.outcome,
                line.prompt_tokens.map_or("?".into(), |n| n.to_string()),
                line.completion_tokens.map_or("?".into(), |n| n.to_string()),
                line.queue_ms,
                line.ttft_ms.map_or("-".into(), |ms| format!("{ms:.1}")),
                line.duration_ms,
                in_one_word(&line.request_id),
                line.detail.as_ref().map(|d| format!(" detail={d:?}")).unwrap_or_default(),
            );
        }
    }
}

/// A client's words as they are, unless they could be taken for more than a value, or steer a terminal: then quoted.
fn in_one_word(name: &str) -> String {
    let plain = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'"');
    if plain { name.to_owned() } else { format!("{name:?}") }
}

fn as_rfc3339<S: serde::Serializer>(time: &SystemTime, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("{:.6}", jiff::Timestamp::try_from(*time).unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::{Format, Metrics, catalog::LOG_LINES_DROPPED};

    #[derive(Clone, Default)]
    struct Sink(Arc<Mutex<Vec<u8>>>);

    impl Write for Sink {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    /// Blocks in its first write until told to go on.
    struct Stuck(mpsc::Receiver<()>);

    impl Write for Stuck {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            let _ = self.0.recv();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    fn line(id: &str) -> Line {
        Line {
            ended: SystemTime::UNIX_EPOCH,
            level: LEVEL,
            message: "request",
            request_id: id.into(),
            model: Some("llama".into()),
            pool: None,
            endpoint: None,
            api: "chat_completions",
            band: "standard",
            status: 200,
            outcome: "ok",
            detail: None,
            stream: false,
            tries: 1,
            prompt_tokens: Some(9),
            cached_tokens: None,
            completion_tokens: Some(2),
            queue_ms: 0.0,
            ttft_ms: None,
            duration_ms: 12.5,
            bytes_in: 58,
            bytes_out: 300,
        }
    }

    #[test]
    fn every_line_is_written_before_the_writer_ends() {
        let (sink, metrics) = (Sink::default(), Metrics::default());
        let (log, writer) = start(Style::Json, sink.clone(), metrics.counter(&LOG_LINES_DROPPED, &[])).unwrap();
        for n in 0..1000 {
            log.write(line(&format!("a\"{n}")));
        }
        drop(writer);
        let text = String::from_utf8(sink.0.lock().clone()).unwrap();
        let lines: Vec<serde_json::Value> = text.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
        assert_eq!(lines.len(), 1000);
        assert_eq!(lines[7]["x-request-id"], "a\"7");
        assert_eq!(lines[7]["modelName"], "llama");
        assert_eq!(lines[7]["endpoint"], serde_json::Value::Null);
        assert_eq!(lines[7]["timestamp"], "1970-01-01T00:00:00.000000Z");
    }

    #[test]
    fn a_stuck_reader_costs_lines_that_are_counted_and_no_memory() {
        let (go_on, stuck) = mpsc::channel();
        let metrics = Metrics::default();
        let (log, writer) = start(Style::Text, Stuck(stuck), metrics.counter(&LOG_LINES_DROPPED, &[])).unwrap();
        // One batch may be in the writer's hands already, hence more than twice the bound.
        for n in 0..(2 * LINES_MAX + 10) {
            log.write(line(&n.to_string()));
        }
        let page = metrics.render(Format::Text);
        assert!(!page.contains("inference_gateway_log_lines_dropped_total 0\n"), "{page}");
        assert!(log.shared.waiting.lock().lines.len() <= LINES_MAX);
        drop(go_on);
        drop(writer);
    }

    #[test]
    fn a_stuck_reader_stops_neither_events_nor_the_end() {
        let (_never, stuck) = mpsc::channel();
        let metrics = Metrics::default();
        let (log, writer) = start(Style::Text, Stuck(stuck), metrics.counter(&LOG_LINES_DROPPED, &[])).unwrap();
        for _ in 0..3 * EVENT_BYTES_MAX / 1024 {
            log.events().write_all(&[b'e'; 1024]).unwrap();
        }
        assert!(log.shared.waiting.lock().events.len() <= EVENT_BYTES_MAX);
        assert!(!metrics.render(Format::Text).contains("inference_gateway_log_lines_dropped_total 0\n"));
        drop(writer);
    }

    #[test]
    fn an_event_is_written_without_a_line_after_it() {
        let (sink, metrics) = (Sink::default(), Metrics::default());
        let (log, writer) = start(Style::Json, sink.clone(), metrics.counter(&LOG_LINES_DROPPED, &[])).unwrap();
        log.events().write_all(b"first\n").unwrap();
        log.events().write_all(b"second\n").unwrap();
        drop(writer);
        assert_eq!(*sink.0.lock(), b"first\nsecond\n");
    }

    #[test]
    fn people_see_who_waited_and_how_long() {
        let mut text = Vec::new();
        let ended = std::time::UNIX_EPOCH + Duration::from_nanos(1_500_000_000_120_000_007);
        format_line(&mut text, Style::Text, &Line { ended, band: "critical", queue_ms: 8_837.09, ..line("a") });
        let text = String::from_utf8(text).unwrap();
        assert!(text.starts_with("2017-07-14T02:40:00.120000Z 200 "), "{text}");
        assert!(text.contains(" band=critical ") && text.contains(" queue_ms=8837.1 "), "{text}");
    }

    #[test]
    fn a_clients_words_forge_no_line_and_steer_no_terminal() {
        let mut text = Vec::new();
        let forged = Line { model: Some("a\n2026 200 ok id=b\u{1b}[2J\u{202e}".into()), ..line("a b outcome=ok") };
        format_line(&mut text, Style::Text, &forged);
        let text = String::from_utf8(text).unwrap();
        assert_eq!(text.lines().count(), 1, "{text}");
        assert!(text.contains(r#" model="a\n2026 200 ok id=b\u{1b}[2J\u{202e}" "#), "{text}");
        assert!(text.ends_with(" id=\"a b outcome=ok\"\n"), "{text}");
        assert!(text.contains(" pool=- "), "{text}");
    }
}
