//! The usual scene: one model server each for `m1` and `m2`, and a gateway in front of both.

use harness::{Answer, Config, Gateway, Peer, Scheduler};

/// The smallest chat.
pub(crate) const CHAT: &str = r#"{"model":"m1","messages":[{"role":"user","content":"hi"}]}"#;

/// Two pools of one endpoint each.
pub(crate) struct TwoModels {
    pub(crate) m1: Peer,
    pub(crate) m2: Peer,
    pub(crate) gateway: Gateway,
}

impl TwoModels {
    pub(crate) fn start() -> Self {
        Self::with(|config| config)
    }

    /// With more said in the configuration.
    pub(crate) fn with(more: impl FnOnce(Config) -> Config) -> Self {
        let (m1, m2) = (Peer::plain(), Peer::plain());
        let pool = |model: &str, peer: &Peer| Scheduler::new(model, [peer.address]).line("engineType: none");
        let gateway = Gateway::start(&more(Config::new([pool("m1", &m1), pool("m2", &m2)])));
        Self { m1, m2, gateway }
    }

    /// No endpoint got a request.
    pub(crate) fn untouched(&self) -> bool {
        self.m1.seen().is_empty() && self.m2.seen().is_empty()
    }

    /// Requests that ended in `outcome`, of any pool.
    pub(crate) fn counted(&self, outcome: &str) -> f64 {
        let label = format!(r#"outcome="{outcome}""#);
        self.gateway.admin.metric("inference_gateway_requests_total", &[&label]).unwrap_or(0.0)
    }

    /// Checks that this refusal is whole: its object, its one log line with the same outcome, no endpoint touched.
    pub(crate) fn refused(&self, answer: &Answer, status: u16, code: &str, param: Option<&str>) {
        assert_eq!((answer.status, answer.code().as_str()), (status, code), "{}", answer.text());
        let error = &answer.json()["error"];
        assert_eq!(error["param"].as_str(), param, "{error}");
        assert!(error["message"].as_str().is_some_and(|text| text.len() > 20), "it says what to do: {error}");
        assert!(error["type"].as_str().is_some_and(|kind| kind.ends_with("_error")), "{error}");
        assert_eq!(answer.header("content-type"), Some("application/json"));
        let line = self.gateway.request(answer.header("x-request-id").expect("an id"));
        assert_eq!((line["outcome"].as_str(), line["status"].as_u64()), (Some(code), Some(status.into())), "{line}");
        assert!(self.untouched(), "{:?} {:?}", self.m1.seen(), self.m2.seen());
    }
}
