//! Active health, for engines without a metrics page: any OpenAI-compatible server.
//!
//! `GET /health` is asked first. Any answer below 500 means a server is at work there, a refusal (401, 403) too. A
//! server that does not know the path (404, 405, 501) is asked for `/v1/models`, which it ought to know: again, anything
//! below 500 will do. The path that was known is kept, so that a look is one request. A slow `/health` is left for
//! `/v1/models` too, since some engines generate a token for it, which is neither cheap nor quick enough to be fresh.

use std::time::Duration;

use http::StatusCode;

use super::{
    Cause,
    connection::{Connection, Failure},
};

/// Once a second: the answer says only up or down.
pub(super) const PERIOD: Duration = Duration::from_secs(1);

/// Some engines poll once a second to answer, so their health takes longer than that.
pub(super) const TIME_MAX: Duration = Duration::from_secs(3);

/// Most bytes of an answer read for the connection's sake; `/v1/models` of a server with thousands of adapters fits.
const BYTES_MAX: usize = 1 << 20;

/// A health answer slower than this is not asked for again while `/v1/models` works.
const SLOW: Duration = Duration::from_millis(300);

const HEALTH: &str = "/health";
const MODELS: &str = "/v1/models";

/// Which path this endpoint is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Known {
    #[default]
    Health,
    Models,
}

/// Asks once. Success means healthy.
pub(super) async fn check(connection: &mut Connection, known: &mut Known) -> Result<(), Failure> {
    if *known == Known::Health {
        let asked = tokio::time::Instant::now();
        let answer = connection.get(HEALTH, BYTES_MAX).await?;
        let unknown = matches!(
            answer.status,
            StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED | StatusCode::NOT_IMPLEMENTED
        );
        if unknown || (answer.status.is_success() && asked.elapsed() > SLOW) {
            *known = Known::Models;
        }
        if !unknown {
            return verdict(HEALTH, answer.status);
        }
    }
    let answer = connection.get(MODELS, BYTES_MAX).await;
    let result = answer.and_then(|answer| verdict(MODELS, answer.status));
    if result.is_err() {
        *known = Known::Health;
    }
    result
}

fn verdict(path: &str, status: StatusCode) -> Result<(), Failure> {
    if status.is_server_error() {
        return Err(Failure { cause: Cause::Status, detail: format!("{path} answered {status}") });
    }
    Ok(())
}
