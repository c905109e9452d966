//! What an operator types, and waiting for what comes of it.

use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;
use serde_json::Value;

/// Between two looks at the cluster.
const POLL: Duration = Duration::from_millis(50);

/// Runs `kubectl` with `input` on its standard input; fails with what it said.
pub(crate) fn kubectl(words: &[&str], input: &str) -> anyhow::Result<String> {
    let mut command = Command::new("kubectl");
    command.args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().context("cannot start kubectl")?;
    // A kubectl that reads nothing closes the pipe, which is no failure.
    let _ = child.stdin.take().context("a pipe was asked for")?.write_all(input.as_bytes());
    let output = child.wait_with_output()?;
    let errors = String::from_utf8_lossy(&output.stderr);
    anyhow::ensure!(output.status.success(), "kubectl {} failed: {errors}", words.join(" "));
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// [`kubectl`] with its answer as JSON.
pub(crate) fn kubectl_json(words: &[&str]) -> anyhow::Result<Value> {
    let text = kubectl(&[words, &["--output", "json"]].concat(), "")?;
    serde_json::from_str(&text).context("kubectl wrote no JSON")
}

/// Looks until there is a value, or `limit` is over.
pub(crate) fn wait_until<T>(
    what: &str,
    limit: Duration,
    mut look: impl FnMut() -> anyhow::Result<Option<T>>,
) -> anyhow::Result<T> {
    let started = Instant::now();
    loop {
        if let Some(value) = look()? {
            return Ok(value);
        }
        anyhow::ensure!(started.elapsed() < limit, "not within {limit:?}: {what}");
        std::thread::sleep(POLL);
    }
}
