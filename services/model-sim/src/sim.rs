//! Everything one simulated server shares between its connections.

use std::sync::Arc;

use crate::{
    adapters::Adapters,
    clock::Clock,
    driver::Driver,
    face::responses::Stored,
    faults::Board,
    journal::Journal,
    kv_events::{KvEventSource, Outlet},
    options::Options,
    page::Frozen,
    text::Vocabulary,
    web::Web,
};

/// One simulated server.
#[derive(Debug)]
pub(crate) struct Sim {
    pub(crate) options: Options,
    pub(crate) clock: Clock,
    pub(crate) driver: Arc<Driver>,
    pub(crate) adapters: Adapters,
    pub(crate) faults: Board,
    /// Told whenever faults change.
    pub(crate) faults_changed: tokio::sync::watch::Sender<()>,
    pub(crate) journal: Journal,
    pub(crate) web: Web,
    pub(crate) responses: Stored,
    pub(crate) frozen: Frozen,
    pub(crate) vocabulary: Vocabulary,
    /// Where KV events are published, by rank.
    pub(crate) kv_event_sources: Vec<KvEventSource>,
}

impl Sim {
    /// A server whose ranks publish through `outlets`, one each, or none.
    pub(crate) fn new(options: Options, outlets: Vec<Outlet>, kv_event_sources: Vec<KvEventSource>) -> Self {
        let clock = Clock::start(options.time_scale);
        Self {
            driver: Arc::new(Driver::new(&options, clock, outlets)),
            adapters: Adapters::new(&options.adapters, options.lora),
            faults: Board::default(),
            faults_changed: tokio::sync::watch::Sender::new(()),
            journal: Journal::default(),
            web: Web::new(),
            responses: Stored::default(),
            frozen: Frozen::default(),
            vocabulary: Vocabulary::default(),
            kv_event_sources,
            clock,
            options,
        }
    }

    /// Longest prompt plus output, tokens.
    pub(crate) fn context_tokens_max(&self) -> u32 {
        self.options.profile.context_tokens_max()
    }
}
