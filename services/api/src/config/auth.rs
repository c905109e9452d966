//! Who may send requests, and what certificate they meet: as programs need it.

use std::{collections::BTreeMap, fmt, time::Duration};

use super::FlowBand;

/// What is secret. It is never shown: its `Debug` says only how long it is.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hidden(pub Vec<u8>);

impl fmt::Debug for Hidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Hidden({} bytes)", self.0.len())
    }
}

/// HTTPS for clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tls {
    /// The Secret that holds the certificate; `None`: it is issued, or TLS ends before the gateway.
    pub secret: Option<String>,
    /// The ARN of a certificate at a load balancer that ends TLS before the gateway.
    pub acm_arn: Option<String>,
    /// The Secret's content. `None`: no such Secret has been given, which only a cluster allows.
    pub pair: Option<KeyPair>,
}

/// A certificate and its key, both in PEM and both unread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyPair {
    /// `tls.crt`: the certificate, and those of its issuers.
    pub certificate_pem: Hidden,
    /// `tls.key`.
    pub key_pem: Hidden,
}

/// Who may send requests. At least one of the two is given; either suffices for a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Auth {
    /// By a token.
    pub jwt: Option<Jwt>,
    /// By a key.
    pub api_keys: Option<ApiKeys>,
}

/// Tokens of one provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Jwt {
    /// What logs call the provider.
    pub provider: String,
    /// What `iss` must be.
    pub issuer: String,
    /// Where its keys are: `https://…`.
    pub jwks_uri: String,
    /// How far the clocks of issuer and gateway may differ.
    pub clock_skew: Duration,
    /// One of these must be among `aud`; empty: `aud` is not looked at.
    pub audiences: Vec<String>,
    /// All of these must hold. Empty only where `audiences` is not.
    pub required_claims: Vec<RequiredClaim>,
}

/// A claim that a token must have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequiredClaim {
    /// Its name.
    pub name: String,
    /// What it holds.
    pub holds: ClaimHolds,
    /// One of these must be it, or be in it; never empty.
    pub values: Vec<String>,
}

/// What a claim holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ClaimHolds {
    /// One text.
    Text,
    /// A list of texts.
    Texts,
}

/// Keys of the operator's own making.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiKeys {
    /// The Secret that holds them.
    pub secret: String,
    /// Client to its key, surrounding white space taken off. Empty: nobody gets in by a key, as when a cluster has no such
    /// Secret yet.
    pub keys: BTreeMap<String, Hidden>,
}

/// Which claim of a token chooses the band.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BandClaim {
    /// The claim's name.
    pub name: String,
    /// The band of each value; others are standard.
    pub values: BTreeMap<String, FlowBand>,
}
