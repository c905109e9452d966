//! Does the jobs, one at a time: there is one certificate per config and a year between two of them.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use api::{cluster::ObjectKey, names};
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, Patch, PatchParams},
};
use serde_json::json;
use tokio::{sync::watch, time::sleep};

use super::{Acm, AcmError, FINALIZER, Issued, Job, Outcomes};
use crate::{act::NotWritten, act::Writer, mirror::Mirror, status::Certificate};

/// Until failed jobs are tried again: a load balancer takes minutes to go.
const RETRY: Duration = Duration::from_secs(10);
/// Who owns the finalizer in a config's metadata.
const MANAGER: &str = "inference-gateway-controller-acm";

/// What the worker works with.
pub struct Means {
    pub client: Client,
    pub config_resource: ApiResource,
    pub writer: Arc<Writer>,
    pub mirror: Arc<Mirror>,
    pub outcomes: Outcomes,
}

/// Works until nobody hands in jobs any more.
pub async fn work(means: Means, mut due: watch::Receiver<BTreeMap<ObjectKey, Job>>) {
    let mut acm = None;
    loop {
        let jobs = due.borrow_and_update().clone();
        let mut left = 0;
        for (key, job) in &jobs {
            // Credentials are looked for only where a certificate is asked for.
            let acm = match &acm {
                Some(acm) => acm,
                None => acm.insert(Acm::from_environment().await),
            };
            left += usize::from(!means.done(acm, key, job).await);
        }
        tokio::select! {
            changed = due.changed() => if changed.is_err() { return },
            () = sleep(RETRY), if left > 0 => {}
        }
    }
}

impl Means {
    async fn done(&self, acm: &Acm, key: &ObjectKey, job: &Job) -> bool {
        let (uid, trouble) = match job {
            Job::Import { uid, arn, issued } => (uid, self.import(acm, key, uid, arn.as_deref(), issued).await.err()),
            Job::Free { uid, arn } => (uid, self.free(acm, key, uid, arn.as_deref()).await.err()),
        };
        let Some(trouble) = trouble else { return true };
        tracing::warn!(%key, "certificate: {trouble}");
        let before = self.outcomes.of(key, uid).unwrap_or_default();
        if self.outcomes.set(key, uid, Certificate { trouble: Some(trouble), ..before }) {
            self.mirror.nudge();
        }
        false
    }

    async fn import(
        &self,
        acm: &Acm,
        key: &ObjectKey,
        uid: &str,
        arn: Option<&str>,
        issued: &Issued,
    ) -> Result<(), String> {
        let before = self.outcomes.of(key, uid);
        // The status may not have been written yet.
        let is_there = |it: &Certificate| it.arn.is_some() && it.issued_at.as_ref() == Some(&issued.at);
        if before.as_ref().is_some_and(|it| is_there(it) && it.trouble.is_none()) {
            return Ok(());
        }
        self.hold(key, uid, &[FINALIZER]).await.map_err(|error| error.to_string())?;
        let text = |error: AcmError| error.to_string();
        let arn = arn.map(str::to_owned).or_else(|| before.and_then(|it| it.arn));
        let arn = match (arn, issued.dns_names.first()) {
            (Some(arn), _) => Some(arn),
            (None, Some(domain)) => acm.find(domain, uid).await.map_err(text)?,
            (None, None) => None,
        };
        let arn = acm.import(arn.as_deref(), issued, uid).await.map_err(text)?;
        tracing::info!(%key, %arn, "certificate imported");
        let certificate = Certificate {
            arn: Some(arn),
            issued_at: Some(issued.at.clone()),
            dns_names: issued.dns_names.clone(),
            trouble: None,
        };
        if self.outcomes.set(key, uid, certificate) {
            self.mirror.nudge();
        }
        Ok(())
    }

    async fn free(&self, acm: &Acm, key: &ObjectKey, uid: &str, arn: Option<&str>) -> Result<(), String> {
        let arn = arn.map(str::to_owned).or_else(|| self.outcomes.of(key, uid).and_then(|it| it.arn));
        if let Some(arn) = arn {
            acm.delete(&arn).await.map_err(|error| error.to_string())?;
            tracing::info!(%key, %arn, "certificate deleted");
        }
        self.hold(key, uid, &[]).await.map_err(|error| error.to_string())?;
        self.outcomes.forget(key, uid);
        Ok(())
    }

    /// Puts the finalizer there, or takes it away. Those of others are not touched.
    async fn hold(&self, key: &ObjectKey, uid: &str, finalizers: &[&str]) -> Result<(), NotWritten> {
        let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), &key.namespace, &self.config_resource);
        let body = json!({
            "apiVersion": format!("{}/{}", names::GROUP, names::CONFIG_VERSION), "kind": "InferenceGatewayConfig",
            "metadata": {"name": key.name, "namespace": key.namespace, "uid": uid, "finalizers": finalizers},
        });
        self.writer
            .counted("finalizer", key.to_string(), async {
                let written = api.patch(&key.name, &PatchParams::apply(MANAGER).force(), &Patch::Apply(&body)).await;
                match written {
                    Ok(_) => Ok(()),
                    // It is gone already.
                    Err(kube::Error::Api(status)) if status.code == 404 && finalizers.is_empty() => Ok(()),
                    Err(error) => Err(NotWritten::of(key.to_string(), &error)),
                }
            })
            .await
    }
}
