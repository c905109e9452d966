//! skeleton
/// Tokens of one request as the endpoint counted them. Never guessed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Includes the cached ones.
    pub prompt_tokens: u64,
    /// Prompt tokens that the engine's prefix cache held.
    pub cached_tokens: u64,
    pub completion_tokens: u64,
}

/// Reads the usage of an answer that is one JSON document, as its chunks pass.
#[derive(Debug, Default)]
pub struct Reader {}

impl Reader {
    pub fn new() -> Self {
        Self::default()
    }
    pub fn feed(&mut self, _chunk: &[u8]) {}
    /// None if the answer has no usage, or is no JSON.
    pub fn finish(self) -> Option<Usage> {
        None
    }
}
