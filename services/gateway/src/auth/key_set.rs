//! A JSON Web Key Set: the keys by which a provider's tokens are checked.
//!
//! Sets are other people's data: a key that is of no use here is left out with a note, and the others are used. What is fixed
//! is what a key may check: a key's kind (and its `alg`, if it has one) decides which algorithms it answers for, never the
//! token. Else a public key could be passed off as the secret of a MAC.

use std::fmt;

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use ring::signature::{self, RsaPublicKeyComponents, UnparsedPublicKey};
use serde::Deserialize;
use serde_json::Value;

use super::{Fault, token::Algorithm, token::Token};

/// Keys taken from one set at most; providers publish two to four.
const KEYS_MAX: usize = 100;
/// Keys tried for a token that does not name its own, or names one of several, at most: each costs a signature's check.
const TRIES_MAX: usize = 8;
/// Bytes of an RSA key's modulus: shorter ones are broken, longer ones cost too much to check.
const RSA_MODULUS_BYTES: std::ops::RangeInclusive<usize> = 256..=1024;
/// Bytes of an RSA key's public exponent: 65537 has three.
const RSA_EXPONENT_BYTES_MAX: usize = 8;
/// Notes kept of one set at most.
const NOTES_MAX: usize = 8;

/// The keys of one set that are of use, in its order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct KeySet {
    keys: Vec<Key>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Key {
    kid: Option<String>,
    /// The only algorithm it is for, if it says so.
    only: Option<Algorithm>,
    material: Material,
}

#[derive(Clone, PartialEq, Eq)]
enum Material {
    Rsa {
        modulus: Vec<u8>,
        exponent: Vec<u8>,
    },
    /// Points, uncompressed.
    P256(Vec<u8>),
    P384(Vec<u8>),
    Ed25519(Vec<u8>),
}

impl fmt::Debug for Material {
    /// Its kind: the numbers say nothing to a reader.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Rsa { .. } => "RSA",
            Self::P256(_) => "P-256",
            Self::P384(_) => "P-384",
            Self::Ed25519(_) => "Ed25519",
        })
    }
}

/// Why a text is no key set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum NoKeySet {
    /// Somebody's error or login page.
    #[error("it is an HTML page, not a key set: check the URI")]
    Html,
    /// Not JSON.
    #[error("it is not JSON")]
    NotJson,
    /// JSON without `keys`.
    #[error("it has no list `keys`")]
    NoList,
    /// Nothing in it is of use.
    #[error("it has no key that can check a signature")]
    NoneUsable,
}

#[derive(Deserialize)]
struct Published {
    kty: String,
    kid: Option<String>,
    #[serde(rename = "use")]
    usage: Option<String>,
    key_ops: Option<Vec<String>>,
    alg: Option<String>,
    crv: Option<String>,
    n: Option<String>,
    e: Option<String>,
    x: Option<String>,
    y: Option<String>,
}

impl KeySet {
    /// Reads a set, and what is to be said of the keys that are left out.
    pub(super) fn read(body: &[u8]) -> Result<(Self, Vec<String>), NoKeySet> {
        let body = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body).trim_ascii();
        if body.first() == Some(&b'<') {
            return Err(NoKeySet::Html);
        }
        let set: Value = serde_json::from_slice(body).map_err(|_| NoKeySet::NotJson)?;
        let published = set.get("keys").and_then(Value::as_array).ok_or(NoKeySet::NoList)?;
        let (mut keys, mut notes) = (Vec::new(), Vec::new());
        for (index, key) in published.iter().enumerate() {
            match read_key(key) {
                _ if keys.len() == KEYS_MAX => {
                    notes.push(format!("keys after the first {KEYS_MAX} are left out"));
                    break;
                }
                Ok(key) => keys.push(key),
                Err(why) if notes.len() < NOTES_MAX => notes.push(format!("keys[{index}] is left out: {why}")),
                Err(_) => {}
            }
        }
        if keys.is_empty() { Err(NoKeySet::NoneUsable) } else { Ok((Self { keys }, notes)) }
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether one of them has signed the token.
    pub(super) fn verify(&self, token: &Token<'_>) -> Result<(), Fault> {
        let named = |key: &&Key| token.kid.is_none() || token.kid == key.kid;
        let mut fitting = self.keys.iter().filter(named).filter_map(|key| key.verifier(token.algorithm)).peekable();
        if fitting.peek().is_none() {
            return Err(Fault::UnknownSigner);
        }
        if fitting.take(TRIES_MAX).any(|verifier| verifier.has_signed(token)) { Ok(()) } else { Err(Fault::Signature) }
    }
}

enum Verifier<'a> {
    Rsa(&'static signature::RsaParameters, RsaPublicKeyComponents<&'a [u8]>),
    Other(UnparsedPublicKey<&'a [u8]>),
}

impl Verifier<'_> {
    fn has_signed(&self, token: &Token<'_>) -> bool {
        match self {
            Self::Rsa(how, key) => key.verify(how, token.signed, &token.signature).is_ok(),
            Self::Other(key) => key.verify(token.signed, &token.signature).is_ok(),
        }
    }
}

