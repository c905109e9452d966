//! Clients of the API server, with limits on how long they wait.
//!
//! Two of them, since a plain call that says nothing for ten seconds is lost, while a watch may be silent for as long as
//! nothing happens. Without limits a connection that swallows bytes would hold the controller for minutes.

use std::time::Duration;

use kube::{Client, Config};

/// For a connection to the API server.
const CONNECT_MAX: Duration = Duration::from_secs(5);
/// Silence of the API server within a plain call.
const PLAIN_SILENCE_MAX: Duration = Duration::from_secs(10);
/// A plain call as a whole, with the client's own retries.
pub const CALL_MAX: Duration = Duration::from_secs(15);
/// After this time the API server ends a watch, which then goes on from where it was, or lists again. It bounds how long
/// a connection that died unseen can hide changes; shorter, the lists cost more than everything else while nothing happens.
pub const WATCH_MAX_S: u32 = 50;
/// Silence of the API server within a watch: a little more than the time after which it ends it.
const WATCH_SILENCE_MAX: Duration = Duration::from_secs(WATCH_MAX_S as u64 + 10);

/// The two clients.
#[derive(Clone)]
pub struct Clients {
    /// For calls that answer at once.
    pub plain: Client,
    /// For watches.
    pub watch: Client,
}

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Neither a kubeconfig nor a pod's credentials.
    #[error("no credentials for an API server, neither in KUBECONFIG nor of a pod: {0}")]
    NoCredentials(#[from] kube::config::InferConfigError),
    /// They are there and cannot be used.
    #[error("credentials for the API server cannot be used: {0}")]
    Unusable(#[from] kube::Error),
}

impl Clients {
    /// Clients for the API server that the environment names: `KUBECONFIG`, else the pod's service account.
    ///
    /// # Errors
    /// When there are no credentials, or they cannot be used. The API server is not asked.
    pub async fn infer() -> Result<Self, ClientError> {
        let mut config = Config::infer().await?;
        config.connect_timeout = Some(CONNECT_MAX);
        config.reset_reader_on_write = true;
        let with_silence = |silence: Duration| {
            let mut config = config.clone();
            config.read_timeout = Some(silence);
            Client::try_from(config)
        };
        Ok(Self { plain: with_silence(PLAIN_SILENCE_MAX)?, watch: with_silence(WATCH_SILENCE_MAX)? })
    }
}
