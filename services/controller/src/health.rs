//! What the kubelet and Prometheus ask the controller.
//!
//! Alive means that the process answers: no lease, no API server and no watch can make it fail, since a restart would mend
//! none of these. Ready means that every watch has been filled once, so that this copy could take over at any time;
//! a standby is ready too.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use axum::{
    Router,
    extract::State,
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use telemetry::{Format, Metrics};

/// Whether this copy could take over.
#[derive(Clone, Debug, Default)]
pub struct Readiness(Arc<AtomicBool>);

impl Readiness {
    /// Every watch has been filled once.
    pub fn filled(&self) {
        self.0.store(true, Ordering::Release);
    }

    fn is_filled(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

#[derive(Clone)]
struct Health {
    metrics: Metrics,
    readiness: Readiness,
}

/// Binds the port and serves until the process ends.
///
/// # Errors
/// When the address cannot be bound.
pub async fn serve(address: SocketAddr, metrics: Metrics, readiness: Readiness) -> std::io::Result<SocketAddr> {
    let listener = tokio::net::TcpListener::bind(address).await?;
    let bound = listener.local_addr()?;
    let router = Router::new()
        .route("/healthz", get(async || "ok\n"))
        .route("/readyz", get(readyz))
        .route("/metrics", get(page))
        .with_state(Health { metrics, readiness });
    tokio::spawn(axum::serve(listener, router).into_future());
    Ok(bound)
}

async fn readyz(State(health): State<Health>) -> Response {
    if health.readiness.is_filled() {
        return "ready\n".into_response();
    }
    (StatusCode::SERVICE_UNAVAILABLE, "not every watch has been filled yet\n").into_response()
}

async fn page(State(health): State<Health>, headers: HeaderMap) -> Response {
    let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok());
    let format = Format::asked_by(accept);
    ([(header::CONTENT_TYPE, format.content_type())], health.metrics.render(format)).into_response()
}
