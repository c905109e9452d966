//! `/api/v1/config`: which configuration is in force, and what became of a newer one.

use serde::Serialize;
use utoipa::ToSchema;

use super::timestamp::Timestamp;
use crate::world::{ConfigError, ConfigStatus};

/// The configuration in force.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Config)]
pub(super) struct Config {
    /// 1 for the first, one more for each that was applied after it.
    generation: u64,
    /// The file or directory it was read from.
    source: String,
    /// When it was applied.
    #[schema(value_type = String, format = DateTime)]
    loaded_at: Timestamp,
    /// Set while a newer one is refused; the one of `generation` stays in force.
    #[schema(required)]
    error: Option<Refusal>,
}

/// Why a newer configuration is not in force.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ConfigError)]
struct Refusal {
    /// Every violation, one per line.
    message: String,
    /// Field path of the first violation; empty when the text could not be read.
    path: String,
    /// When it was refused.
    #[schema(value_type = String, format = DateTime)]
    at: Timestamp,
}

impl Config {
    pub(super) fn of(status: &ConfigStatus) -> Self {
        Self {
            generation: status.generation,
            source: status.source.clone(),
            loaded_at: Timestamp(status.loaded_at),
            error: status.error.as_ref().map(Refusal::of),
        }
    }
}

impl Refusal {
    fn of(error: &ConfigError) -> Self {
        Self { message: error.message.clone(), path: error.path.clone(), at: Timestamp(error.at) }
    }
}
