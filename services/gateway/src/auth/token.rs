//! A JSON Web Token taken apart: what is signed, by which key it says, and what it claims. Nothing here is believed yet.
//!
//! It is read strictly, since every freedom of a reader is a way to make two readers see different tokens: three parts, base64
//! without padding or stray bits, one member of each name in the head, no extension that we do not know (`crit`), and only
//! signatures by a private key: `none` and the shared secrets of `HS256` have no name in [`Algorithm`]. It refuses to follow
//! anything that a head points at (`jku`, `x5u`, `jwk`): keys come from the configured key set alone.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde::{Deserialize, de::IgnoredAny};
use serde_json::{Map, Value};

use super::Fault;

/// Longest token that is read, in bytes: some twenty times what identity providers issue, and a quarter of a request's head.
pub(super) const TOKEN_BYTES_MAX: usize = 16 * 1024;

/// How a token may be signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Algorithm {
    Rs256,
    Rs384,
    Rs512,
    Ps256,
    Ps384,
    Ps512,
    Es256,
    Es384,
    EdDsa,
}

impl Algorithm {
    /// By its name in heads and key sets.
    pub(super) fn named(name: &str) -> Option<Self> {
        Some(match name {
            "RS256" => Self::Rs256,
            "RS384" => Self::Rs384,
            "RS512" => Self::Rs512,
            "PS256" => Self::Ps256,
            "PS384" => Self::Ps384,
            "PS512" => Self::Ps512,
            "ES256" => Self::Es256,
            "ES384" => Self::Es384,
            // RFC 9864 gives the curve a name of its own.
            "EdDSA" | "Ed25519" => Self::EdDsa,
            _ => return None,
        })
    }
}

/// A token, taken apart.
pub(super) struct Token<'a> {
    /// What the signature covers: head and claims as they were sent.
    pub(super) signed: &'a [u8],
    pub(super) signature: Vec<u8>,
    pub(super) algorithm: Algorithm,
    /// Which key of the set signed it, if it says so.
    pub(super) kid: Option<String>,
    pub(super) claims: Map<String, Value>,
}

#[derive(Deserialize)]
struct Head {
    alg: String,
    kid: Option<String>,
    crit: Option<IgnoredAny>,
}

impl<'a> Token<'a> {
    /// Takes a token apart.
    pub(super) fn read(text: &'a str) -> Result<Self, Fault> {
        if text.len() > TOKEN_BYTES_MAX {
            return Err(Fault::TooLong);
        }
        let (signed, signature) = text.rsplit_once('.').ok_or(Fault::Malformed)?;
        let (head, claims) = signed.split_once('.').ok_or(Fault::Malformed)?;
        let head: Head = serde_json::from_slice(&decoded(head)?).map_err(|_| Fault::Malformed)?;
        let algorithm = Algorithm::named(&head.alg).ok_or(Fault::Algorithm)?;
        if head.crit.is_some() {
            return Err(Fault::Extension);
        }
        Ok(Self {
            signed: signed.as_bytes(),
            signature: decoded(signature)?,
            algorithm,
            kid: head.kid,
            claims: serde_json::from_slice(&decoded(claims)?).map_err(|_| Fault::Malformed)?,
        })
    }
}

fn decoded(part: &str) -> Result<Vec<u8>, Fault> {
    URL_SAFE_NO_PAD.decode(part).map_err(|_| Fault::Malformed)
}
