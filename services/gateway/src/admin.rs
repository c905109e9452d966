//! What people and Prometheus ask the gateway: health, metrics, pools, decisions, the configuration in force, and the
//! reference of both APIs.
//!
//! Read-only, and apart from the data port: nothing here changes what the gateway does, so that whoever may look cannot
//! break. Numbers are taken under the pools' short locks and turned into text outside of them; a page is made when it is
//! asked for, and nothing is kept for pages that nobody reads. It refuses to serve anything from outside the program:
//! the pages need no other host.

mod config;
mod decision;
mod fault;
mod listener;
mod page;
mod pools;
mod process;
mod sweeper;
#[cfg(test)]
mod tests;
mod timestamp;

use std::sync::Arc;

use axum::{
    Json, Router,
    extract::{Path, State, rejection::PathRejection},
    response::{Html, IntoResponse, Redirect, Response},
    routing::get,
};
use http::{
    HeaderMap, HeaderValue, StatusCode,
    header::{ACCEPT, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, VARY, X_CONTENT_TYPE_OPTIONS},
};
use telemetry::Format;
use utoipa::OpenApi;

pub(crate) use self::page::rests_on_own_signals;
use self::{config::Config, decision::Decided, fault::Fault, pools::Pools};
pub use self::{listener::AdminListener, sweeper::Sweeper};
use crate::world::World;

/// Where people find words for everything; named by answers to what is not there.
const DOCS: &str = "/docs";

/// The page's own style and script stand in it, and it asks this host alone.
const DOCS_POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'",
);

/// Everything that the admin port serves.
pub fn router(world: Arc<World>) -> Router {
    Router::new()
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .route("/api/v1/pools", get(list_pools))
        // Ids are the client's and may hold slashes; they are found escaped or not.
        .route("/api/v1/decisions/{*request_id}", get(find_decision))
        .route("/api/v1/config", get(show_config))
        .route("/openapi.json", get(openapi))
        .route(DOCS, get(docs))
        .route("/", get(|| async { Redirect::temporary(DOCS) }))
        .fallback(|| async { Fault::NoSuchPage })
        .method_not_allowed_fallback(|| async { Fault::OnlyReading })
        .with_state(world)
}

/// The admin API, described where it is served.
#[derive(OpenApi)]
#[openapi(
    paths(healthz, readyz, metrics, list_pools, find_decision, show_config, openapi, docs),
    components(schemas(fault::FaultBody))
)]
pub(crate) struct AdminApi;

/// Whether the process is alive
///
/// Also answered on the data port, without a token.
#[utoipa::path(get, path = "/healthz", tag = "health", responses(
    (status = 200, description = "It is", body = String, content_type = "text/plain", example = "ok"),
))]
async fn healthz() -> Response {
    plain(StatusCode::OK, "ok")
}

/// Whether to send requests here
///
/// Also answered on the data port, without a token. Ready means that a configuration is in force and its endpoints were
/// looked at once; it does not mean that one of them can be used.
#[utoipa::path(get, path = "/readyz", tag = "health", responses(
    (status = 200, description = "It is ready", body = String, content_type = "text/plain", example = "ready"),
    (status = 503, description = "It starts, or shuts down; the text says which", body = String,
     content_type = "text/plain", example = "draining: this process is shutting down"),
))]
async fn readyz(State(world): State<Arc<World>>) -> Response {
    match world.readiness.check() {
        Ok(()) => plain(StatusCode::OK, "ready"),
        Err(reason) => plain(StatusCode::SERVICE_UNAVAILABLE, reason.as_str()),
    }
}

