//! Where a picker sends a request: to endpoints of the pool itself, or nowhere.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Response, response};
use pool::EndpointId;
use protocol::Reason;
use proxy::client::Payload;
use smallvec::SmallVec;
use tokio::time::timeout;

use super::{
    conversation::{self, AskError, Conversation, Decided, Picked},
    edits::Edits,
};
use crate::{
    by_hand::{ForeignPicker, OnFailure, Picker},
    metrics::Outcome,
    pools::Lease,
    rejection::Rejection,
    stage::{Reply, Routed, whole},
};

/// What a picker made of a request.
pub enum Directed {
    /// It goes on; where to stands in it.
    On,
    /// The picker's answer.
    Answered(Reply),
}

/// What a picker said of a request that goes on.
pub struct Guided {
    /// Of the pool, best first; never empty.
    pub endpoints: SmallVec<[EndpointId; 4]>,
    edits: Edits,
    conversation: Box<Conversation>,
}

impl Guided {
    /// Changes the head that is sent to an endpoint.
    pub fn change(&self, headers: &mut HeaderMap) {
        self.edits.change(headers);
    }

    /// Tells the picker of the answer of the endpoint where `lease` has its place, and stays with the lease until that
    /// has ended.
    pub async fn answered(mut self, head: &mut response::Parts, lease: &mut Lease) {
        let served = lease.ranked.first().and_then(|id| lease.endpoint(*id));
        if let Some(served) = served {
            self.conversation.answered(head, served.destination.address).await;
        }
        lease.conversation = Some(self.conversation);
    }
}

/// Asks the picker of the request's pool, if that is another than us.
///
/// # Errors
/// When it cannot be asked, or says nothing that can be used, and requests are then to be refused.
pub async fn direct(routed: &mut Routed) -> Result<Directed, Rejection> {
    let picker = match &routed.served.picker {
        Picker::Ours => return Ok(Directed::On),
        Picker::Foreign(picker) => picker.clone(),
    };
    let record = &routed.record;
    let left = routed.times.request.map(|limit| limit.saturating_sub(record.now().since(record.started)));
    // Who picks has a limit of its own.
    let asking = timeout(left.unwrap_or(Duration::MAX), ask(&picker, routed)).await;
    match asking.unwrap_or(Err(AskError::Timeout)) {
        Ok(directed) => Ok(directed),
        Err(error) => failed(&picker, &error, routed),
    }
}

async fn ask(picker: &ForeignPicker, routed: &mut Routed) -> Result<Directed, AskError> {
    let Payload::Whole(body) = &routed.body else {
        return Err(AskError::Broken("the request's body is not all there, a fault of the gateway"));
    };
    let decided = conversation::ask(&picker.link, &routed.head, body, routed.routes.body_bytes_max).await?;
    let Picked { endpoints, edits, body, conversation } = match decided {
        Decided::Picked(picked) => *picked,
        Decided::Answered(response) => return Ok(Directed::Answered(answer(response, routed))),
    };
    let known = routed.served.pool.endpoints();
    let of_address =
        |address| known.iter().find(|(_, handle)| handle.destination.address == address).map(|(id, _)| *id);
    let endpoints: SmallVec<[EndpointId; 4]> = endpoints.into_iter().filter_map(of_address).collect();
    if endpoints.is_empty() {
        return Err(AskError::Broken("none of the endpoints that it named is the pool's"));
    }
    if let Some(body) = body {
        let bytes = usize::try_from(body.len_bytes()).unwrap_or(usize::MAX);
        routed.held.take(bytes).map_err(|_| AskError::Broken("there is no memory for the body that it made"))?;
        routed.body = body.into();
    }
    routed.guided = Some(Box::new(Guided { endpoints, edits, conversation: Box::new(conversation) }));
    Ok(Directed::On)
}

fn failed(picker: &ForeignPicker, error: &AskError, routed: &mut Routed) -> Result<Directed, Rejection> {
    match picker.on_failure {
        OnFailure::PickOurselves => {
            routed.record.detail(format!("picked without the picker {}: {error}", picker.service));
            Ok(Directed::On)
        }
        OnFailure::Refuse => {
            let message = "the endpoint picker of this pool cannot be asked: try again in a moment";
            Err(Rejection::new(Reason::NoEndpoint, message).detail(format!("picker {}: {error}", picker.service)))
        }
    }
}

/// The picker's refusal is passed on as an endpoint's would be.
fn answer(response: Response<Bytes>, routed: &mut Routed) -> Reply {
    let (status, record) = (response.status(), &mut routed.record);
    record.status = Some(status.as_u16());
    record.bytes_out = response.body().len() as u64;
    record.end(if status.is_success() {
        Outcome::Ok
    } else if status.is_redirection() {
        Outcome::Redirect
    } else if status.is_client_error() {
        Outcome::Upstream4xx
    } else {
        Outcome::Upstream5xx
    });
    whole(response)
}
