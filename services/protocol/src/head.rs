//! skeleton
use crate::path::Api;

/// Longest name of a model, in bytes of its decoded form.
pub const MODEL_BYTES_MAX: usize = 1024;
/// Prompt bytes that make one block: 64 tokens of 4 bytes, the estimate that the upstream picker uses too.
pub const BLOCK_BYTES: usize = 256;
/// Blocks of a prompt that are hashed: 512 KiB, about 131,000 tokens. What follows is not looked at.
pub const BLOCKS_MAX: usize = 2048;

/// What routing needs of a request's body.
#[derive(Clone, Debug)]
pub struct Head {
    pub model: Model,
    pub stream: bool,
    /// `stream_options.include_usage`.
    pub include_usage: bool,
    /// The most tokens the client wants generated, under whichever name its API gives that.
    pub max_output_tokens: Option<u32>,
    pub prompt: Prompt,
    /// Length of the body.
    pub bytes: u64,
}

/// The `model` of a request's body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Model {
    Missing,
    Empty,
    NotAString,
    Named(String),
}

/// The prompt of a request, as hashes of its blocks.
#[derive(Clone, Debug, Default)]
pub struct Prompt {}

/// What, apart from the prompt, makes an engine's cache entry: chains of different seeds have nothing in common.
#[derive(Clone, Copy, Debug)]
pub struct Seed<'a> {
    /// The model or adapter as the client named it.
    pub model: &'a str,
}

impl Prompt {
    /// Bytes of prompt text; token ids count as 4 each, images and other media as none.
    pub fn bytes(&self) -> u64 {
        0
    }
    pub fn images(&self) -> u32 {
        0
    }
    /// Replaces `out` by the chained hashes of the prompt's blocks, at most [`BLOCKS_MAX`].
    pub fn chain(&self, _seed: Seed<'_>, out: &mut Vec<u64>) {
        out.clear();
    }
}

/// Why a body was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeadError {
    #[error("skeleton")]
    NotAnObject,
    #[error("skeleton")]
    DuplicateModel,
}

/// Reads a JSON body as its chunks arrive, wherever they are cut.
#[derive(Debug)]
pub struct Reader {}

impl Reader {
    pub fn new(_api: Api) -> Self {
        Self {}
    }
    pub fn feed(&mut self, _chunk: &[u8]) -> Result<(), HeadError> {
        Ok(())
    }
    pub fn finish(self) -> Result<Head, HeadError> {
        Err(HeadError::NotAnObject)
    }
}