impl Key {
    /// How it checks signatures of an algorithm, if it is for that one.
    fn verifier(&self, algorithm: Algorithm) -> Option<Verifier<'_>> {
        if self.only.is_some_and(|only| only != algorithm) {
            return None;
        }
        let rsa = |how| match &self.material {
            Material::Rsa { modulus, exponent } => {
                Some(Verifier::Rsa(how, RsaPublicKeyComponents { n: &**modulus, e: &**exponent }))
            }
            Material::P256(_) | Material::P384(_) | Material::Ed25519(_) => None,
        };
        match (algorithm, &self.material) {
            (Algorithm::Rs256, _) => rsa(&signature::RSA_PKCS1_2048_8192_SHA256),
            (Algorithm::Rs384, _) => rsa(&signature::RSA_PKCS1_2048_8192_SHA384),
            (Algorithm::Rs512, _) => rsa(&signature::RSA_PKCS1_2048_8192_SHA512),
            (Algorithm::Ps256, _) => rsa(&signature::RSA_PSS_2048_8192_SHA256),
            (Algorithm::Ps384, _) => rsa(&signature::RSA_PSS_2048_8192_SHA384),
            (Algorithm::Ps512, _) => rsa(&signature::RSA_PSS_2048_8192_SHA512),
            (Algorithm::Es256, Material::P256(point)) => {
                Some(Verifier::Other(UnparsedPublicKey::new(&signature::ECDSA_P256_SHA256_FIXED, point)))
            }
            (Algorithm::Es384, Material::P384(point)) => {
                Some(Verifier::Other(UnparsedPublicKey::new(&signature::ECDSA_P384_SHA384_FIXED, point)))
            }
            (Algorithm::EdDsa, Material::Ed25519(point)) => {
                Some(Verifier::Other(UnparsedPublicKey::new(&signature::ED25519, point)))
            }
            (Algorithm::Es256 | Algorithm::Es384 | Algorithm::EdDsa, _) => None,
        }
    }
}

fn read_key(key: &Value) -> Result<Key, &'static str> {
    let key = Published::deserialize(key).map_err(|_| "it is no object with a `kty`, or a member is no text")?;
    if key.usage.as_deref().is_some_and(|usage| usage != "sig") {
        return Err("its `use` is not `sig`");
    }
    if key.key_ops.as_ref().is_some_and(|ops| !ops.iter().any(|op| op == "verify")) {
        return Err("its `key_ops` lack `verify`");
    }
    let only = match key.alg.as_deref() {
        Some(name) => Some(Algorithm::named(name).ok_or("its `alg` is none that is accepted")?),
        None => None,
    };
    let key = Key { material: material(&key)?, kid: key.kid, only };
    // One that says it is for what its kind cannot do would never be used.
    match only {
        Some(only) if key.verifier(only).is_none() => Err("its `alg` does not fit its `kty` and `crv`"),
        Some(_) | None => Ok(key),
    }
}

fn material(key: &Published) -> Result<Material, &'static str> {
    match (key.kty.as_str(), key.crv.as_deref()) {
        ("RSA", _) => rsa(key),
        ("EC", Some("P-256")) => point(key, 32).map(Material::P256),
        ("EC", Some("P-384")) => point(key, 48).map(Material::P384),
        ("EC", _) => Err("its curve is neither P-256 nor P-384"),
        ("OKP", Some("Ed25519")) => bytes(key.x.as_deref(), 32).map(Material::Ed25519),
        ("OKP", _) => Err("its curve is not Ed25519"),
        ("oct", _) => Err("it is a shared secret, and belongs in no published set"),
        _ => Err("its `kty` is none of RSA, EC and OKP"),
    }
}

fn rsa(key: &Published) -> Result<Material, &'static str> {
    let number = |text: Option<&str>| {
        let bytes = URL_SAFE_NO_PAD.decode(text.unwrap_or_default()).map_err(|_| "a number of it is not base64url")?;
        let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
        Ok::<_, &str>(bytes[zeros..].to_vec())
    };
    let (modulus, exponent) = (number(key.n.as_deref())?, number(key.e.as_deref())?);
    if !RSA_MODULUS_BYTES.contains(&modulus.len()) {
        return Err("its modulus has not 2048 to 8192 bits");
    }
    if exponent.is_empty() || exponent.len() > RSA_EXPONENT_BYTES_MAX {
        return Err("its exponent is missing or too large");
    }
    Ok(Material::Rsa { modulus, exponent })
}

fn point(key: &Published, coordinate_bytes: usize) -> Result<Vec<u8>, &'static str> {
    let (x, y) = (bytes(key.x.as_deref(), coordinate_bytes)?, bytes(key.y.as_deref(), coordinate_bytes)?);
    Ok([vec![UNCOMPRESSED], x, y].concat())
}

/// The first byte of a point with both coordinates (SEC 1, 2.3.3).
const UNCOMPRESSED: u8 = 4;

fn bytes(text: Option<&str>, length_bytes: usize) -> Result<Vec<u8>, &'static str> {
    let bytes = URL_SAFE_NO_PAD.decode(text.unwrap_or_default()).ok();
    bytes.filter(|bytes| bytes.len() == length_bytes).ok_or("a coordinate of it has not the length of its curve's")
}
