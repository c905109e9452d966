//! A certificate for loopback, for the loads over TLS, and the client that trusts it.

use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, SanType};
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::load::Tls;

/// A certificate for 127.0.0.1 and its key, as files.
#[derive(Clone, Debug)]
pub struct Certificate {
    pub certificate: PathBuf,
    pub key: PathBuf,
    /// PEM, for who does not read files.
    pub certificate_pem: String,
    pub key_pem: String,
    /// Trusts it, and keeps no session: what is measured are requests on kept connections.
    pub client: Tls,
}

impl Certificate {
    /// A new one, signed by a new authority, written into `folder`.
    pub fn make(folder: &Path) -> anyhow::Result<Self> {
        let authority_key = KeyPair::generate()?;
        let mut authority = CertificateParams::default();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let root = authority.self_signed(&authority_key)?;
        let issuer = Issuer::new(authority, authority_key);
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new(vec!["localhost".to_owned()])?;
        params.subject_alt_names.push(SanType::IpAddress(IpAddr::V4(Ipv4Addr::LOCALHOST)));
        let certificate_pem = params.signed_by(&key, &issuer)?.pem();
        let key_pem = key.serialize_pem();
        let (certificate_file, key_file) = (folder.join("certificate.pem"), folder.join("key.pem"));
        std::fs::write(&certificate_file, &certificate_pem).context("cannot write a certificate")?;
        std::fs::write(&key_file, &key_pem).context("cannot write a key")?;
        let mut roots = RootCertStore::empty();
        roots.add(root.der().clone())?;
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let client = Tls::to("127.0.0.1", Arc::new(config))?;
        Ok(Self { certificate: certificate_file, key: key_file, certificate_pem, key_pem, client })
    }
}
