//! What goes into the engine and what comes out of it.
//!
//! A request says how many tokens it will generate: the engine simulates time and memory, not language. Whoever makes
//! the text also decides where it ends.

use pool::Moment;

use crate::BlockHash;

/// Names one request within one engine. The caller chooses it and uses no id twice among live requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// Names one LoRA adapter within one engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AdapterId(pub u32);

/// One request to generate (or, with no output, to embed or score).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Its name.
    pub id: RequestId,
    /// Contents of the leading full blocks of prompt *and then output*, one hash per block, not chained: the engine
    /// chains them. May be shorter than the sequence; blocks beyond it are taken as unlike anything else.
    pub blocks: Vec<BlockHash>,
    /// Length of the prompt in tokens, at least 1.
    pub prompt_tokens: u32,
    /// Tokens that will be generated; 0 for embeddings and the like, which end with their prefill.
    pub output_tokens: u32,
    /// The limit the client set. A request that generates as many ends with [`FinishReason::Length`].
    pub max_tokens: Option<u32>,
    /// The adapter it runs with.
    pub adapter: Option<AdapterId>,
    /// Lower is earlier, as in vLLM. Heeded only under [`Policy::Priority`](crate::Policy::Priority).
    pub priority: i32,
}

/// Why a request was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    /// A request needs at least one prompt token.
    #[error("the prompt is empty")]
    EmptyPrompt,
    /// Prompt and output together are more than the engine can ever hold.
    #[error("{tokens} tokens are more than the maximum context length of {max}")]
    TooLong {
        /// Prompt and output tokens.
        tokens: u64,
        /// The most this engine takes.
        max: u32,
    },
    /// The id belongs to a live request.
    #[error("request id {0:?} is in use")]
    IdInUse(RequestId),
    /// A bound of the simulation, not of the engine it simulates: vLLM's queue has none by default.
    #[error("more than {max} requests at once")]
    Full {
        /// The bound.
        max: usize,
    },
}

/// Something that happened to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// The request.
    pub id: RequestId,
    /// When, on the engine's time line; never later than the `now` of the call that returned it.
    pub at: Moment,
    /// What.
    pub kind: EventKind,
}

/// What can happen to a request. Per request: `Scheduled`, then `FirstToken`, then `Tokens`, then `Finished`;
/// `Preempted` anywhere between. A request that was aborted has no further event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// It joined the running batch for the first time.
    Scheduled {
        /// Prompt tokens found in the prefix cache.
        cached_tokens: u32,
    },
    /// Its prompt is done and its first token is there.
    FirstToken,
    /// So many further tokens are there.
    Tokens(u32),
    /// It is done; its blocks are free.
    Finished(FinishReason),
    /// It lost its blocks and waits again at the head of the queue.
    Preempted,
}

/// Why a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FinishReason {
    /// The model was done.
    Stop,
    /// The token limit was reached.
    Length,
    /// The client went away.
    Abort,
}
