//! What the admin API cannot answer: a closed list, so that scripts can tell the cases apart.

use axum::response::{IntoResponse, Response};
use http::StatusCode;
use serde::Serialize;
use utoipa::ToSchema;

use crate::decisions::KEPT_MAX;

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// The path is none of this API's.
    NoSuchPage,
    /// The path is one, and is only read.
    OnlyReading,
    /// No decision of this id is kept.
    NoSuchDecision,
}

/// Why there is no answer.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = AdminError)]
pub(super) struct FaultBody {
    error: FaultDetail,
}

/// What is wrong and what to do about it.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = AdminErrorDetail)]
struct FaultDetail {
    /// For people.
    message: String,
    /// For scripts: `page_not_found`, `method_not_allowed` or `decision_not_found`.
    #[schema(value_type = String)]
    code: &'static str,
}

impl Fault {
    fn body(self) -> (StatusCode, FaultBody) {
        let (status, code, message) = match self {
            Self::NoSuchPage => {
                (StatusCode::NOT_FOUND, "page_not_found", "no such page: /docs lists what is served here".to_owned())
            }
            Self::OnlyReading => (
                StatusCode::METHOD_NOT_ALLOWED,
                "method_not_allowed",
                "nothing can be changed here: use GET, and change the configuration instead".to_owned(),
            ),
            Self::NoSuchDecision => (
                StatusCode::NOT_FOUND,
                "decision_not_found",
                format!(
                    "no decision of this request is kept: send the x-request-id of its answer, percent-encoded; the \
                     last {KEPT_MAX} decisions are kept, and a request that was refused before a pick has none"
                ),
            ),
        };
        (status, FaultBody { error: FaultDetail { message, code } })
    }
}

impl IntoResponse for Fault {
    fn into_response(self) -> Response {
        let (status, body) = self.body();
        super::json(status, &body)
    }
}
