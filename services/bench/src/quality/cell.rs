//! One run of one router at one load with one seed, and how all of them are got through on all cores.

use std::sync::{
    Mutex,
    atomic::{AtomicUsize, Ordering},
};

use anyhow::Result;

use super::{
    Figures,
    contender::Contender,
    figures::Basis,
    progress::Progress,
    scenario::{PodClass, Scenario},
    store::{Key, Store},
    workload::{self, Source},
};
use crate::world::{
    World, capacity,
    stage::{Change, Stage},
};

/// What all cells of a scenario have in common.
#[derive(Clone, Debug)]
pub struct Setting {
    pub pods: Vec<PodClass>,
    /// By pod class: requests per second of one pod, measured.
    pub capacity_per_pod: Vec<f64>,
}

/// See the module's text.
#[derive(Clone, Copy, Debug)]
pub struct Cell<'a> {
    pub rate_per_s: f64,
    pub router: &'a Contender,
    pub seed: u64,
}

impl Setting {
    /// Measures what the fleet can do.
    pub fn of(scenario: &Scenario, seed: u64) -> Result<Self> {
        let pods = scenario.pod_classes()?;
        let measure = |pod: &PodClass| {
            let source = || {
                let mut source = Source::new(&scenario.workload, seed);
                move |_| source.draw().1
            };
            capacity::of_engine(&pod.profile, source, seed).requests_per_s
        };
        let capacity_per_pod = std::thread::scope(|scope| {
            let measured: Vec<_> = pods.iter().map(|pod| scope.spawn(|| measure(pod))).collect();
            measured.into_iter().map(|thread| thread.join().expect("measuring does not panic")).collect()
        });
        Ok(Self { pods, capacity_per_pod })
    }

    /// Of the whole fleet.
    pub fn capacity_per_s(&self) -> f64 {
        self.pods.iter().zip(&self.capacity_per_pod).map(|(pod, capacity)| pod.count as f64 * capacity).sum()
    }

    /// The rate at which round-robin brings the slowest pod class to its capacity, and the name of that class.
    pub fn round_robin_full(&self) -> (f64, &str) {
        let pods: usize = self.pods.iter().map(|pod| pod.count).sum();
        let slowest = self.pods.iter().zip(&self.capacity_per_pod).min_by(|(_, a), (_, b)| a.total_cmp(b));
        slowest.map_or((0.0, ""), |(pod, capacity)| (capacity * pods as f64, &pod.name))
    }

    pub fn gpus(&self) -> usize {
        self.pods.iter().map(|pod| pod.count * pod.gpus).sum()
    }
}

impl Cell<'_> {
    pub fn run(&self, scenario: &Scenario, setting: &Setting) -> Figures {
        let (calls, length) = workload::calls(&scenario.workload, self.rate_per_s, self.seed);
        let changes = scenario.changes.iter().map(|change| Change {
            at_s: length.as_secs_f64() * change.at,
            endpoint: Some(change.endpoint),
            does: change.does,
        });
        let fleet = setting.pods.iter().flat_map(|pod| std::iter::repeat_n(pod.profile.clone(), pod.count));
        let stage = Stage {
            seed: self.seed,
            fleet: fleet.collect(),
            hops: scenario.hops(),
            changes: changes.collect(),
            classes: scenario.workload.kinds.keys().cloned().collect(),
            length,
            // A plain router's backlog is served to its end, however long that takes.
            patience: length * 1_000,
        };
        let ledger = World::new(&stage, &calls, &self.router.router(scenario)).run();
        let Setting { pods, capacity_per_pod } = setting;
        Figures::of(&ledger, &Basis { slo: scenario.slo, length, pods, capacity_per_pod })
    }

    fn key(&self) -> Key {
        Key { router: self.router.name(), rate_per_s: self.rate_per_s, seed: self.seed }
    }
}

/// Runs what the store does not have yet, on `jobs` threads; in the order of `cells`.
///
/// # Errors
/// The store cannot be written.
pub fn run_all(
    cells: &[Cell<'_>],
    scenario: &Scenario,
    setting: &Setting,
    store: &Store,
    jobs: usize,
) -> Result<Vec<Figures>> {
    let mut done: Vec<Option<Figures>> = cells.iter().map(|cell| store.get(&cell.key())).collect();
    let missing: Vec<usize> = (0..cells.len()).filter(|&number| done[number].is_none()).collect();
    let (next, finished) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let progress = Progress::begin(&scenario.title, cells.len(), cells.len() - missing.len());
    std::thread::scope(|scope| {
        for _ in 0..jobs.min(missing.len()) {
            scope.spawn(|| {
                while let Some(&number) = missing.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let figures = cells[number].run(scenario, setting);
                    progress.one_more(u64::from(figures.requests));
                    let kept = store.put(&cells[number].key(), &figures);
                    finished.lock().expect("nobody panics while holding it").push((number, figures, kept));
                }
            });
        }
    });
    progress.end();
    for (number, figures, kept) in finished.into_inner().expect("nobody panics while holding it") {
        kept?;
        done[number] = Some(figures);
    }
    Ok(done.into_iter().flatten().collect())
}
