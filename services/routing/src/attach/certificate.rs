//! Certificates that listeners name: whether they may be used, are there, and look like what they should be.
//!
//! Whether key and certificate belong together is seen by who loads them; here it is said what can be said without
//! cryptography.

use api::cluster::{CertificateRef, ObjectKey, Objects, Secret};
use base64::{Engine as _, engine::general_purpose::STANDARD};

use super::reference::{Referent, Referrer, is_permitted};
use crate::Verdict;
use crate::verdict::kind::RESOLVED_REFS;

const CERTIFICATE: &str = "tls.crt";
const KEY: &str = "tls.key";

/// The Secret that a listener of a Gateway in `namespace` names.
pub(super) fn find(objects: &Objects, namespace: &str, named: &CertificateRef) -> Result<ObjectKey, Verdict> {
    let invalid = |message: String| Verdict::fails(RESOLVED_REFS, "InvalidCertificateRef", message);
    let (group, kind) = (named.group.as_deref().unwrap_or(""), named.kind.as_deref().unwrap_or("Secret"));
    if !group.is_empty() || kind != "Secret" {
        return Err(invalid(format!(
            "certificate reference `{}` is a {kind} of group `{group}`: only Secrets",
            named.name
        )));
    }
    let key = ObjectKey::new(named.namespace.as_deref().unwrap_or(namespace), &named.name);
    let (from, to) = (Referrer { kind: "Gateway", namespace }, Referent { group: "", kind: "Secret", key: &key });
    if !is_permitted(objects, from, to) {
        let message = format!(
            "no ReferenceGrant in namespace `{}` lets Gateways of `{namespace}` use Secret `{key}`",
            key.namespace
        );
        return Err(Verdict::fails(RESOLVED_REFS, "RefNotPermitted", message));
    }
    let secret = objects.secrets.get(&key).ok_or_else(|| invalid(format!("Secret `{key}` does not exist")))?;
    flaw(secret).map_or(Ok(key.clone()), |flaw| Err(invalid(format!("Secret `{key}`: {flaw}"))))
}

/// What keeps a Secret from being a certificate with its key.
fn flaw(secret: &Secret) -> Option<String> {
    [(CERTIFICATE, "CERTIFICATE-----"), (KEY, "PRIVATE KEY-----")].into_iter().find_map(|(name, label)| {
        let Some(value) = secret.data.get(name) else {
            return Some(format!("`{name}` is missing"));
        };
        let text = STANDARD.decode(value).ok().and_then(|it| String::from_utf8(it).ok());
        let is_pem = text.is_some_and(|text| has_block(&text, label));
        (!is_pem).then(|| format!("`{name}` holds no PEM block `{}`", label.trim_end_matches('-')))
    })
}

/// Whether a PEM text has a block whose label ends so, with something in base64 inside.
fn has_block(text: &str, label: &str) -> bool {
    let mut lines = text.lines().map(str::trim);
    let Some(_) = lines.find(|line| line.starts_with("-----BEGIN ") && line.ends_with(label)) else {
        return false;
    };
    let mut body = String::new();
    for line in lines {
        if line.starts_with("-----END ") && line.ends_with(label) {
            return !body.is_empty() && STANDARD.decode(&body).is_ok();
        }
        body.push_str(line);
    }
    false
}
