//! What is to be done about certificates, decided from the picture alone.

use std::collections::BTreeMap;

use api::{
    cluster::{Object, ObjectKey},
    document::InferenceGatewayConfigSpec,
    names,
};
use base64::prelude::{BASE64_STANDARD, Engine};
use serde_json::Value;

use super::FINALIZER;
use crate::{
    judge::{Judged, Verdict},
    kind::{Id, Kind},
    picture::{Picture, text},
    status::Certificate,
    wanted::{Settings, config::Tls},
};

/// One thing to do for one config.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Job {
    /// Bring what was issued into ACM.
    Import { uid: String, arn: Option<String>, issued: Issued },
    /// Take it out, and let the config go.
    Free { uid: String, arn: Option<String> },
}

/// What cert-manager issued.
#[derive(Clone, PartialEq, Eq)]
pub struct Issued {
    pub certificate: String,
    pub chain: Option<String>,
    pub key: String,
    /// RFC 3339: the beginning of its validity.
    pub at: String,
    pub dns_names: Vec<String>,
}

impl std::fmt::Debug for Issued {
    /// Without the key.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Issued").field("at", &self.at).field("dns_names", &self.dns_names).finish_non_exhaustive()
    }
}

/// Everything that is due.
#[must_use]
pub fn jobs(picture: &Picture, configs: &BTreeMap<ObjectKey, Judged>, settings: &Settings) -> BTreeMap<ObjectKey, Job> {
    let mut jobs = BTreeMap::new();
    for (key, config) in &picture.objects.configs {
        let wish = configs.get(key).and_then(|judged| match &judged.verdict {
            Verdict::InForce(spec) => Some(spec.as_ref()),
            Verdict::Refused { .. } => None,
        });
        jobs.extend(job(picture, key, config, wish, settings).map(|job| (key.clone(), job)));
    }
    jobs
}

fn job(
    picture: &Picture,
    key: &ObjectKey,
    config: &Object<Value>,
    wish: Option<&InferenceGatewayConfigSpec>,
    settings: &Settings,
) -> Option<Job> {
    let uid = config.metadata.uid.clone();
    let told = told(config);
    let arn = told.as_ref().and_then(|it| it.arn.clone());
    let holds = config.metadata.finalizers.iter().any(|it| it == FINALIZER);
    let going = config.metadata.is_going();
    let asks = wish.is_some_and(|spec| Tls::of(spec.tls.as_ref()) == Tls::Issued);
    // A config that is refused may yet be mended, and keeps what it has.
    if holds && (going || (wish.is_some() && !asks)) {
        return Some(Job::Free { uid, arn });
    }
    if going || !asks {
        return None;
    }
    let issued = issued(picture, key, settings)?;
    let is_current = told.is_some_and(|it| it.arn.is_some() && it.issued_at.as_ref() == Some(&issued.at));
    (!is_current || !holds).then_some(Job::Import { uid, arn, issued })
}

/// What stands in a config's status.
#[must_use]
pub fn told(config: &Object<Value>) -> Option<Certificate> {
    let tls = config.status.as_ref()?.get("tls")?.as_object()?;
    let text = |key: &str| tls.get(key).and_then(Value::as_str).map(str::to_owned);
    let names = tls.get("dnsNames").and_then(Value::as_array).cloned().unwrap_or_default();
    Some(Certificate {
        arn: text("acmArn"),
        issued_at: text("issuedAt"),
        dns_names: names.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        trouble: None,
    })
}

/// The newest certificate, once cert-manager says that it is done.
fn issued(picture: &Picture, key: &ObjectKey, settings: &Settings) -> Option<Issued> {
    let system = &settings.system_namespace;
    let certificate = Id::new(Kind::Certificate, system, names::data_plane(system, &key.name));
    let certificate = picture.ours(&certificate)?.object()?;
    let at = text(&certificate, "/status/notBefore");
    let secret = ObjectKey::new(system, text(&certificate, "/spec/secretName"));
    let secret = picture.objects.secrets.get(&secret)?;
    let pem = |key: &str| {
        let bytes = BASE64_STANDARD.decode(secret.data.get(key)?).ok()?;
        String::from_utf8(bytes).ok()
    };
    let (certificate_pem, chain) = split(&pem("tls.crt")?);
    let names = certificate.pointer("/spec/dnsNames").and_then(Value::as_array)?;
    let dns_names = names.iter().filter_map(Value::as_str).map(str::to_owned).collect();
    (!at.is_empty())
        .then(|| Issued { certificate: certificate_pem, chain, key: String::new(), at: at.to_owned(), dns_names })
        .and_then(|issued| Some(Issued { key: pem("tls.key")?, ..issued }))
}

