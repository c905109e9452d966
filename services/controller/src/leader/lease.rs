//! Asks for the Lease, again and again.

use anyhow::Context;
use jiff::Timestamp;
use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
};
use kube::{Api, Client, api::PostParams};
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

use super::{
    LEASE, LEASE_NAME, Leadership, RENEW_WITHIN, RETRY,
    verdict::{Record, Verdict, Watchman},
};

/// Stands for election until `ended` resolves, then gives the lease up if it is held.
pub async fn stand(
    client: Client,
    namespace: &str,
    identity: &str,
    leadership: &Leadership,
    ended: impl Future<Output = ()>,
) {
    let candidate = Candidate { leases: Api::namespaced(client, namespace), identity, leadership };
    let mut ended = std::pin::pin!(ended);
    let mut watchman = Watchman::default();
    let mut ticks = interval(RETRY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = &mut ended => break,
            _ = ticks.tick() => {}
        }
        let asked = Instant::now();
        // A lease that is not renewed in time is lost, so no call may take longer.
        let tried = tokio::select! {
            () = &mut ended => break,
            tried = timeout(RENEW_WITHIN, candidate.attempt(&mut watchman)) => tried,
        };
        match tried {
            Ok(Ok(true)) => leadership.extend(asked),
            Ok(Ok(false)) => candidate.not_held("another copy holds the lease"),
            Ok(Err(error)) => candidate.failed(&format!("{error:#}")),
            Err(_) => candidate.failed("the API server did not answer in time"),
        }
    }
    if leadership.holds() {
        leadership.lose();
        match timeout(RETRY, candidate.release()).await {
            Ok(Ok(())) => tracing::info!("the lease was given up"),
            Ok(Err(error)) => tracing::warn!("the lease could not be given up: {error:#}"),
            Err(_) => tracing::warn!("the lease could not be given up in time"),
        }
    }
}

struct Candidate<'a> {
    leases: Api<Lease>,
    identity: &'a str,
    leadership: &'a Leadership,
}

impl Candidate<'_> {
    /// Whether the lease is ours after this try.
    async fn attempt(&self, watchman: &mut Watchman) -> anyhow::Result<bool> {
        let found = self.leases.get_opt(LEASE_NAME).await.context("reading the lease")?;
        let age = self.leadership.started.elapsed();
        match watchman.judge(found.as_ref().map(record), self.identity, age) {
            Verdict::Wait => Ok(false),
            Verdict::Take => self.write(found, Timestamp::now()).await,
            // Another process of the same name that was here before is none of ours: it is gone, or we would be told so
            // by the conflict of two writes.
            Verdict::Renew => self.write(found, Timestamp::now()).await,
        }
    }

    /// Writes our name and the time; false if somebody was faster.
    async fn write(&self, found: Option<Lease>, now: Timestamp) -> anyhow::Result<bool> {
        let before = found.as_ref().and_then(|lease| lease.spec.clone()).unwrap_or_default();
        let renews = before.holder_identity.as_deref() == Some(self.identity);
        let transitions = before.lease_transitions.unwrap_or(0);
        let spec = LeaseSpec {
            holder_identity: Some(self.identity.to_owned()),
            lease_duration_seconds: i32::try_from(LEASE.as_secs()).ok(),
            acquire_time: if renews { before.acquire_time } else { Some(MicroTime(now)) },
            renew_time: Some(MicroTime(now)),
            lease_transitions: Some(if renews { transitions } else { transitions.saturating_add(1) }),
            ..LeaseSpec::default()
        };
        let parameters = PostParams { field_manager: Some(api::names::MANAGED_BY.into()), ..PostParams::default() };
        let written = match found {
            // With the resource version that was read: two writers cannot both succeed.
            Some(lease) => {
                let lease = Lease { spec: Some(spec), ..lease };
                self.leases.replace(LEASE_NAME, &parameters, &lease).await
            }
            None => {
                let metadata = ObjectMeta { name: Some(LEASE_NAME.into()), ..ObjectMeta::default() };
                self.leases.create(&parameters, &Lease { metadata, spec: Some(spec) }).await
            }
        };
        match written {
            Ok(_) => Ok(true),
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(false),
            Err(error) => Err(error).context("writing the lease"),
        }
    }

    async fn release(&self) -> anyhow::Result<()> {
        let Some(mut lease) = self.leases.get_opt(LEASE_NAME).await? else { return Ok(()) };
        let spec = lease.spec.get_or_insert_default();
        if spec.holder_identity.as_deref() == Some(self.identity) {
            spec.holder_identity = Some(String::new());
            self.leases.replace(LEASE_NAME, &PostParams::default(), &lease).await?;
        }
        Ok(())
    }

    fn not_held(&self, why: &str) {
        if *self.leadership.changes.borrow() {
            tracing::warn!("the lease was lost: {why}");
            self.leadership.lose();
        }
    }

    /// A failed try leaves the lease ours until its time is over.
    fn failed(&self, why: &str) {
        tracing::warn!("no word on the lease: {why}");
        if !self.leadership.holds() {
            self.not_held(why);
        }
    }
}

fn record(lease: &Lease) -> Record {
    let spec = lease.spec.clone().unwrap_or_default();
    Record {
        holder: spec.holder_identity.unwrap_or_default(),
        renewed: spec.renew_time.map(|time| time.0.to_string()).unwrap_or_default(),
    }
}
