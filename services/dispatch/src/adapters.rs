//! Which LoRA adapters an endpoint has loaded, as far as can be known.
//!
//! Engines report which adapters have work, not which are loaded: an idle adapter vanishes from the report and stays in
//! the GPU. So what we sent there lately, and what the report showed as running, is remembered like the engine does it:
//! the least recently used goes when the slots are used up.

use std::sync::Arc;

use pool::Adapters;
use scheduling::Residency;

use crate::AdapterView;

/// Slots assumed where the engine does not say (`--max-loras`): as common in multi-adapter deployments.
const SLOTS_UNKNOWN: usize = 8;

/// Adapters remembered per endpoint, whatever its slots: requests of more may be in flight at once.
const REMEMBERED_MAX: usize = 64;

/// One endpoint's adapters, least recently used first.
#[derive(Clone, Debug, Default)]
pub(crate) struct AdapterHistory {
    known: Vec<Known>,
    slots: Option<usize>,
}

#[derive(Clone, Debug)]
struct Known {
    name: Arc<str>,
    in_flight: u32,
    /// Whether it was ever seen to run there. What was sent and failed is forgotten.
    served: bool,
}

impl AdapterHistory {
    /// A request for the adapter goes there. Returns the name to give back later, allocated once per endpoint and
    /// adapter; `None` when too many others are in flight to remember one more.
    pub(crate) fn sent(&mut self, name: &str) -> Option<Arc<str>> {
        let at = self.touch(name)?;
        self.known[at].in_flight += 1;
        Some(self.known[at].name.clone())
    }

    /// A request for it began to be answered.
    pub(crate) fn served(&mut self, name: &str) {
        if let Some(known) = self.known.iter_mut().find(|k| &*k.name == name) {
            known.served = true;
        }
    }

    /// A request for it ended there, or went elsewhere.
    pub(crate) fn ended(&mut self, name: &str) {
        let Some(at) = self.known.iter().position(|k| &*k.name == name) else { return };
        self.known[at].in_flight -= 1;
        if self.known[at].in_flight == 0 && !self.known[at].served {
            self.known.remove(at);
        }
        self.forget_beyond_slots();
    }

    /// The endpoint's report names these.
    pub(crate) fn reported(&mut self, adapters: &Adapters) {
        self.slots = adapters.slots.map(|slots| slots.max(1) as usize);
        for name in &adapters.running {
            if let Some(at) = self.touch(name) {
                self.known[at].served = true;
            }
        }
    }

    /// Nothing is loaded any more. What is in flight is remembered for as long as it is, so that it ends where it began.
    pub(crate) fn unload(&mut self) {
        self.known.retain(|known| known.in_flight > 0);
        self.known.iter_mut().for_each(|known| known.served = false);
        self.slots = None;
    }

    /// How the endpoint stands to an adapter. `report` is left out when it is too old to be believed.
    pub(crate) fn residency(&self, name: &str, report: Option<&Adapters>) -> Residency {
        let (running, waiting) = report.map_or((&[][..], &[][..]), |r| (&r.running[..], &r.waiting[..]));
        let among = |list: &[Arc<str>], name: &str| list.iter().any(|n| &**n == name);
        if among(running, name) || self.known.iter().any(|k| &*k.name == name) {
            return Residency::Loaded;
        }
        // Engines name an adapter under both labels when it has requests in both: a union, not a sum.
        let reported = running.len() + waiting.iter().filter(|n| !among(running, n)).count();
        let unreported = |k: &&Known| !among(running, &k.name) && !among(waiting, &k.name);
        let busy = reported + self.known.iter().filter(|k| k.in_flight > 0).filter(unreported).count();
        let loaded = reported + self.known.iter().filter(unreported).count();
        let slots = self.slots();
        if busy < slots {
            // An idle adapter takes a slot that can be had for the price of pushing it out: half free.
            let free = (slots - busy) as f64 + slots.saturating_sub(loaded) as f64;
            return Residency::Room { free_share: free / (2 * slots) as f64 };
        }
        if among(waiting, name) { Residency::Queued } else { Residency::Absent }
    }

    pub(crate) fn view(&self) -> Vec<AdapterView> {
        self.known.iter().map(|k| AdapterView { name: k.name.clone(), in_flight: k.in_flight }).collect()
    }

    fn slots(&self) -> usize {
        self.slots.unwrap_or(SLOTS_UNKNOWN)
    }

    /// Makes it the most recently used. `None` when all that is remembered is in flight and no more fits.
    fn touch(&mut self, name: &str) -> Option<usize> {
        if let Some(at) = self.known.iter().position(|k| &*k.name == name) {
            self.known[at..].rotate_left(1);
        } else {
            self.known.push(Known { name: name.into(), in_flight: 0, served: false });
            self.forget_beyond_slots();
            if self.known.len() > REMEMBERED_MAX {
                self.known.pop();
                return None;
            }
        }
        Some(self.known.len() - 1)
    }

    /// The newest stays: it is the one just used.
    fn forget_beyond_slots(&mut self) {
        while self.known.len() > self.slots() {
            let older = &self.known[..self.known.len() - 1];
            let Some(idle) = older.iter().position(|k| k.in_flight == 0) else { return };
            self.known.remove(idle);
        }
    }
}

#[cfg(test)]
mod tests;
