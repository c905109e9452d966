//! `cargo xtask test`: every test of the workspace, with the count at the end.
//!
//! The programs are built first, because integration tests run them as processes and look for them beside themselves;
//! `cargo test` alone does not build the programs of other packages. SDKs and other tools are installed under
//! `target/tools` by the tests that need them, never here.

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::Instant;

use anyhow::Context;

use crate::step;
use crate::workspace::Workspace;

/// Builds the programs and runs all tests; `arguments` go to the test binaries.
pub(crate) fn run(workspace: &Workspace, arguments: &[&str]) -> anyhow::Result<()> {
    let started = Instant::now();
    println!("Building the programs that the tests start");
    // The whole workspace, so that dependencies get the same features as in the next step and are built once.
    step::run(&mut workspace.cargo(&["build", "--workspace", "--bins", "--locked"]))?;
    println!("Running every test of the workspace: units, integration, SDKs");
    let (results, passed) = run_tests(workspace, arguments)?;
    let total = Total::of(&results);
    println!("\nClosing lines of the {} test binaries:", results.len());
    results.iter().for_each(|line| println!("  {line}"));
    println!("{total}, in {}", step::lasted(started));
    anyhow::ensure!(passed, "{} test(s) failed: run one alone with `cargo test -p CRATE NAME`", total.failed);
    anyhow::ensure!(total.passed > 0, "no test ran: was a filter given that matches none?");
    Ok(())
}

/// Echoes the tests' output and keeps libtest's closing lines.
fn run_tests(workspace: &Workspace, arguments: &[&str]) -> anyhow::Result<(Vec<String>, bool)> {
    let mut command = workspace.cargo(&["test", "--workspace", "--locked", "--no-fail-fast"]);
    if !arguments.is_empty() {
        command.arg("--").args(arguments);
    }
    command.stdout(Stdio::piped());
    println!("$ {}", step::shown(&command));
    let mut child = command.spawn().context("cannot start cargo")?;
    let output = child.stdout.take().expect("stdout was asked for as a pipe");
    let mut results = Vec::new();
    for line in BufReader::new(output).lines() {
        let line = line.context("reading the tests' output")?;
        println!("{line}");
        if line.starts_with("test result:") {
            results.push(line);
        }
    }
    Ok((results, child.wait()?.success()))
}

/// Sums over libtest's closing lines.
#[derive(Debug, PartialEq, Eq)]
struct Total {
    passed: u64,
    failed: u64,
    ignored: u64,
}

impl Total {
    fn of(results: &[String]) -> Self {
        let sum = |word| results.iter().map(|line| number_before(line, word)).sum();
        Self { passed: sum(" passed"), failed: sum(" failed"), ignored: sum(" ignored") }
    }
}

impl std::fmt::Display for Total {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} passed, {} failed, {} ignored", self.passed, self.failed, self.ignored)
    }
}

/// The number that stands before `word` in libtest's closing line; 0 if there is none.
fn number_before(line: &str, word: &str) -> u64 {
    let Some((before, _)) = line.split_once(word) else { return 0 };
    let digits = before.rsplit(|c: char| !c.is_ascii_digit()).next().unwrap_or_default();
    digits.parse().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closing_lines_are_summed() {
        let lines = [
            "test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.01s".to_owned(),
            "test result: FAILED. 3 passed; 2 failed; 0 ignored; 0 measured; 7 filtered out; finished in 1.00s"
                .to_owned(),
        ];
        assert_eq!(Total::of(&lines), Total { passed: 15, failed: 2, ignored: 1 });
    }
}
