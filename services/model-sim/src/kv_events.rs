//! KV-cache events over ZMQ, as vLLM publishes them: what each rank's prefix cache gains and loses, step by step.
//!
//! A rank numbers its batches and hands them on without waiting; a task of its own sends them. So a slow subscriber loses
//! batches, sees it by their numbers, and asks for them again at the replay address, as with vLLM. Queue, send buffer and
//! replay buffer are bounded.

use std::{collections::HashMap, sync::Arc};

use bytes::Bytes;
use engine::{AdapterId, CacheChange, RequestId};
use tokio::{sync::mpsc, task::JoinSet};

use crate::options::{KvEvents, Options, Version};

mod buffer;
mod publisher;
mod wire;

use buffer::Buffer;
pub use publisher::KvEventsError;
use wire::Event;

/// Where one rank publishes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KvEventSource {
    /// The publisher's address, with the port it really has.
    pub endpoint: String,
    /// Where batches can be had again.
    pub replay_endpoint: Option<String>,
}

/// The publishers of one server.
#[derive(Debug, Default)]
pub(crate) struct Publishers {
    /// One per rank, or none.
    pub(crate) outlets: Vec<Outlet>,
    pub(crate) sources: Vec<KvEventSource>,
    /// Stops them when it is dropped.
    pub(crate) tasks: JoinSet<()>,
}

/// One rank's way out.
#[derive(Debug)]
pub(crate) struct Outlet {
    rank: u32,
    version: Version,
    block_tokens: u32,
    next: u64,
    batches: mpsc::Sender<(u64, Bytes)>,
    buffer: Arc<Buffer>,
    /// What live requests consist of.
    texts: HashMap<RequestId, Text>,
}

/// The tokens of a request's prompt and answer, and what it runs with.
#[derive(Clone, Debug, Default)]
pub(crate) struct Text {
    pub(crate) tokens: Vec<u32>,
    pub(crate) adapter: Option<(AdapterId, String)>,
    pub(crate) salt: Option<String>,
}

/// Binds and starts the publishers that `options` ask for.
pub(crate) async fn start(options: &Options) -> Result<Publishers, KvEventsError> {
    let mut publishers = Publishers::default();
    let Some(config) = &options.kv_events else { return Ok(publishers) };
    for rank in 0..options.ranks.max(1) {
        publishers.add(options, config, rank as u32).await?;
    }
    Ok(publishers)
}

impl Publishers {
    async fn add(&mut self, options: &Options, config: &KvEvents, rank: u32) -> Result<(), KvEventsError> {
        let buffer = Arc::new(Buffer::new(config.buffer_steps));
        let (sender, batches) = mpsc::channel(config.max_queue_size.clamp(1, QUEUE_MAX));
        let topic = Bytes::from(config.topic.clone());
        let (socket, endpoint) = publisher::open(&config.endpoint, rank).await?;
        self.tasks.spawn(publisher::publish(socket, topic.clone(), batches));
        let mut replay_endpoint = None;
        if let Some(address) = &config.replay_endpoint {
            let (socket, bound) = publisher::open_replay(address, rank).await?;
            // The topic came into replays with 0.27.
            let topic = (options.version >= Version(0, 27, 0)).then_some(topic);
            self.tasks.spawn(publisher::replay(socket, topic, buffer.clone()));
            replay_endpoint = Some(bound);
        }
        self.sources.push(KvEventSource { endpoint, replay_endpoint });
        self.outlets.push(Outlet {
            rank,
            version: options.version,
            block_tokens: options.profile.block_tokens,
            next: 0,
            batches: sender,
            buffer,
            texts: HashMap::new(),
        });
        Ok(())
    }
}

/// Batches that may wait for the sending task, whatever is asked for.
const QUEUE_MAX: usize = 100_000;

impl Outlet {
    /// Remembers what a request consists of, until [`Self::forget`].
    pub(crate) fn learn(&mut self, id: RequestId, text: Text) {
        self.texts.insert(id, text);
    }

    /// The request has ended.
    pub(crate) fn forget(&mut self, id: RequestId) {
        self.texts.remove(&id);
    }

    /// Publishes the changes of one step, if there were any.
    pub(crate) fn publish(&mut self, changes: Vec<CacheChange>, unix_s: f64) {
        let events: Vec<Event> = changes.into_iter().filter_map(|change| self.event(change)).collect();
        if events.is_empty() {
            return;
        }
        let payload = Bytes::from(wire::batch(self.version, unix_s, self.rank, &events));
        let number = self.next;
        self.next += 1;
        self.buffer.keep(number, payload.clone());
        if self.batches.try_send((number, payload)).is_err() {
            tracing::debug!(number, "a batch of KV events is not sent: the queue is full");
        }
    }

    fn event(&self, change: CacheChange) -> Option<Event> {
        let (request, first_block, parent, keys) = match change {
            CacheChange::Removed(key) => return Some(Event::Removed { hash: key.0 }),
            CacheChange::Stored { request, first_block, parent, keys } => (request, first_block, parent, keys),
        };
        let text = self.texts.get(&request)?;
        let size = self.block_tokens as usize;
        let tokens = text.tokens.get(first_block * size..(first_block + keys.len()) * size)?;
        Some(Event::Stored {
            hashes: keys.iter().map(|key| key.0).collect(),
            parent: parent.map(|key| key.0),
            tokens: tokens.to_vec(),
            block_tokens: self.block_tokens,
            adapter: text.adapter.clone(),
            salt: text.salt.clone().filter(|_| first_block == 0),
        })
    }
}
