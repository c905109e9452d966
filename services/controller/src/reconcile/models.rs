//! Keeps the configs' entries of models, and tells models what became of their wish.

use std::collections::{BTreeMap, BTreeSet};

use api::{cluster::ObjectKey, names};
use kube::{
    Api,
    api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams, Preconditions},
};
use serde_json::{Value, json};

use super::{Reconciler, config_resource};
use crate::{
    act::NotWritten,
    events::{self, Notice, Tone},
    models::{Merged, Model, ModelKey, State, by_config, comes_from_models, merged, state},
    picture::{Picture, text},
};

impl Reconciler {
    /// One look at all models. What fails is tried again at the next look.
    pub(super) async fn follow_models(&self, picture: &Picture) {
        // As long as no model was ever listed, nothing is known of any, and no entry is taken away.
        let Some(models) = &picture.models else { return };
        let wanted = by_config(models);
        let mut configs: BTreeSet<ObjectKey> = wanted.keys().cloned().collect();
        let known = picture.objects.configs.iter().filter(|(_, it)| comes_from_models(&it.metadata.annotations));
        configs.extend(known.map(|(key, _)| key.clone()));
        let nobody = BTreeMap::new();
        for key in configs {
            let models = wanted.get(&key).unwrap_or(&nobody);
            if let Err(error) = self.merge(picture, &key, models).await {
                tracing::warn!(%key, "entries of models: {error}");
            }
        }
        for (key, model) in models {
            if let Err(error) = self.tell_model(picture, key, model).await {
                tracing::warn!(kind = key.0.name(), key = %key.1, "status of a model: {error}");
            }
        }
    }

    async fn merge(
        &self,
        picture: &Picture,
        key: &ObjectKey,
        models: &BTreeMap<&str, &Model>,
    ) -> Result<(), NotWritten> {
        let seen = picture.objects.configs.get(key).map(|it| json!({"metadata": it.metadata, "spec": it.spec}));
        if merged(seen.as_ref(), models) == Merged::Same {
            return Ok(());
        }
        let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), &key.namespace, &config_resource());
        let failed = |error: kube::Error| NotWritten::of(key.to_string(), &error);
        self.writer
            .counted("apply", key.to_string(), async {
                // A list is replaced as a whole, so it is changed in the form that is there now, or not at all.
                let found = api.get_opt(&key.name).await.map_err(failed)?;
                let found = found.and_then(|found| serde_json::to_value(found).ok());
                let at = |pointer| found.as_ref().map(|found| text(found, pointer).to_owned());
                match merged(found.as_ref(), models) {
                    Merged::Same => {}
                    Merged::Delete => {
                        let same = Preconditions { uid: at("/metadata/uid"), ..Preconditions::default() };
                        let parameters = DeleteParams::background().preconditions(same);
                        api.delete(&key.name, &parameters).await.map_err(failed)?;
                    }
                    Merged::Write(mut body) => match at("/metadata/resourceVersion") {
                        Some(version) => {
                            body["metadata"]["resourceVersion"] = json!(version);
                            let manager = Some(names::MANAGED_BY.to_owned());
                            let parameters = PatchParams { field_manager: manager, ..PatchParams::default() };
                            api.patch(&key.name, &parameters, &Patch::Merge(&body)).await.map_err(failed)?;
                        }
                        None => {
                            let config = whole(key, body);
                            let manager = Some(names::MANAGED_BY.to_owned());
                            let parameters = PostParams { field_manager: manager, ..PostParams::default() };
                            api.create(&parameters, &config?).await.map_err(failed)?;
                        }
                    },
                }
                Ok(())
            })
            .await
    }

    async fn tell_model(&self, picture: &Picture, key: &ModelKey, model: &Model) -> Result<(), NotWritten> {
        let (kind, place) = key;
        let state = state(&place.namespace, &place.name, model, &picture.objects);
        let wanted = model.gateway.as_ref().map(|gateway| (state.name().to_owned(), gateway.clone()));
        if model.going || wanted == model.told {
            return Ok(());
        }
        let said = wanted.map(|(state, name)| json!({"state": state, "name": name}));
        let patch =
            json!({"metadata": {"uid": model.uid}, "status": {"inferenceGateway": said.unwrap_or(Value::Null)}});
        let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), &place.namespace, &kind.resource());
        self.writer
            .counted("status", place.to_string(), async {
                let written = api.patch_status(&place.name, &PatchParams::default(), &Patch::Merge(&patch)).await;
                written.map(|_| ()).map_err(|error| NotWritten::of(place.to_string(), &error))
            })
            .await?;
        let notice = match state {
            State::Failed(text) => Notice { tone: Tone::Warning, reason: "InferenceGatewayFailed", text },
            State::Ready => {
                let text = format!("behind the gateway {}", model.gateway.as_deref().unwrap_or_default());
                Notice { tone: Tone::Normal, reason: "InferenceGatewayReady", text }
            }
            State::None | State::Pending => return Ok(()),
        };
        let about = events::reference(&format!("{}/v1", names::GROUP), kind.name(), place, &model.uid);
        self.publish(&about, &notice).await;
        Ok(())
    }
}

fn whole(key: &ObjectKey, mut body: Value) -> Result<DynamicObject, NotWritten> {
    body["metadata"]["name"] = json!(key.name);
    body["metadata"]["namespace"] = json!(key.namespace);
    body["apiVersion"] = json!(format!("{}/{}", names::GROUP, names::CONFIG_VERSION));
    body["kind"] = json!("InferenceGatewayConfig");
    serde_json::from_value(body)
        .map_err(|error| NotWritten::Refused { id: key.to_string(), message: error.to_string() })
}
