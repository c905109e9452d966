//! Kubeconfigs: the one form in which every client takes an address, an authority and a token.

use std::{fs, path::Path};

use serde_json::json;

/// Whom a kubeconfig speaks for.
pub(crate) enum Bearer<'a> {
    /// The token itself.
    Token(&'a str),
    /// A file that is read again when it changes.
    File(&'a Path),
}

/// Writes a kubeconfig to `path`.
///
/// `server` is a URL; the certificate of the API server names `kubernetes.default.svc`, whatever the address is.
///
/// # Errors
/// When it cannot be written.
pub(crate) fn write(
    path: &Path,
    server: &str,
    authority: &Path,
    bearer: &Bearer<'_>,
    namespace: &str,
) -> anyhow::Result<()> {
    let user = match bearer {
        Bearer::Token(token) => json!({"token": token}),
        Bearer::File(file) => json!({"tokenFile": file}),
    };
    let cluster = json!({
        "server": server,
        "certificate-authority": authority,
        "tls-server-name": "kubernetes.default.svc",
    });
    let document = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "rig",
        "clusters": [{"name": "rig", "cluster": cluster}],
        "users": [{"name": "rig", "user": user}],
        "contexts": [{"name": "rig", "context": {"cluster": "rig", "user": "rig", "namespace": namespace}}],
    });
    // Whoever waits for the file must find it whole.
    let unfinished = path.with_extension("unfinished");
    fs::write(&unfinished, serde_json::to_vec_pretty(&document)?)?;
    fs::rename(unfinished, path)?;
    Ok(())
}
