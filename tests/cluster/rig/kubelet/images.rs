//! Which command stands for which image, so that anyone's manifests can run here: a table in YAML.

use std::{collections::BTreeMap, env, fs, path::PathBuf};

use anyhow::Context;
use k8s_openapi::api::core::v1::Container;
use serde::Deserialize;

/// What the rig knows by itself.
const BUILT_IN: &str = include_str!("../images.yaml");
/// Port of a container that names none.
const PORT_DEFAULT: u16 = 8000;

/// The table.
#[derive(Debug)]
pub(crate) struct Images {
    entries: Vec<Entry>,
    programs: PathBuf,
    rig: PathBuf,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    image: Vec<String>,
    run: Vec<String>,
    #[serde(default)]
    without: Vec<String>,
}

impl Images {
    /// Reads further files, then what is built in.
    ///
    /// # Errors
    /// When a file cannot be read or is no such table.
    pub(crate) fn load(files: &[PathBuf]) -> anyhow::Result<Self> {
        let mut entries = Vec::new();
        for file in files {
            let text = fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
            let read: Vec<Entry> = yaml_serde::from_str(&text).with_context(|| format!("in {}", file.display()))?;
            entries.extend(read);
        }
        entries.extend(yaml_serde::from_str::<Vec<Entry>>(BUILT_IN).context("in the built-in table")?);
        let rig = env::current_exe()?;
        let programs = rig.parent().context("a program is in a folder")?.to_owned();
        Ok(Self { entries, programs, rig })
    }

    /// The words of the command for a container. `command` and `args` are the container's, with variables filled in.
    ///
    /// # Errors
    /// When no entry knows the image, or a placeholder cannot be filled; the text is for the pod's status.
    pub(crate) fn command(
        &self,
        container: &Container,
        command: &[String],
        args: &[String],
        ip: &str,
        variables: &BTreeMap<String, String>,
    ) -> Result<Vec<String>, String> {
        let image = bare(container.image.as_deref().unwrap_or_default());
        let known = |entry: &&Entry| entry.image.iter().any(|pattern| matches(pattern, image));
        let entry = self.entries.iter().find(known).ok_or_else(|| format!("no command stands for image {image}"))?;
        let mut words = Vec::new();
        for word in &entry.run {
            match word.as_str() {
                "{args}" => {
                    let own: Vec<String> = command.iter().skip(1).chain(args).cloned().collect();
                    words.extend(stripped(&own, &entry.without));
                }
                "{command}" if command.is_empty() && args.is_empty() => {
                    words.extend(["sleep", "infinity"].map(str::to_owned));
                }
                "{command}" => words.extend(command.iter().chain(args).cloned()),
                word => words.push(self.filled(word, container, ip, variables)?),
            }
        }
        Ok(words)
    }

    fn filled(
        &self,
        word: &str,
        container: &Container,
        ip: &str,
        variables: &BTreeMap<String, String>,
    ) -> Result<String, String> {
        let mut text = String::new();
        let mut rest = word;
        while let Some((before, after)) = rest.split_once('{') {
            let (name, after) = after.split_once('}').ok_or_else(|| format!("{word}: a brace is open"))?;
            text.push_str(before);
            match name.split_once(':').unwrap_or((name, "")) {
                ("ip", "") => text.push_str(ip),
                ("programs", "") => text.push_str(&self.programs.to_string_lossy()),
                ("rig", "") => text.push_str(&self.rig.to_string_lossy()),
                ("port", which) => text.push_str(&port(container, which)?.to_string()),
                ("env", name) => text.push_str(variables.get(name).map(String::as_str).unwrap_or_default()),
                _ => return Err(format!("{word}: {{{name}}} stands for nothing")),
            }
            rest = after;
        }
        text.push_str(rest);
        Ok(text)
    }
}

/// Of a container: its first port, a named one, or a named one with a default.
fn port(container: &Container, which: &str) -> Result<u16, String> {
    let (name, default) = which.split_once(':').unwrap_or((which, ""));
    let mut ports = container.ports.iter().flatten();
    let found = match name {
        "" => ports.next(),
        name => ports.clone().find(|port| port.name.as_deref() == Some(name)).or_else(|| ports.next()),
    };
    if let Some(port) = found {
        return u16::try_from(port.container_port).map_err(|_| format!("{} is no port", port.container_port));
    }
    if default.is_empty() {
        return Ok(PORT_DEFAULT);
    }
    default.parse().map_err(|_| format!("{default} is no port"))
}

