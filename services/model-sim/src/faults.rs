//! Faults that are switched on and off while the server runs.
//!
//! A list of faults, tried in order: the first that fits a request is applied to it. What concerns the whole server (its
//! metrics page, its listening, its idle connections) stands beside the list.

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

/// What goes wrong, as written to and read from `/sim/faults`. Times are in real milliseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Faults {
    /// Faults of single requests.
    pub requests: Vec<Fault>,
    /// What is wrong with the metrics page.
    pub metrics: MetricsFault,
    /// Answer the metrics page this late.
    pub metrics_delay_ms: u64,
    /// Close idle connections after this instead of the usual time.
    pub close_idle_ms: Option<u64>,
    /// Stop listening and drop every connection that has no request on it.
    pub refuse: bool,
}

/// What goes wrong with a request.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Fault {
    /// Applies to so many requests, then is gone; null = to all.
    pub for_next: Option<u64>,
    /// Applies only to requests whose body contains this text.
    pub r#match: Option<String>,
    /// Applies only to paths that begin so. Without it: to every path but probes, metrics and `/sim`.
    pub path: Option<String>,
    /// Hold the answer's head back.
    pub delay_headers_ms: u64,
    /// Hold the first piece of the body back.
    pub delay_first_ms: u64,
    /// Wait before each further piece.
    pub gap_ms: u64,
    /// Never answer at all.
    pub hang: bool,
    /// Say nothing more after so many pieces of the body.
    pub hang_after_events: Option<u64>,
    /// Reset the connection after so many pieces of the body; 0 = before the head. A body that is no stream is
    /// one piece, of which the first half is sent.
    pub die_after_events: Option<u64>,
    /// Answer with this status instead of serving.
    pub status: Option<u16>,
    /// With `status`: a Retry-After header.
    pub retry_after_s: Option<u64>,
    /// With `status`: this body instead of the server's own error shape.
    pub body: Option<String>,
    /// Answer before the request's body is read (with `status`, else 200 and an empty object). Cannot have `match`.
    pub early_answer: bool,
    /// End a stream, after so many pieces, with an error event and the end marker.
    pub error_event_after: Option<u64>,
}

/// What is wrong with the metrics page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MetricsFault {
    /// Nothing.
    #[default]
    Ok,
    /// The same page for ever.
    Frozen,
    /// A page without the engine's families (`--disable-log-stats`).
    Missing,
    /// No answer.
    Hang,
    /// A page without a byte.
    Empty,
    /// Not an exposition at all.
    Broken,
    /// A page that breaks off in the middle of its announced length.
    Half,
    /// Gauges are NaN.
    Nan,
    /// There is no such path.
    #[serde(rename = "404")]
    NotFound,
    /// The server fails.
    #[serde(rename = "500")]
    Failing,
    /// It is elsewhere.
    Redirect,
}

/// Why faults were not taken.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InvalidFaults {
    #[error("not faults: {0}")]
    Shape(#[from] serde_json::Error),
    #[error("at most {FAULTS_MAX} faults at once")]
    TooMany,
    #[error("a fault with early_answer cannot have match: the body is never read")]
    EarlyMatch,
    #[error("{0} is no HTTP status of an answer (200 to 599)")]
    Status(u16),
}

/// Faults at once.
const FAULTS_MAX: usize = 64;

/// The faults in force.
#[derive(Debug, Default)]
pub(crate) struct Board(Mutex<Faults>);

impl Faults {
    /// Reads a body: all of [`Faults`], or the members of a single [`Fault`] beside the server-wide ones.
    pub(crate) fn parse(body: &[u8]) -> Result<Self, InvalidFaults> {
        let mut members: serde_json::Map<String, serde_json::Value> = serde_json::from_slice(body)?;
        if !members.contains_key("requests") {
            let of_server = ["metrics", "metrics_delay_ms", "close_idle_ms", "refuse"];
            let (server, request): (serde_json::Map<_, _>, serde_json::Map<_, _>) =
                members.into_iter().partition(|(name, _)| of_server.contains(&name.as_str()));
            members = server;
            if !request.is_empty() {
                members.insert("requests".to_owned(), serde_json::Value::Array(vec![request.into()]));
            }
        }
        let faults: Self = serde_json::from_value(members.into())?;
        faults.check()?;
        Ok(faults)
    }

