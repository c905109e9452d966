//! Keys that endpoints want: read from the environment or from files, and read again while the process runs, so that a
//! rotated key needs no restart.

use std::{collections::HashMap, fs::File, io::Read, path::PathBuf, sync::Arc};

use api::ApiKeySource;
use arc_swap::ArcSwapOption;
use http::HeaderValue;

use super::endpoints::Owner;

/// Longest key that is read, in bytes.
const KEY_BYTES_MAX: u64 = 16 * 1024;

/// The `Authorization` of one key file, shared by all endpoints that use it.
pub(super) type Authorization = Arc<ArcSwapOption<HeaderValue>>;

/// The key files in use.
#[derive(Default)]
pub(super) struct Keys {
    files: HashMap<PathBuf, Authorization>,
}

impl Keys {
    /// Reads a key as the header it is sent in.
    pub(super) fn read(source: &ApiKeySource) -> Result<HeaderValue, String> {
        let key = match source {
            ApiKeySource::Env(name) => {
                std::env::var(name).map_err(|_| format!("the environment variable {name} is not set"))?
            }
            ApiKeySource::File(path) => {
                let mut text = String::new();
                let read = File::open(path).and_then(|file| file.take(KEY_BYTES_MAX).read_to_string(&mut text));
                read.map_err(|error| format!("cannot read {}: {error}", path.display()))?;
                text
            }
        };
        let key = key.trim();
        if key.is_empty() {
            return Err("the key is empty".into());
        }
        let mut value = HeaderValue::from_str(&format!("Bearer {key}"))
            .map_err(|_| "the key holds characters that no HTTP header can carry".to_owned())?;
        value.set_sensitive(true);
        Ok(value)
    }

    /// Watches the files that `owners` use, and no others.
    pub(super) fn follow(&mut self, owners: &HashMap<u64, Owner>) {
        let used = owners.values().filter_map(|owner| match &owner.key {
            Some(ApiKeySource::File(path)) => Some(path),
            Some(ApiKeySource::Env(_)) | None => None,
        });
        let mut files = HashMap::new();
        for path in used {
            let kept = self.files.remove(path).unwrap_or_default();
            files.entry(path.clone()).or_insert(kept);
        }
        self.files = files;
        self.refresh();
    }

    /// Reads the files again. A file that cannot be read leaves the key that was read last.
    pub(super) fn refresh(&mut self) {
        for (path, held) in &self.files {
            match Self::read(&ApiKeySource::File(path.clone())) {
                Ok(value) if held.load().as_deref() != Some(&value) => held.store(Some(Arc::new(value))),
                Ok(_) => {}
                Err(problem) => tracing::debug!(problem, "an endpoint's key stays as it was"),
            }
        }
    }

    /// What an endpoint with this key sends.
    pub(super) fn authorization(&self, source: Option<&ApiKeySource>) -> Authorization {
        match source {
            Some(ApiKeySource::File(path)) => self.files.get(path).cloned().unwrap_or_default(),
            Some(env @ ApiKeySource::Env(_)) => Arc::new(ArcSwapOption::new(Self::read(env).ok().map(Arc::new))),
            None => Arc::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_file_is_read_trimmed_and_what_is_no_key_is_refused() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let source = ApiKeySource::File(file.path().to_owned());
        assert!(Keys::read(&source).unwrap_err().contains("empty"));
        writeln!(file, "  sk-1 ").unwrap();
        let value = Keys::read(&source).unwrap();
        assert_eq!(value, "Bearer sk-1");
        assert!(value.is_sensitive(), "a key never shows in a log");
        let missing = ApiKeySource::Env("INFERENCE_GATEWAY_TEST_NO_SUCH_KEY".into());
        assert!(Keys::read(&missing).unwrap_err().contains("not set"));
    }
}
