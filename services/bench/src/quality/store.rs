//! Runs that are finished, one JSON line each, so that an interrupted measurement goes on where it was.
//!
//! A run is known by what it is a function of: router, rate, seed, the scenario as it was read, and this very program,
//! whose decisions are what is measured. So a line is never taken for a run that would end otherwise.

use std::{
    collections::HashMap,
    fs::{File, OpenOptions},
    hash::{DefaultHasher, Hash, Hasher},
    io::Write,
    path::Path,
    sync::Mutex,
};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::Figures;
use crate::cost::beside_build;

/// Which run, within one scenario and program.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Key {
    pub router: String,
    pub rate_per_s: f64,
    pub seed: u64,
}

#[derive(Serialize, Deserialize)]
struct Line {
    inputs: u64,
    run: Key,
    figures: Figures,
}

/// See the module's text.
pub struct Store {
    inputs: u64,
    known: HashMap<String, Figures>,
    file: Mutex<File>,
}

impl Store {
    /// `inputs`: everything that runs are a function of, besides their keys and the program.
    ///
    /// # Errors
    /// The file cannot be read or written. Lines that say nothing are passed over: the last one may have been cut off.
    pub fn open(path: Option<&Path>, inputs: &str) -> Result<Self> {
        let program = std::env::current_exe().and_then(std::fs::read).context("cannot read this program")?;
        let mut hasher = DefaultHasher::new();
        (inputs, program).hash(&mut hasher);
        let inputs = hasher.finish();
        let path = path.map_or_else(|| beside_build("bench").join("quality-runs.jsonl"), Path::to_owned);
        let fail = || format!("cannot use {}", path.display());
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).with_context(fail)?;
        }
        let mut file = OpenOptions::new().create(true).append(true).open(&path).with_context(fail)?;
        let text = std::fs::read_to_string(&path).with_context(fail)?;
        if !text.is_empty() && !text.ends_with('\n') {
            writeln!(file).with_context(fail)?;
        }
        let lines = text.lines().filter_map(|line| serde_json::from_str::<Line>(line).ok());
        let ours = lines.filter(|line| line.inputs == inputs);
        let known = ours.map(|line| (line.run.text(), line.figures)).collect();
        Ok(Self { inputs, known, file: Mutex::new(file) })
    }

    pub fn get(&self, key: &Key) -> Option<Figures> {
        self.known.get(&key.text()).cloned()
    }

    /// # Errors
    /// The file cannot be written.
    pub fn put(&self, key: &Key, figures: &Figures) -> Result<()> {
        let line = Line { inputs: self.inputs, run: key.clone(), figures: figures.clone() };
        let text = serde_json::to_string(&line)? + "\n";
        let mut file = self.file.lock().expect("nobody panics while holding it");
        file.write_all(text.as_bytes()).context("cannot keep a finished run")
    }
}

impl Key {
    fn text(&self) -> String {
        format!("{} {} {}", self.router, self.rate_per_s.to_bits(), self.seed)
    }
}
