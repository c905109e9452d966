//! Writes one status.
//!
//! Lists of parents are written whole, and other controllers write to them too. So the object is read again right before,
//! what is ours is put into what stands there now, and the write is bound to the version that was read: whoever comes in
//! between makes it fail, and the next round does it again.

use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, Patch, PatchParams},
    core::GroupVersionKind,
};
use serde_json::{Value, json};

use super::{Due, StatusKind, merge::merged};

/// The definition that tells which release of the Gateway API is installed, and where.
const CLASS_DEFINITION: &str = "gatewayclasses.gateway.networking.k8s.io";
const RELEASE_ANNOTATION: &str = "gateway.networking.k8s.io/bundle-version";

impl StatusKind {
    /// As the client names it.
    fn resource(self) -> ApiResource {
        let (group, kind, plural) = match self {
            Self::GatewayClass => ("gateway.networking.k8s.io", "GatewayClass", "gatewayclasses"),
            Self::Gateway => ("gateway.networking.k8s.io", "Gateway", "gateways"),
            Self::HttpRoute => ("gateway.networking.k8s.io", "HTTPRoute", "httproutes"),
            Self::InferencePool => ("inference.networking.k8s.io", "InferencePool", "inferencepools"),
        };
        ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, "v1", kind), plural)
    }
}

/// What became of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrote {
    /// It was made.
    Written,
    /// It is not needed, or no longer right: the object is gone, changed, or says already what it should.
    Nothing,
}

/// Writes a status that is due, with `now` (RFC 3339, whole seconds) as the time of what changes.
///
/// # Errors
/// Those of the API server; 409 where somebody else wrote in between.
pub async fn write(client: &Client, due: &Due, manager: &str, now: &str) -> Result<Wrote, kube::Error> {
    let resource = due.place.kind.resource();
    let key = &due.place.key;
    let api: Api<DynamicObject> = if key.namespace.is_empty() {
        Api::all_with(client.clone(), &resource)
    } else {
        Api::namespaced_with(client.clone(), &key.namespace, &resource)
    };
    let Some(found) = api.get_opt(&key.name).await? else { return Ok(Wrote::Nothing) };
    // What was decided is of one generation of one object, and is said of no other.
    let is_same =
        found.metadata.uid.as_deref() == Some(due.uid.as_str()) && found.metadata.generation == Some(due.generation);
    if !is_same {
        return Ok(Wrote::Nothing);
    }
    let status = found.data.get("status").unwrap_or(&Value::Null);
    let Some(wanted) = merged(status, &due.say, due.generation, now) else { return Ok(Wrote::Nothing) };
    let body = json!({ "metadata": { "resourceVersion": found.metadata.resource_version }, "status": wanted });
    let parameters = PatchParams { field_manager: Some(manager.to_owned()), ..PatchParams::default() };
    api.patch_status(&key.name, &parameters, &Patch::Merge(&body)).await?;
    Ok(Wrote::Written)
}

/// The release of the Gateway API that is installed (`v1.6.3`), where it says so.
///
/// # Errors
/// Those of the API server.
pub async fn installed_release(client: &Client) -> Result<Option<String>, kube::Error> {
    let kind = GroupVersionKind::gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
    let resource = ApiResource::from_gvk_with_plural(&kind, "customresourcedefinitions");
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    let found = api.get_metadata_opt(CLASS_DEFINITION).await?;
    Ok(found.and_then(|it| it.metadata.annotations?.remove(RELEASE_ANNOTATION)))
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use api::cluster::ObjectKey;
    use kube::client::Body;
    use routing::Verdict;

    use super::*;
    use crate::gateway_api::{Entry, Place, Say};

    /// What a server was sent.
    type Log = Arc<Mutex<Vec<(String, Value)>>>;

    /// A server that holds one pool, and notes what is written to it.
    fn server(pool: Value) -> (Client, Log) {
        let log = Log::default();
        let noted = Arc::clone(&log);
        let answer = tower::service_fn(move |request: axum::http::Request<Body>| {
            let (log, pool) = (Arc::clone(&noted), pool.clone());
            async move {
                let (head, body) = request.into_parts();
                let body = body.collect_bytes().await.map_err(std::io::Error::other)?;
                if head.method != "GET" {
                    let sent = serde_json::from_slice(&body).unwrap();
                    log.lock().unwrap().push((format!("{} {}", head.method, head.uri.path()), sent));
                }
                Ok::<_, std::io::Error>(axum::http::Response::new(Body::from(pool.to_string().into_bytes())))
            }
        });
        (Client::new(answer, "default"), log)
    }

    fn pool(generation: i64, parents: Value) -> Value {
        json!({
            "apiVersion": "inference.networking.k8s.io/v1", "kind": "InferencePool",
            "metadata": {"name": "p", "namespace": "infra", "uid": "u", "generation": generation, "resourceVersion": "77"},
            "status": {"parents": parents},
        })
    }

    fn due() -> Due {
        let parent = json!({"kind": "Gateway", "name": "gw"});
        let entries = vec![Entry { parent, conditions: vec![Verdict::holds("Accepted", "fine")] }];
        let place = Place { kind: StatusKind::InferencePool, key: ObjectKey::new("infra", "p") };
        Due { place, uid: "u".into(), generation: 2, say: Say::Parents { controller: "a.b/c".into(), entries } }
    }

    #[tokio::test]
    async fn a_write_keeps_others_entries_and_is_bound_to_what_was_read() {
        // Somebody wrote after our snapshot.
        let other = json!({"parentRef": {"name": "x"}, "controllerName": "d.e/f"});
        let (client, log) = server(pool(2, json!([other])));
        assert_eq!(write(&client, &due(), "me", "t1").await.unwrap(), Wrote::Written);
        let sent = log.lock().unwrap().clone();
        assert_eq!(sent.len(), 1);
        assert_eq!(sent[0].0, "PATCH /apis/inference.networking.k8s.io/v1/namespaces/infra/inferencepools/p/status");
        assert_eq!(sent[0].1["metadata"]["resourceVersion"], "77");
        assert_eq!(sent[0].1["status"]["parents"][0], other);
        assert_eq!(sent[0].1["status"]["parents"][1]["conditions"][0]["lastTransitionTime"], "t1");
    }

    #[tokio::test]
    async fn what_was_decided_of_another_generation_or_object_is_not_written() {
        let (client, log) = server(pool(3, json!([])));
        assert_eq!(write(&client, &due(), "me", "t1").await.unwrap(), Wrote::Nothing);
        let (client, second) = server(pool(2, json!([])));
        let another = Due { uid: "v".into(), ..due() };
        assert_eq!(write(&client, &another, "me", "t1").await.unwrap(), Wrote::Nothing);
        assert!(log.lock().unwrap().is_empty() && second.lock().unwrap().is_empty());
    }
}
