//! Events: what an operator sees under `kubectl describe`.

use k8s_openapi::api::core::v1::ObjectReference;
use kube::{
    Client,
    runtime::events::{Event, EventType, Recorder, Reporter},
};

use api::{
    cluster::{ObjectKey, ObjectMeta},
    names,
};

use crate::plan::Subject;

/// Longest text of an event, in bytes, as the API has it.
const NOTE_MAX: usize = 1024;
/// Likewise of its action.
const ACTION_MAX: usize = 128;

/// How an event is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    /// A step was made.
    Normal,
    /// A person should look.
    Warning,
}

/// One thing to tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    pub tone: Tone,
    pub reason: &'static str,
    pub text: String,
}

/// Whoever tells.
#[derive(Clone)]
pub struct Teller(Recorder);

impl Teller {
    /// Tells as `identity`.
    #[must_use]
    pub fn new(client: Client, identity: &str) -> Self {
        let reporter = Reporter { controller: names::MANAGED_BY.into(), instance: Some(identity.to_owned()) };
        Self(Recorder::new(client, reporter))
    }

    /// Tells `notice` of an object.
    ///
    /// # Errors
    /// Those of the API server.
    pub async fn tell(&self, about: &ObjectReference, notice: &Notice) -> Result<(), kube::Error> {
        let type_ = match notice.tone {
            Tone::Normal => EventType::Normal,
            Tone::Warning => EventType::Warning,
        };
        let event = Event {
            type_,
            reason: notice.reason.to_owned(),
            note: Some(cut(&notice.text, NOTE_MAX)),
            // Events of one action and reason are counted as one, so the action is as particular as the text.
            action: cut(&notice.text, ACTION_MAX),
            secondary: None,
        };
        self.0.publish(&event, about).await
    }
}

/// A config or Gateway, to tell of.
#[must_use]
pub fn of_subject(subject: &Subject, metadata: &ObjectMeta) -> ObjectReference {
    let (api_version, kind) = match subject {
        Subject::Config(_) => (format!("{}/{}", names::GROUP, names::CONFIG_VERSION), "InferenceGatewayConfig"),
        Subject::Gateway(_) => ("gateway.networking.k8s.io/v1".to_owned(), "Gateway"),
    };
    reference(&api_version, kind, &metadata.key(), &metadata.uid)
}

/// An object to tell of.
#[must_use]
pub fn reference(api_version: &str, kind: &str, key: &ObjectKey, uid: &str) -> ObjectReference {
    ObjectReference {
        api_version: Some(api_version.to_owned()),
        kind: Some(kind.to_owned()),
        name: Some(key.name.clone()),
        namespace: Some(key.namespace.clone()),
        uid: Some(uid.to_owned()),
        ..ObjectReference::default()
    }
}

fn cut(text: &str, bytes_max: usize) -> String {
    let mut end = text.len().min(bytes_max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].to_owned()
}