/// The certificate itself and those that vouch for it: ACM takes them apart.
fn split(pem: &str) -> (String, Option<String>) {
    const END: &str = "-----END CERTIFICATE-----";
    let Some(at) = pem.find(END) else { return (pem.to_owned(), None) };
    let (first, rest) = pem.split_at(at + END.len());
    let rest = rest.trim();
    (format!("{}\n", first.trim()), (!rest.is_empty()).then(|| format!("{rest}\n")))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use api::cluster::Secret;
    use serde_json::json;

    use super::*;
    use crate::{
        judge::Judge,
        plan::tests::{Pretended, put, settings, spec},
    };

    const ONE: &str = "-----BEGIN CERTIFICATE-----\nA\n-----END CERTIFICATE-----\n";

    /// A config with `tls: {}`, whose certificate was issued at `at`.
    fn cluster(at: &str) -> Pretended {
        let mut wish = spec(&["llama"]);
        wish["tls"] = json!({});
        let mut cluster = Pretended::with(&[("team", "gw", wish)]);
        cluster.settle();
        let system = names::SYSTEM_NAMESPACE;
        let id = Id::new(Kind::Certificate, system, names::data_plane(system, "gw"));
        let mut certificate = cluster.body(&id);
        let secret = text(&certificate, "/spec/secretName").to_owned();
        certificate["status"] = json!({"notBefore": at});
        cluster.put(id, certificate);
        let mut kept = Secret::default();
        kept.data.insert("tls.crt".into(), BASE64_STANDARD.encode(format!("{ONE}{ONE}")));
        kept.data.insert("tls.key".into(), BASE64_STANDARD.encode("KEY"));
        cluster.objects().secrets.insert(ObjectKey::new(system, secret), Arc::new(kept));
        cluster
    }

    fn due(cluster: &Pretended) -> Option<Job> {
        let configs = Judge::default().judge(&cluster.picture.objects, &settings());
        jobs(&cluster.picture, &configs, &settings()).remove(&ObjectKey::new("team", "gw"))
    }

    fn edit(cluster: &mut Pretended, change: impl FnOnce(&mut Object<Value>)) {
        let config = cluster.objects().configs.get_mut(&ObjectKey::new("team", "gw")).unwrap();
        change(Arc::make_mut(config));
    }

    #[test]
    fn what_is_issued_is_imported_once_and_again_when_it_is_renewed() {
        let mut cluster = cluster("t1");
        let Some(Job::Import { arn: None, issued, .. }) = due(&cluster) else { panic!() };
        assert_eq!(
            (issued.certificate.as_str(), issued.chain.as_deref(), issued.key.as_str()),
            (ONE, Some(ONE), "KEY")
        );
        edit(&mut cluster, |it| {
            it.metadata.finalizers = vec![FINALIZER.into()];
            it.status = Some(json!({"tls": {"acmArn": "arn:1", "issuedAt": "t1"}}));
        });
        assert_eq!(due(&cluster), None);
        edit(&mut cluster, |it| it.status = Some(json!({"tls": {"acmArn": "arn:1", "issuedAt": "t0"}})));
        assert!(matches!(due(&cluster), Some(Job::Import { arn: Some(arn), .. }) if arn == "arn:1"));
    }

    #[test]
    fn h06_a_config_that_is_going_gets_no_finalizer_and_loses_ours() {
        let mut cluster = cluster("t1");
        edit(&mut cluster, |it| {
            it.metadata.deletion_timestamp = Some("t".into());
            it.metadata.finalizers = vec!["example.com/hold".into()];
        });
        assert_eq!(due(&cluster), None);
        edit(&mut cluster, |it| it.metadata.finalizers.push(FINALIZER.into()));
        assert!(matches!(due(&cluster), Some(Job::Free { .. })));
    }

    #[test]
    fn a_config_that_wants_tls_no_more_gives_its_certificate_back() {
        let mut cluster = cluster("t1");
        put(cluster.objects(), "team", "gw", spec(&["llama"]));
        assert_eq!(due(&cluster), None);
        edit(&mut cluster, |it| it.metadata.finalizers = vec![FINALIZER.into()]);
        assert!(matches!(due(&cluster), Some(Job::Free { .. })));
    }
}
