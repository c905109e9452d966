//! Certificates that are issued for configs and imported into AWS Certificate Manager, where the load balancer finds them.
//!
//! cert-manager issues into a Secret and says when; what it issued is imported, and imported again under the same name
//! when it is renewed. A certificate in AWS is the one thing that Kubernetes cannot remove, so a config that has one, and no other,
//! carries a finalizer: put there before the import, taken away when AWS has let go.

mod acm;
mod job;
mod worker;

use std::{collections::BTreeMap, sync::Arc};

use api::cluster::ObjectKey;
use parking_lot::Mutex;

pub use self::{
    acm::{Acm, AcmError},
    job::{Issued, Job, jobs, told},
    worker::{Means, work},
};
use crate::status::Certificate;

/// On configs that have a certificate in ACM.
pub const FINALIZER: &str = "inference.sagemaker.aws.amazon.com/acm-certificate";

/// What became of certificates, by config and its uid. The status keeps it across restarts.
#[derive(Clone, Debug, Default)]
pub struct Outcomes(Arc<Mutex<BTreeMap<(ObjectKey, String), Certificate>>>);

impl Outcomes {
    /// Of one config.
    #[must_use]
    pub fn of(&self, key: &ObjectKey, uid: &str) -> Option<Certificate> {
        self.0.lock().get(&(key.clone(), uid.to_owned())).cloned()
    }

    /// Whether this is news.
    fn set(&self, key: &ObjectKey, uid: &str, certificate: Certificate) -> bool {
        let mut all = self.0.lock();
        all.insert((key.clone(), uid.to_owned()), certificate.clone()) != Some(certificate)
    }

    fn forget(&self, key: &ObjectKey, uid: &str) {
        self.0.lock().remove(&(key.clone(), uid.to_owned()));
    }
}
