//! A certificate with its chain and its key, checked as far as a server can check its own.

use std::{
    fmt,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use rustls::{Error as TlsError, crypto::ring, sign::CertifiedKey};
use rustls_pki_types::{
    CertificateDer, PrivateKeyDer,
    pem::{self, PemObject},
};
use thiserror::Error;
use x509_parser::{certificate::X509Certificate, extensions::GeneralName, prelude::FromDer, time::ASN1Time};

/// Certificates of one chain at most; real ones have two to four.
const CHAIN_MAX: usize = 16;

/// A certificate that can be shown to clients. Never empty, and its key is its own.
pub struct Certificate {
    pub(super) key: Arc<CertifiedKey>,
    /// DNS names that it is for, in lower case.
    pub(super) names: Vec<String>,
    not_after: SystemTime,
}

/// Why a pair of certificate and key cannot be used.
#[derive(Debug, Error)]
pub enum CertificateError {
    /// Its PEM text is broken.
    #[error("the certificate is no PEM text: {0}")]
    ChainPem(pem::Error),
    /// There is none.
    #[error("there is no certificate in it: a PEM block `CERTIFICATE` is needed")]
    NoCertificate,
    /// Too many.
    #[error("the certificate has a chain of more than {CHAIN_MAX}")]
    LongChain,
    /// What the PEM text holds is no certificate.
    #[error("the certificate cannot be read: {0}")]
    Certificate(String),
    /// There is no key.
    #[error("there is no key in it: a PEM block `PRIVATE KEY` is needed")]
    NoKey,
    /// Its PEM text is broken.
    #[error("the key is no PEM text: {0}")]
    KeyPem(pem::Error),
    /// A key that cannot be used.
    #[error("the key cannot be used: {0}")]
    Key(TlsError),
    /// Certificate and key are of two pairs: one of them was replaced without the other.
    #[error("the key is not that of the certificate")]
    Mismatch,
}

impl Certificate {
    /// Reads PEM: a certificate, followed by those that vouch for it, and its key. Whether it has
    /// expired is not asked.
    ///
    /// # Errors
    /// See [`CertificateError`].
    pub fn from_pem(chain: &[u8], key: &[u8]) -> Result<Self, CertificateError> {
        let chain: Vec<CertificateDer<'static>> =
            CertificateDer::pem_slice_iter(chain).collect::<Result<_, _>>().map_err(CertificateError::ChainPem)?;
        let leaf = chain.first().ok_or(CertificateError::NoCertificate)?;
        if chain.len() > CHAIN_MAX {
            return Err(CertificateError::LongChain);
        }
        let unreadable = |error: &dyn fmt::Display| CertificateError::Certificate(error.to_string());
        let (_, parsed) = X509Certificate::from_der(leaf).map_err(|error| unreadable(&error))?;
        let names = names(&parsed);
        let not_after = system_time(parsed.validity().not_after);
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| {
            if matches!(error, pem::Error::NoItemsFound) {
                CertificateError::NoKey
            } else {
                CertificateError::KeyPem(error)
            }
        })?;
        let pair = CertifiedKey::from_der(chain, key, &ring::default_provider());
        let key = pair.map_err(|error| {
            if let TlsError::InvalidCertificate(error) = error {
                unreadable(&format!("{error:?}"))
            } else if matches!(error, TlsError::InconsistentKeys(_)) {
                CertificateError::Mismatch
            } else {
                CertificateError::Key(error)
            }
        })?;
        Ok(Self { key: Arc::new(key), names, not_after })
    }

    /// Until when clients believe it.
    pub fn not_after(&self) -> SystemTime {
        self.not_after
    }

    /// Whether clients whose clock shows `now` believe it no more. That it may begin later is not asked: clocks of issuers
    /// run ahead by seconds, and a certificate is not issued to be used next year.
    pub fn has_expired_at(&self, now: SystemTime) -> bool {
        now > self.not_after
    }

    /// Whether it is shown for this name, in lower case.
    pub(super) fn fits(&self, name: &str) -> bool {
        let wildcard = name.split_once('.').map(|(_, parent)| parent);
        self.names.iter().any(|own| own == name || (wildcard.is_some() && own.strip_prefix("*.") == wildcard))
    }
}

impl fmt::Debug for Certificate {
    /// Without the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificate")
            .field("names", &self.names)
            .field("not_after", &self.not_after)
            .finish_non_exhaustive()
    }
}

impl PartialEq for Certificate {
    /// The same chain: then the key is the same.
    fn eq(&self, other: &Self) -> bool {
        self.key.cert == other.key.cert
    }
}

fn names(certificate: &X509Certificate<'_>) -> Vec<String> {
    let alternative = certificate.subject_alternative_name().ok().flatten();
    let names = alternative.iter().flat_map(|names| &names.value.general_names);
    names
        .filter_map(|name| if let GeneralName::DNSName(name) = name { Some(name.to_ascii_lowercase()) } else { None })
        .collect()
}

fn system_time(time: ASN1Time) -> SystemTime {
    // Before 1970 is before anything that is asked about.
    UNIX_EPOCH + Duration::from_secs(u64::try_from(time.timestamp()).unwrap_or(0))
}