    fn check(&self) -> Result<(), InvalidFaults> {
        if self.requests.len() > FAULTS_MAX {
            return Err(InvalidFaults::TooMany);
        }
        for fault in &self.requests {
            if fault.early_answer && fault.r#match.is_some() {
                return Err(InvalidFaults::EarlyMatch);
            }
            if let Some(status) = fault.status.filter(|s| !(200..600).contains(s)) {
                return Err(InvalidFaults::Status(status));
            }
        }
        Ok(())
    }
}

impl Board {
    pub(crate) fn get(&self) -> Faults {
        self.0.lock().clone()
    }

    /// Replaces all faults.
    pub(crate) fn set(&self, faults: Faults) {
        *self.0.lock() = faults;
    }

    /// The metrics page's fault and delay.
    pub(crate) fn metrics(&self) -> (MetricsFault, u64) {
        let faults = self.0.lock();
        (faults.metrics, faults.metrics_delay_ms)
    }

    pub(crate) fn refuse(&self) -> bool {
        self.0.lock().refuse
    }

    pub(crate) fn close_idle_ms(&self) -> Option<u64> {
        self.0.lock().close_idle_ms
    }

    /// The fault for a request whose body is not read yet: only those that do not ask about it.
    pub(crate) fn for_head(&self, path: &str) -> Option<Fault> {
        self.take(|fault| fault.r#match.is_none() && fault.fits_path(path))
    }

    /// The fault for a request whose body is read and for which [`Self::for_head`] had none.
    pub(crate) fn for_body(&self, path: &str, body: &[u8]) -> Option<Fault> {
        self.take(|fault| {
            let text = fault.r#match.as_ref();
            fault.fits_path(path) && text.is_some_and(|t| memchr::memmem::find(body, t.as_bytes()).is_some())
        })
    }

    fn take(&self, fits: impl Fn(&Fault) -> bool) -> Option<Fault> {
        let mut faults = self.0.lock();
        let index = faults.requests.iter().position(fits)?;
        let fault = &mut faults.requests[index];
        let taken = fault.clone();
        if let Some(left) = &mut fault.for_next {
            *left = left.saturating_sub(1);
            if *left == 0 {
                faults.requests.remove(index);
            }
        }
        Some(taken)
    }
}

impl Fault {
    fn fits_path(&self, path: &str) -> bool {
        match &self.path {
            Some(prefix) => path.starts_with(prefix.as_str()),
            None => !["/metrics", "/health", "/ping", "/version", "/sim"].iter().any(|p| path.starts_with(p)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_fault_may_be_written_flat() {
        let faults = Faults::parse(br#"{"status":503,"retry_after_s":7,"for_next":2,"metrics":"404"}"#).unwrap();
        assert_eq!((faults.metrics, faults.requests.len()), (MetricsFault::NotFound, 1));
        assert_eq!((faults.requests[0].status, faults.requests[0].for_next), (Some(503), Some(2)));
        assert!(Faults::parse(br#"{"refuse":true}"#).unwrap().requests.is_empty());
        for bad in [&br#"{"stauts":503}"#[..], br#"{"status":99}"#, br#"{"early_answer":true,"match":"x"}"#, b"[]"] {
            assert!(Faults::parse(bad).is_err());
        }
    }

    #[test]
    fn faults_fit_by_path_and_body_and_run_out() {
        let board = Board::default();
        let counted = Fault { for_next: Some(2), ..Fault::default() };
        let matching = Fault { r#match: Some("secret".to_owned()), ..Fault::default() };
        board.set(Faults { requests: vec![matching.clone(), counted.clone()], ..Faults::default() });
        assert_eq!(board.for_head("/health"), None);
        assert_eq!(board.for_head("/v1/chat/completions"), Some(counted));
        assert_eq!(board.for_head("/v1/chat/completions").unwrap().for_next, Some(1));
        assert_eq!(board.for_head("/v1/chat/completions"), None);
        assert_eq!(board.for_body("/v1/chat/completions", b"nothing"), None);
        assert_eq!(board.for_body("/v1/chat/completions", b"a secret"), Some(matching));
    }
}
