//! Whether an endpoint's serving port takes connections, where a failed look at its page does not say.

use std::{net::SocketAddr, time::Duration};

use pool::{Moment, NoPage};
use tokio::net::TcpStream;

/// Shortest time between two probes of one endpoint. In between, the last result stands.
const PROBE_PAUSE: Duration = Duration::from_millis(900);

/// Probes one serving port, not too often.
#[derive(Debug)]
pub(super) struct Reach {
    serving: SocketAddr,
    last: Option<(NoPage, Moment)>,
}

impl Reach {
    pub(super) fn new(serving: SocketAddr) -> Self {
        Self { serving, last: None }
    }

    /// Tries to connect, within `timeout`.
    pub(super) async fn probe(&mut self, now: Moment, timeout: Duration) -> NoPage {
        if let Some((result, at)) = self.last
            && now.since(at) < PROBE_PAUSE
        {
            return result;
        }
        let result = match tokio::time::timeout(timeout, TcpStream::connect(self.serving)).await {
            Ok(Ok(_)) => NoPage::Accepting,
            Ok(Err(_)) | Err(_) => NoPage::Unreachable,
        };
        self.last = Some((result, now));
        result
    }
}
