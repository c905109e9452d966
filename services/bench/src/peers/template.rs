//! Placeholders: `${name}` in a peer's arguments and files.
//!
//! A name that nobody gave is an error, never an empty text: a peer that starts with half its settings would be measured.

use std::net::SocketAddr;
use std::path::PathBuf;

/// Why a text cannot be completed.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    #[error("nothing is called `${{{0}}}`")]
    Unknown(String),
    #[error("`${{` without its `}}` in `{0}`")]
    Unclosed(String),
}

/// What placeholders stand for.
#[derive(Clone, Debug)]
pub struct Values {
    pub program: PathBuf,
    pub folder: PathBuf,
    pub cores: usize,
    pub port: u16,
    pub metrics_port: u16,
    pub admin_port: u16,
    pub policy: String,
    pub backends: Vec<SocketAddr>,
    /// PEM files of a certificate and its key, when it is to speak TLS.
    pub certificate: Option<(PathBuf, PathBuf)>,
}

impl Values {
    /// Every placeholder has a value; what values does not matter.
    pub(super) fn for_checking() -> Self {
        Self {
            program: PathBuf::from("program"),
            folder: PathBuf::from("folder"),
            cores: 1,
            port: 1,
            metrics_port: 2,
            admin_port: 3,
            policy: "policy".to_owned(),
            backends: vec![SocketAddr::from(([127, 0, 0, 1], 4))],
            certificate: Some((PathBuf::from("certificate"), PathBuf::from("key"))),
        }
    }

    /// Completed arguments; `${backends}` alone becomes one for each backend.
    pub(super) fn arguments(&self, templates: &[String], backend: &str) -> Result<Vec<String>, TemplateError> {
        let mut arguments = Vec::new();
        for template in templates {
            if template == "${backends}" {
                arguments.extend(self.backends(backend)?);
            } else {
                arguments.push(complete(template, |name| self.value(name))?);
            }
        }
        Ok(arguments)
    }

    /// A completed file.
    pub(super) fn file(&self, template: &str, backend: &str, tls: &str) -> Result<String, TemplateError> {
        let backends = self.backends(backend)?.concat();
        let tls = match self.certificate {
            Some(_) => complete(tls, |name| self.value(name))?,
            None => String::new(),
        };
        complete(template, |name| match name {
            "backends" => Some(backends.clone()),
            "tls" => Some(tls.clone()),
            name => self.value(name),
        })
    }

    fn backends(&self, template: &str) -> Result<Vec<String>, TemplateError> {
        let one = |backend: &SocketAddr| {
            complete(template, |name| match name {
                "backend_host" => Some(backend.ip().to_string()),
                "backend_port" => Some(backend.port().to_string()),
                name => self.value(name),
            })
        };
        self.backends.iter().map(one).collect()
    }

    fn value(&self, name: &str) -> Option<String> {
        let path = |path: &PathBuf| path.display().to_string();
        match name {
            "program" => Some(path(&self.program)),
            "folder" => Some(path(&self.folder)),
            "cores" => Some(self.cores.to_string()),
            "port" => Some(self.port.to_string()),
            "metrics_port" => Some(self.metrics_port.to_string()),
            "admin_port" => Some(self.admin_port.to_string()),
            "policy" => Some(self.policy.clone()),
            "certificate" => self.certificate.as_ref().map(|(certificate, _)| path(certificate)),
            "key" => self.certificate.as_ref().map(|(_, key)| path(key)),
            _ => None,
        }
    }
}

fn complete(template: &str, value: impl Fn(&str) -> Option<String>) -> Result<String, TemplateError> {
    let mut text = String::with_capacity(template.len());
    let mut rest = template;
    while let Some((before, after)) = rest.split_once("${") {
        let (name, behind) = after.split_once('}').ok_or_else(|| TemplateError::Unclosed(template.to_owned()))?;
        text += before;
        text += &value(name).ok_or_else(|| TemplateError::Unknown(name.to_owned()))?;
        rest = behind;
    }
    Ok(text + rest)
}
