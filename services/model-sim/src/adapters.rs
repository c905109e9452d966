//! The LoRA adapters a server knows: those given at start, and those loaded and unloaded while it runs.

use engine::AdapterId;
use parking_lot::RwLock;

use crate::{failure::Failure, options::Adapter};

/// Adapters by the id the engine knows them by. An unloaded one keeps its id, for the metrics that still name it.
#[derive(Debug)]
pub(crate) struct Adapters {
    enabled: bool,
    known: RwLock<Vec<Known>>,
}

#[derive(Clone, Debug)]
struct Known {
    adapter: Adapter,
    loaded: bool,
}

/// Adapters one server has ever known.
const ADAPTERS_MAX: usize = 10_000;

impl Adapters {
    pub(crate) fn new(adapters: &[Adapter], enabled: bool) -> Self {
        let known = adapters.iter().map(|adapter| Known { adapter: adapter.clone(), loaded: true }).collect();
        Self { enabled: enabled || !adapters.is_empty(), known: RwLock::new(known) }
    }

    /// Whether the engine serves adapters at all.
    pub(crate) fn enabled(&self) -> bool {
        self.enabled
    }

    /// The id of a loaded adapter.
    pub(crate) fn find(&self, name: &str) -> Option<AdapterId> {
        let known = self.known.read();
        let index = known.iter().position(|k| k.loaded && k.adapter.name == name)?;
        Some(AdapterId(index as u32))
    }

    /// Loaded adapters, in order of loading.
    pub(crate) fn loaded(&self) -> Vec<Adapter> {
        self.known.read().iter().filter(|k| k.loaded).map(|k| k.adapter.clone()).collect()
    }

    /// Names for ids, comma-joined as a metric label has them.
    pub(crate) fn names(&self, ids: &[AdapterId]) -> String {
        let known = self.known.read();
        let names: Vec<&str> =
            ids.iter().filter_map(|id| known.get(id.0 as usize)).map(|k| k.adapter.name.as_str()).collect();
        names.join(",")
    }

    /// Loads one more. Its id is new, so that nothing cached under a former one of that name is found.
    pub(crate) fn load(&self, adapter: Adapter) -> Result<(), Failure> {
        if !self.enabled {
            return Err(Failure::user_input("LoRA is not enabled. Start the server with --enable-lora.".to_owned()));
        }
        let mut known = self.known.write();
        if known.iter().any(|k| k.loaded && k.adapter.name == adapter.name) {
            let text = format!("The lora adapter '{}' has already been loaded.", adapter.name);
            return Err(Failure::user_input(text));
        }
        if known.len() >= ADAPTERS_MAX {
            return Err(Failure::user_input(format!("more than {ADAPTERS_MAX} adapters were loaded")));
        }
        known.push(Known { adapter, loaded: true });
        Ok(())
    }

    /// Unloads one.
    pub(crate) fn unload(&self, name: &str) -> Result<(), Failure> {
        let mut known = self.known.write();
        match known.iter_mut().find(|k| k.loaded && k.adapter.name == name) {
            Some(adapter) => {
                adapter.loaded = false;
                Ok(())
            }
            None => Err(Failure::not_found(format!("The lora adapter '{name}' cannot be found."))),
        }
    }
}