/// Metrics
///
/// Prometheus text format 0.0.4, or OpenMetrics 1.0.0 when `Accept` prefers it. The metrics are listed in
/// docs/metrics.md.
#[utoipa::path(get, path = "/metrics", tag = "operation", responses(
    (status = 200, description = "All series", content(
        (String = "text/plain; version=0.0.4; charset=utf-8"),
        (String = "application/openmetrics-text; version=1.0.0; charset=utf-8"),
    )),
    (status = 404, description = "`observability.metrics.enabled` is false", body = String, content_type = "text/plain"),
))]
async fn metrics(State(world): State<Arc<World>>, headers: HeaderMap) -> Response {
    if !world.config.load().metrics_enabled {
        return plain(StatusCode::NOT_FOUND, "metrics are turned off: set observability.metrics.enabled to true\n");
    }
    let accept = headers.get(ACCEPT).and_then(|value| value.to_str().ok());
    let format = Format::asked_by(accept);
    page::refresh(&world);
    let head = [(CONTENT_TYPE, format.content_type()), (VARY, "accept")];
    (head, world.metrics.render(format)).into_response()
}

/// Pools and their endpoints, as the next pick sees them
#[utoipa::path(get, path = "/api/v1/pools", tag = "operation", responses(
    (status = 200, description = "Every pool, in the order of the configuration", body = Pools),
))]
async fn list_pools(State(world): State<Arc<World>>) -> Response {
    json(StatusCode::OK, &Pools::of(&world.routes.load()))
}

/// Why a request went where it went
///
/// The last decisions are kept in memory, 2048 of them; an older one is gone. When several requests had the same id, the
/// newest answers.
#[utoipa::path(get, path = "/api/v1/decisions/{request_id}", tag = "operation",
    params(("request_id" = String, Path, description = "`x-request-id` of the request, percent-encoded")),
    responses(
        (status = 200, description = "The decision", body = Decided),
        (status = 404, description = "No decision of this id is kept", body = fault::FaultBody),
    ))]
async fn find_decision(State(world): State<Arc<World>>, id: Result<Path<String>, PathRejection>) -> Response {
    let entry = id.ok().and_then(|Path(id)| world.observer.decisions.find(&id));
    match entry {
        Some(entry) => json(StatusCode::OK, &Decided::of(&entry, &world.clock)),
        None => Fault::NoSuchDecision.into_response(),
    }
}

/// Which configuration is in force
///
/// A newer one that was refused is in `error`, until one is accepted.
#[utoipa::path(get, path = "/api/v1/config", tag = "operation", responses(
    (status = 200, description = "Its number, where it came from, and what is wrong with a newer one", body = Config),
))]
async fn show_config(State(world): State<Arc<World>>) -> Response {
    json(StatusCode::OK, &Config::of(&world.config.load()))
}

/// This description
#[utoipa::path(get, path = "/openapi.json", tag = "reference", responses(
    (status = 200, description = "OpenAPI 3.1 of the data and the admin API", body = serde_json::Value),
))]
async fn openapi() -> Response {
    json(StatusCode::OK, &crate::openapi::document())
}

/// This description, for people
#[utoipa::path(get, path = "/docs", tag = "reference", responses(
    (status = 200, description = "A page that needs nothing from outside", body = String, content_type = "text/html"),
))]
async fn docs() -> Response {
    let head = [(CONTENT_SECURITY_POLICY, DOCS_POLICY), (X_CONTENT_TYPE_OPTIONS, NOSNIFF)];
    (head, Html(include_str!("admin/docs.html"))).into_response()
}

const NOSNIFF: HeaderValue = HeaderValue::from_static("nosniff");

/// An answer of words. Never kept by anyone: health checks behind a cache would lie.
fn plain(status: StatusCode, text: impl Into<String>) -> Response {
    (status, [(CACHE_CONTROL, "no-store")], text.into()).into_response()
}

fn json(status: StatusCode, value: &impl serde::Serialize) -> Response {
    let head = [(CACHE_CONTROL, HeaderValue::from_static("no-store")), (X_CONTENT_TYPE_OPTIONS, NOSNIFF)];
    (status, head, Json(value)).into_response()
}
