//! Client-side TLS for looks at endpoints that serve https.

use std::{path::Path, sync::Arc};

use parking_lot::Mutex;
use rustls::{
    ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{CryptoProvider, WebPkiSupportedAlgorithms, ring, verify_tls12_signature, verify_tls13_signature},
};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject};

use crate::resolve::Trust;

/// Why there is no TLS configuration, or no session.
#[derive(Debug, thiserror::Error)]
pub(super) enum TlsError {
    #[error("the file of certificate authorities cannot be read")]
    CaFile(#[source] rustls_pki_types::pem::Error),
    #[error("the file of certificate authorities holds none that can be used")]
    NoAuthority,
    #[error("the machine has no certificate authorities that can be used")]
    NoSystemAuthority,
    #[error("`{0}` cannot be the name in a certificate")]
    ServerName(String),
    #[error("TLS cannot be set up")]
    Setup(#[source] Error),
}

/// The machine's authorities, read once: there are some 150, and many endpoints.
#[derive(Debug, Default)]
pub(super) struct Roots {
    system: Mutex<Option<Arc<ClientConfig>>>,
}

impl Roots {
    /// A configuration that trusts as told.
    pub(super) fn client(&self, trust: &Trust) -> Result<Arc<ClientConfig>, TlsError> {
        match trust {
            Trust::System => {
                let mut system = self.system.lock();
                if let Some(config) = &*system {
                    return Ok(config.clone());
                }
                let config = trusting(system_authorities()?)?;
                *system = Some(config.clone());
                Ok(config)
            }
            Trust::CaFile(path) => trusting(authorities_in(path)?),
            Trust::Anyone => trusting_anyone(),
        }
    }
}

/// The name to verify: the one configured, else the host (a name or an address, without brackets).
pub(super) fn server_name(configured: Option<&str>, host: &str) -> Result<ServerName<'static>, TlsError> {
    let name = configured.unwrap_or(host).trim_end_matches('.').to_owned();
    ServerName::try_from(name.clone()).map_err(|_| TlsError::ServerName(name))
}

fn system_authorities() -> Result<RootCertStore, TlsError> {
    let mut store = RootCertStore::empty();
    let (added, _) = store.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if added == 0 { Err(TlsError::NoSystemAuthority) } else { Ok(store) }
}

fn authorities_in(path: &Path) -> Result<RootCertStore, TlsError> {
    let certificates: Vec<CertificateDer<'static>> =
        CertificateDer::pem_file_iter(path).and_then(Iterator::collect).map_err(TlsError::CaFile)?;
    let mut store = RootCertStore::empty();
    let (added, _) = store.add_parsable_certificates(certificates);
    if added == 0 { Err(TlsError::NoAuthority) } else { Ok(store) }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

fn trusting(authorities: RootCertStore) -> Result<Arc<ClientConfig>, TlsError> {
    let builder = ClientConfig::builder_with_provider(provider());
    let builder = builder.with_safe_default_protocol_versions().map_err(TlsError::Setup)?;
    Ok(finish(builder.with_root_certificates(authorities).with_no_client_auth()))
}

fn trusting_anyone() -> Result<Arc<ClientConfig>, TlsError> {
    let provider = provider();
    let anyone = Arc::new(Anyone(provider.signature_verification_algorithms));
    let builder = ClientConfig::builder_with_provider(provider);
    let builder = builder.with_safe_default_protocol_versions().map_err(TlsError::Setup)?;
    Ok(finish(builder.dangerous().with_custom_certificate_verifier(anyone).with_no_client_auth()))
}

fn finish(mut config: ClientConfig) -> Arc<ClientConfig> {
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Arc::new(config)
}

/// Believes any certificate, but still wants its holder to have the key.
#[derive(Debug)]
struct Anyone(WebPkiSupportedAlgorithms);

impl ServerCertVerifier for Anyone {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &self.0)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.0)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_schemes()
    }
}
