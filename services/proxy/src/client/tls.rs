//! TLS to endpoints: whom to trust, and what to speak.

use std::{fs, io, path::PathBuf, sync::Arc};

use rustls::{
    ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature},
};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject};
use thiserror::Error;
use tokio::net::TcpStream;
use tokio_rustls::{TlsConnector, client::TlsStream};

use super::Protocol;

/// Largest file of certificates read, in bytes; the whole Mozilla bundle is a quarter of a megabyte.
const CA_FILE_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// Whose certificates an endpoint may show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verify {
    /// What the system trusts.
    System,
    /// The certificates of this PEM file alone.
    CaFile(PathBuf),
    /// Any certificate for any name: whoever answers is believed. For tests and closed networks, to be said loudly.
    Nothing,
}

/// How to speak TLS to one endpoint. Sessions are resumed among the connections that share this value.
#[derive(Debug)]
pub struct TlsClient {
    http1: Arc<ClientConfig>,
    http2: Arc<ClientConfig>,
    server_name: ServerName<'static>,
}

/// Why TLS cannot be set up.
#[derive(Debug, Error)]
pub enum TlsError {
    /// Neither a DNS name nor an IP address.
    #[error("`{name}` is not a server name")]
    ServerName {
        /// As given.
        name: String,
    },
    /// The file of certificates cannot be read.
    #[error("cannot read the certificates of {}", path.display())]
    CaFile {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// There is nothing to trust.
    #[error("no usable certificate to trust was found")]
    NoRoots,
    /// The TLS library refuses these settings.
    #[error("TLS settings")]
    Settings(#[from] rustls::Error),
}

impl TlsClient {
    /// Reads what is trusted; expects to be called when an endpoint appears, not per request.
    ///
    /// # Errors
    /// See [`TlsError`].
    pub fn new(server_name: &str, verify: &Verify) -> Result<Self, TlsError> {
        let name = ServerName::try_from(server_name.to_owned());
        let server_name = name.map_err(|_| TlsError::ServerName { name: server_name.to_owned() })?;
        let provider = Arc::new(ring::default_provider());
        let builder =
            ClientConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions()?;
        let config = match verify {
            Verify::System => builder.with_root_certificates(system_roots()?).with_no_client_auth(),
            Verify::CaFile(path) => builder.with_root_certificates(file_roots(path)?).with_no_client_auth(),
            Verify::Nothing => {
                builder.dangerous().with_custom_certificate_verifier(Arc::new(Anyone(provider))).with_no_client_auth()
            }
        };
        let speaking = |protocol: &[u8]| {
            let mut config = config.clone();
            config.alpn_protocols = vec![protocol.to_vec()];
            Arc::new(config)
        };
        Ok(Self { http1: speaking(b"http/1.1"), http2: speaking(b"h2"), server_name })
    }

    /// Speaks TLS on a connection.
    ///
    /// # Errors
    /// No TLS is agreed on, or not for this protocol. [`io::ErrorKind::InvalidData`] when what answers is no TLS.
    pub async fn handshake(&self, protocol: Protocol, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        let config = match protocol {
            Protocol::Http1 => &self.http1,
            Protocol::H2c => &self.http2,
        };
        let stream = TlsConnector::from(Arc::clone(config)).connect(self.server_name.clone(), stream).await?;
        if protocol == Protocol::H2c && stream.get_ref().1.alpn_protocol() != Some(b"h2") {
            return Err(io::Error::other("the endpoint does not speak HTTP/2 over TLS"));
        }
        Ok(stream)
    }
}

fn system_roots() -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    // A broken certificate among the system's hundred does not make the rest useless.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() { Err(TlsError::NoRoots) } else { Ok(roots) }
}

fn file_roots(path: &PathBuf) -> Result<RootCertStore, TlsError> {
    let unreadable = |source| TlsError::CaFile { path: path.clone(), source };
    if fs::metadata(path).map_err(unreadable)?.len() > CA_FILE_BYTES_MAX {
        return Err(unreadable(io::Error::other("larger than a file of certificates may be")));
    }
    let pem = fs::read(path).map_err(unreadable)?;
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&pem) {
        // Here, other than in the system's store, each one was named by the operator: none is left out silently.
        roots.add(certificate.map_err(|error| unreadable(io::Error::other(error)))?)?;
    }
    if roots.is_empty() { Err(TlsError::NoRoots) } else { Ok(roots) }
}

/// Believes every certificate, but not a handshake that does not hold the certificate's key.
#[derive(Debug)]
struct Anyone(Arc<CryptoProvider>);

impl ServerCertVerifier for Anyone {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