/// An image without its tag and digest.
fn bare(image: &str) -> &str {
    let image = image.split('@').next().unwrap_or(image);
    let last = image.rfind('/').map_or(0, |slash| slash + 1);
    match image[last..].find(':') {
        Some(colon) => &image[..last + colon],
        None => image,
    }
}

/// Whether `text` is like `pattern`, in which `*` stands for any characters.
fn matches(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((before, after)) => {
            let Some(rest) = text.strip_prefix(before) else { return false };
            (0..=rest.len()).filter(|&at| rest.is_char_boundary(at)).any(|at| matches(after, &rest[at..]))
        }
    }
}

/// `words` without the options named, each with its value.
fn stripped(words: &[String], options: &[String]) -> Vec<String> {
    let mut kept = Vec::new();
    let mut words = words.iter().peekable();
    while let Some(word) = words.next() {
        let (name, value) = word.split_once('=').map_or((word.as_str(), None), |(name, value)| (name, Some(value)));
        if !options.iter().any(|option| option == name) {
            kept.push(word.clone());
        } else if value.is_none() && words.peek().is_some_and(|next| !next.starts_with("--")) {
            words.next();
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ContainerPort;

    use super::*;

    fn container(image: &str, ports: &[(&str, i32)]) -> Container {
        let port = |&(name, number): &(&str, i32)| ContainerPort {
            name: Some(name.to_owned()).filter(|name| !name.is_empty()),
            container_port: number,
            ..ContainerPort::default()
        };
        Container { image: Some(image.into()), ports: Some(ports.iter().map(port).collect()), ..Container::default() }
    }

    fn words(words: &[&str]) -> Vec<String> {
        words.iter().map(|&word| word.to_owned()).collect()
    }

    #[test]
    fn tags_digests_and_registries_are_no_part_of_the_name() {
        assert_eq!(bare("localhost:5000/a/model-sim:1.2@sha256:00"), "localhost:5000/a/model-sim");
        assert_eq!(bare("model-sim:latest"), "model-sim");
        assert!(matches("*/model-sim", "registry.example/a/model-sim"));
        assert!(!matches("*/model-sim", "registry.example/a/model-simulator"));
    }

    #[test]
    fn a_model_server_listens_on_the_address_of_its_pod() {
        let images = Images::load(&[]).unwrap();
        let container = container("example.com/model-sim:1", &[("metrics", 9000), ("http", 8080)]);
        let args = words(&["--port", "8080", "--dtype=auto", "--model", "m"]);
        let command = images.command(&container, &words(&["vllm"]), &args, "10.250.1.2", &BTreeMap::new()).unwrap();
        assert!(command[0].ends_with("/model-sim"), "{command:?}");
        assert_eq!(command[1..], words(&["--listen", "10.250.1.2:8080", "--model", "m"]));
    }

    #[test]
    fn commands_of_plain_images_run_as_they_are_and_pause_sleeps() {
        let images = Images::load(&[]).unwrap();
        let none = BTreeMap::new();
        let command = words(&["sh", "-c", "exit 3"]);
        assert_eq!(images.command(&container("busybox", &[]), &command, &[], "", &none).unwrap(), command);
        let sleeps = images.command(&container("registry.k8s.io/pause:3.10", &[]), &[], &[], "", &none).unwrap();
        assert_eq!(sleeps, words(&["sleep", "infinity"]));
        let error = images.command(&container("nginx", &[]), &[], &[], "", &none).unwrap_err();
        assert_eq!(error, "no command stands for image nginx");
    }

    #[test]
    fn ports_are_found_by_name_then_first_then_default() {
        let named = container("x", &[("a", 1), ("b", 2)]);
        assert_eq!(["", "b", "c", "c:7"].map(|which| port(&named, which).unwrap()), [1, 2, 1, 1]);
        let bare = container("x", &[]);
        assert_eq!(["", "c:7"].map(|which| port(&bare, which).unwrap()), [PORT_DEFAULT, 7]);
    }
}
