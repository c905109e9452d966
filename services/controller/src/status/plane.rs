//! How far the rollout of a data plane is.

use serde_json::Value;

use crate::{
    kind::Id,
    picture::{Picture, number, text},
    seen::Seen,
};

/// `status.schedulers[].rolloutState`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rollout {
    Pending,
    Progressing,
    Available,
    Degraded,
}

impl Rollout {
    /// As the status writes it.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Progressing => "Progressing",
            Self::Available => "Available",
            Self::Degraded => "Degraded",
        }
    }
}

/// A Deployment, as its own controller counts it.
#[derive(Clone, Debug, Default)]
pub(super) struct PlaneState {
    exists: bool,
    /// Whether the counts are of its present form.
    current: bool,
    wanted: i64,
    updated: i64,
    available: i64,
    total: i64,
    /// It took too long.
    overdue: bool,
    /// Why pods could not be made.
    pub(super) refused: Option<String>,
}

impl PlaneState {
    pub(super) fn of(picture: &Picture, deployment: &Id) -> Self {
        let Some(seen) = picture.ours(deployment).and_then(Seen::object) else { return Self::default() };
        let condition = |kind: &str| {
            let all = seen.pointer("/status/conditions").and_then(Value::as_array)?;
            all.iter().find(|it| it["type"] == kind)
        };
        let failure = condition("ReplicaFailure").filter(|it| it["status"] == "True");
        Self {
            exists: true,
            current: number(&seen, "/status/observedGeneration") >= number(&seen, "/metadata/generation"),
            wanted: seen.pointer("/spec/replicas").and_then(Value::as_i64).unwrap_or(1),
            updated: number(&seen, "/status/updatedReplicas"),
            available: number(&seen, "/status/availableReplicas"),
            total: number(&seen, "/status/replicas"),
            overdue: condition("Progressing").is_some_and(|it| it["reason"] == "ProgressDeadlineExceeded"),
            refused: failure.map(|it| text(it, "/message").to_owned()),
        }
    }

    /// Whether requests are answered at all.
    pub(super) const fn serves(&self) -> bool {
        self.exists && self.available > 0
    }

    /// Whether requests are answered by pods of the present form, and none of an earlier one is left.
    pub(super) const fn is_ready(&self) -> bool {
        self.serves() && self.current && self.updated >= self.total && self.total > 0
    }

    pub(super) fn rollout(&self) -> Rollout {
        if !self.exists || (!self.serves() && !self.overdue && self.refused.is_none()) {
            return Rollout::Pending;
        }
        if self.overdue || self.refused.is_some() {
            return Rollout::Degraded;
        }
        let rolling = !self.current || self.updated < self.wanted || self.total > self.wanted;
        if rolling {
            return Rollout::Progressing;
        }
        if self.available < self.wanted { Rollout::Degraded } else { Rollout::Available }
    }

    pub(super) fn message(&self) -> String {
        if !self.exists {
            return "the data plane has not been made yet".into();
        }
        let mut message = format!("{} of {} pods of the data plane serve", self.available, self.wanted);
        if self.updated < self.total {
            message.push_str(&format!(", {} of an earlier form are left", self.total - self.updated));
        }
        if self.overdue {
            message.push_str(", and the rollout has made no progress for 10 minutes");
        }
        message
    }
}
