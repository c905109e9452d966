//! Writes the references that readers find under `docs/` from the code that they describe, or compares them with it.
//!
//! `cargo xtask codegen` runs this. It is an example because only examples and tests may use dev-dependencies: so xtask
//! itself stays free of the product's crates, and the demo does not compile them twice.

use std::path::Path;

use anyhow::Context;

/// A file's name, and what writes it.
type Reference = (&'static str, fn() -> String);

/// File below `docs/` and what it must hold.
const REFERENCES: [Reference; 4] = [
    ("config.md", api::config_reference_markdown),
    ("errors.md", protocol::reason::reasons_markdown),
    ("metrics.md", telemetry::catalog::metrics_markdown),
    ("openapi.yaml", gateway::openapi::yaml),
];

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["write", docs] => write(Path::new(docs)),
        ["check", docs] => check(Path::new(docs)),
        _ => anyhow::bail!("usage: references <write|check> DOCS"),
    }
}

fn write(docs: &Path) -> anyhow::Result<()> {
    for (name, text) in REFERENCES {
        let path = docs.join(name);
        let (wanted, present) = (ended(text()), std::fs::read_to_string(&path).unwrap_or_default());
        if wanted == present {
            println!("  same     docs/{name}");
            continue;
        }
        std::fs::write(&path, wanted).with_context(|| format!("cannot write {}", path.display()))?;
        println!("  written  docs/{name}");
    }
    Ok(())
}

fn check(docs: &Path) -> anyhow::Result<()> {
    let mut differing = Vec::new();
    for (name, text) in REFERENCES {
        let present = std::fs::read_to_string(docs.join(name)).unwrap_or_default();
        match difference(&present, &ended(text())) {
            None => println!("  same     docs/{name}"),
            Some(difference) => {
                println!("  DIFFERS  docs/{name}{difference}");
                differing.push(name);
            }
        }
    }
    anyhow::ensure!(differing.is_empty(), "{} not what the code says: run `cargo xtask codegen`", differing.join(", "));
    Ok(())
}

/// Files end with one line end, whatever their writer thought.
fn ended(text: String) -> String {
    format!("{}\n", text.trim_end())
}

/// The first line that differs, for a person.
fn difference(present: &str, wanted: &str) -> Option<String> {
    if present == wanted {
        return None;
    }
    let (mut present, mut wanted) = (present.lines(), wanted.lines());
    for number in 1.. {
        match (present.next(), wanted.next()) {
            (None, None) => break,
            (is, should) if is == should => {}
            (is, should) => {
                let shown = |line: Option<&str>| line.map_or("(nothing)".to_owned(), |line| format!("`{line}`"));
                return Some(format!(":{number}\n    is     {}\n    should {}", shown(is), shown(should)));
            }
        }
    }
    Some(": only its line ends differ".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_differing_line_is_shown() {
        assert_eq!(difference("a\nb\n", "a\nb\n"), None);
        assert_eq!(difference("a\nb\n", "a\nc\n").unwrap(), ":2\n    is     `b`\n    should `c`");
        assert_eq!(difference("a\n", "a\nc\n").unwrap(), ":2\n    is     (nothing)\n    should `c`");
        assert_eq!(difference("a", "a\n").unwrap(), ": only its line ends differ");
    }

    #[test]
    fn a_changed_reference_fails_the_check_until_it_is_written() {
        let docs = std::env::temp_dir().join(format!("xtask-references-{}", std::process::id()));
        std::fs::create_dir_all(&docs).unwrap();
        assert!(check(&docs).unwrap_err().to_string().contains("errors.md"));
        write(&docs).unwrap();
        check(&docs).unwrap();
        std::fs::write(docs.join("errors.md"), "written by hand\n").unwrap();
        assert!(check(&docs).unwrap_err().to_string().starts_with("errors.md not what the code says"));
        std::fs::remove_dir_all(docs).unwrap();
    }
}
