//! What a configuration names that must be there on this machine: certificates, keys, names fit for headers.
//!
//! Looked at before anything is put in force, and by `--check`, so that all that is missing is told at once and a
//! configuration that passes the check also starts.

use std::fmt;

use api::Config;
use http::HeaderValue;
use proxy::serve::tls::Certificate;

use super::{
    build::Unusable,
    certificates,
    endpoints::{tls_client, tls_to},
    keys::Keys,
};

/// Everything that cannot be used, one per line.
#[derive(Debug)]
pub struct Missing(pub(super) Vec<Unusable>);

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, unusable) in self.0.iter().enumerate() {
            let separator = if index > 0 { "\n" } else { "" };
            write!(f, "{separator}{unusable}")?;
        }
        Ok(())
    }
}

/// Who says what clients are shown.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Listeners {
    /// The configuration.
    Ours,
    /// A Gateway, whose certificates come and go by themselves.
    Gateways,
}

/// Tries everything that the configuration names.
///
/// # Errors
/// All that cannot be used.
pub(super) fn all_usable(config: &Config, listeners: Listeners) -> Result<(), Missing> {
    let mut missing = Vec::new();
    for scheduler in &config.schedulers {
        let names = std::iter::once(&scheduler.model_name).chain(&scheduler.lora_adapters);
        let unfit = names.filter(|name| HeaderValue::from_str(name).is_err());
        missing.extend(unfit.map(|name| Unusable::ModelName(name.to_string())));
    }
    for spec in &config.endpoints {
        if let Some(tls) = &spec.tls {
            missing.extend(tls_client(spec, &tls_to(tls)).err());
        }
        if let Some(source) = &spec.api_key {
            missing
                .extend(Keys::read(source).err().map(|problem| Unusable::Key { endpoint: spec.name.clone(), problem }));
        }
    }
    if listeners == Listeners::Ours
        && let Some((secret, pair)) = certificates::of(config)
    {
        let problem = Certificate::from_pem(pair.certificate, pair.key).err();
        missing.extend(
            problem.map(|problem| Unusable::Certificate { secret: secret.to_owned(), problem: problem.into() }),
        );
    }
    if missing.is_empty() { Ok(()) } else { Err(Missing(missing)) }
}
