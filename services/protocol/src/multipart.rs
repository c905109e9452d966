//! skeleton
use crate::head::Head;

#[derive(Debug)]
pub struct Reader {}

/// Why a form was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MultipartError {
    #[error("skeleton")]
    NoBoundary,
}

impl Reader {
    /// `content_type` is the value of the header.
    pub fn new(_content_type: &str) -> Result<Self, MultipartError> {
        Err(MultipartError::NoBoundary)
    }
    pub fn feed(&mut self, _chunk: &[u8]) -> Result<(), MultipartError> {
        Ok(())
    }
    pub fn finish(self) -> Result<Head, MultipartError> {
        Err(MultipartError::NoBoundary)
    }
}
