//! Set-up of `tracing`: everything that is not the line of a request goes the same way in the same style.

use std::io::IsTerminal;

use tracing_subscriber::{EnvFilter, fmt, prelude::*};

use crate::request_log::{RequestLog, Style};

/// The filter when none is given.
pub const DEFAULT_FILTER: &str = "info";

/// Why `tracing` could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// The filter is no list of `target=level` directives.
    #[error("log filter `{filter}`: {source}; write levels such as `info` or `info,discovery=debug`")]
    Filter {
        /// As given.
        filter: String,
        /// What is wrong with it.
        source: tracing_subscriber::filter::ParseError,
    },
    /// It was set up before.
    #[error("a log was set up before in this process")]
    Twice(#[from] tracing_subscriber::util::TryInitError),
}

/// Sends events to the log's writer, filtered.
///
/// # Errors
/// When the filter cannot be read, or a subscriber is in place already.
pub fn install(style: Style, filter: &str, log: RequestLog) -> Result<(), SetupError> {
    let filter =
        EnvFilter::try_new(filter).map_err(|source| SetupError::Filter { filter: filter.to_owned(), source })?;
    let writer = move || log.events();
    let registry = tracing_subscriber::registry().with(filter);
    match style {
        Style::Json => registry
            .with(fmt::layer().json().flatten_event(true).with_current_span(false).with_writer(writer))
            .try_init()?,
        Style::Text => {
            // Colours are for people; a file that is read later has no use for them.
            let colours = std::io::stderr().is_terminal();
            registry.with(fmt::layer().with_ansi(colours).with_writer(writer)).try_init()?;
        }
    }
    Ok(())
}
