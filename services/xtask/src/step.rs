//! Running other programs so that a reader sees what was run and, if it failed, what to do.

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::Context;

/// Runs a command with its output shown. Fails when it cannot be started or does not exit with 0.
pub(crate) fn run(command: &mut Command) -> anyhow::Result<()> {
    println!("$ {}", shown(command));
    let status = command.status().with_context(|| format!("cannot start `{}`", shown(command)))?;
    anyhow::ensure!(status.success(), "`{}` ended with {status}", shown(command));
    Ok(())
}

/// The command as a person would type it, without the folder it runs in.
pub(crate) fn shown(command: &Command) -> String {
    let program = std::path::Path::new(command.get_program());
    let name = program.file_name().unwrap_or(program.as_os_str()).to_string_lossy().into_owned();
    let words = command.get_args().map(|argument| argument.to_string_lossy().into_owned());
    std::iter::once(name).chain(words).collect::<Vec<_>>().join(" ")
}

/// `48.1 s`, or `3 min 12 s` when it took longer.
pub(crate) fn lasted(since: Instant) -> String {
    written(since.elapsed())
}

fn written(duration: Duration) -> String {
    let seconds = duration.as_secs();
    if seconds < 100 {
        format!("{:.1} s", duration.as_secs_f64())
    } else {
        format!("{} min {} s", seconds / 60, seconds % 60)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_shown_as_typed() {
        let mut command = Command::new("/somewhere/bin/cargo");
        command.args(["fmt", "--all"]);
        assert_eq!(shown(&command), "cargo fmt --all");
    }

    #[test]
    fn a_failing_command_is_named() {
        let error = run(Command::new("false").arg("--because")).unwrap_err();
        assert!(error.to_string().contains("`false --because` ended with"), "{error}");
        let error = run(&mut Command::new("no-such-program-here")).unwrap_err();
        assert!(error.to_string().contains("cannot start `no-such-program-here`"), "{error}");
    }

    #[test]
    fn times_are_short() {
        assert_eq!(written(Duration::from_millis(48_100)), "48.1 s");
        assert_eq!(written(Duration::from_secs(192)), "3 min 12 s");
    }
}
