//! The connection to the API server.

use std::time::Duration;

/// Longest time to a connection, and for a request to leave.
const CONNECT_MAX: Duration = Duration::from_secs(5);

/// Why there is no client for the API server.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// Neither a kubeconfig nor the files of a pod.
    #[error("no way to the API server: {0}")]
    Unknown(#[from] kube::config::InferConfigError),
    /// Its certificates or credentials cannot be used.
    #[error("the API server cannot be spoken to: {0}")]
    Unusable(#[source] Box<kube::Error>),
}

/// A client for the API server that `KUBECONFIG` or the pod's service account names. Connects when it is first used, so
/// an API server that is away is no error here.
///
/// # Errors
/// When nothing says where it is, or the credentials cannot be used.
pub async fn connect() -> Result<kube::Client, ConnectError> {
    let mut config = kube::Config::infer().await?;
    config.connect_timeout = Some(CONNECT_MAX);
    config.write_timeout = Some(CONNECT_MAX);
    // Waits between tries are this module's own.
    config.default_retry = false;
    kube::Client::try_from(config).map_err(|error| ConnectError::Unusable(Box::new(error)))
}
