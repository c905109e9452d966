//! An identity provider's private key, and what is signed with it.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use ring::{
    hmac,
    rand::SystemRandom,
    signature::{self, EcdsaKeyPair, Ed25519KeyPair, KeyPair, RsaKeyPair, RsaPublicKeyComponents},
};
use serde_json::{Value, json};

/// Made for these tests and used nowhere else: RSA keys take seconds to make.
const RSA: &str = include_str!("../../../fixtures/rsa-of-tests.pkcs8.base64");

pub(super) struct Signer {
    pub(super) kid: String,
    /// Further members of the published key.
    pub(super) extra: Value,
    algorithm: &'static str,
    key: Key,
}

enum Key {
    Ed25519(Ed25519KeyPair),
    Ecdsa(EcdsaKeyPair),
    Rsa(RsaKeyPair),
}

impl Signer {
    pub(super) fn ed25519(kid: &str) -> Self {
        let pkcs8 = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
        Self::new(kid, "EdDSA", Key::Ed25519(Ed25519KeyPair::from_pkcs8(pkcs8.as_ref()).unwrap()))
    }

    pub(super) fn ecdsa(kid: &str, algorithm: &'static str) -> Self {
        let how = match algorithm {
            "ES256" => &signature::ECDSA_P256_SHA256_FIXED_SIGNING,
            _ => &signature::ECDSA_P384_SHA384_FIXED_SIGNING,
        };
        let random = SystemRandom::new();
        let pkcs8 = EcdsaKeyPair::generate_pkcs8(how, &random).unwrap();
        Self::new(kid, algorithm, Key::Ecdsa(EcdsaKeyPair::from_pkcs8(how, pkcs8.as_ref(), &random).unwrap()))
    }

    /// All of them have the same key.
    pub(super) fn rsa(kid: &str, algorithm: &'static str) -> Self {
        let text: String = RSA.split_ascii_whitespace().collect();
        let pkcs8 = base64::engine::general_purpose::STANDARD.decode(text).unwrap();
        Self::new(kid, algorithm, Key::Rsa(RsaKeyPair::from_pkcs8(&pkcs8).unwrap()))
    }

    fn new(kid: &str, algorithm: &'static str, key: Key) -> Self {
        Self { kid: kid.into(), extra: json!({}), algorithm, key }
    }

    /// As the provider publishes it. A signer without a name has none there either.
    pub(super) fn jwk(&self) -> Value {
        let text = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        let point = |key: &EcdsaKeyPair| {
            let (x, y) = key.public_key().as_ref()[1..].split_at((key.public_key().as_ref().len() - 1) / 2);
            (text(x), text(y))
        };
        let mut jwk = match &self.key {
            Key::Ed25519(key) => json!({"kty": "OKP", "crv": "Ed25519", "x": text(key.public_key().as_ref())}),
            Key::Ecdsa(key) => {
                let (x, y) = point(key);
                json!({"kty": "EC", "crv": if self.algorithm == "ES256" { "P-256" } else { "P-384" }, "x": x, "y": y})
            }
            Key::Rsa(key) => {
                let public = RsaPublicKeyComponents::<Vec<u8>>::from(key.public());
                json!({"kty": "RSA", "n": text(&public.n), "e": text(&public.e)})
            }
        };
        if !self.kid.is_empty() {
            jwk["kid"] = self.kid.as_str().into();
        }
        jwk.as_object_mut().unwrap().append(&mut self.extra.as_object().unwrap().clone());
        jwk
    }

    /// A token with these claims.
    pub(super) fn token(&self, claims: &Value) -> String {
        let mut head = json!({"typ": "JWT", "alg": self.algorithm});
        if !self.kid.is_empty() {
            head["kid"] = self.kid.as_str().into();
        }
        Self::assembled(&head, claims, &self.signature(&Self::signed(&head, claims)))
    }

    /// What a signature covers.
    pub(super) fn signed(head: &Value, claims: &Value) -> String {
        Self::signed_raw(&head.to_string(), &claims.to_string())
    }

    fn signed_raw(head: &str, claims: &str) -> String {
        format!("{}.{}", URL_SAFE_NO_PAD.encode(head), URL_SAFE_NO_PAD.encode(claims))
    }

    /// The three parts.
    pub(super) fn assembled(head: &Value, claims: &Value, signature: &[u8]) -> String {
        format!("{}.{}", Self::signed(head, claims), URL_SAFE_NO_PAD.encode(signature))
    }

    /// The three parts of texts that no library would write.
    pub(super) fn assembled_raw(head: &str, claims: &str, signer: &Self) -> String {
        let signed = Self::signed_raw(head, claims);
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signer.signature(&signed)))
    }

    pub(super) fn signature(&self, signed: &str) -> Vec<u8> {
        let random = SystemRandom::new();
        match &self.key {
            Key::Ed25519(key) => key.sign(signed.as_bytes()).as_ref().to_vec(),
            Key::Ecdsa(key) => key.sign(&random, signed.as_bytes()).unwrap().as_ref().to_vec(),
            Key::Rsa(key) => {
                let how: &dyn signature::RsaEncoding = match self.algorithm {
                    "RS256" => &signature::RSA_PKCS1_SHA256,
                    "RS384" => &signature::RSA_PKCS1_SHA384,
                    "RS512" => &signature::RSA_PKCS1_SHA512,
                    "PS256" => &signature::RSA_PSS_SHA256,
                    "PS384" => &signature::RSA_PSS_SHA384,
                    _ => &signature::RSA_PSS_SHA512,
                };
                let mut bytes = vec![0; key.public().modulus_len()];
                key.sign(how, &random, signed.as_bytes(), &mut bytes).unwrap();
                bytes
            }
        }
    }

    /// What a reader would take for good who used the published key as a secret.
    pub(super) fn hmac_by_public_key(&self, signed: &str) -> Vec<u8> {
        let key = hmac::Key::new(hmac::HMAC_SHA256, self.jwk().to_string().as_bytes());
        hmac::sign(&key, signed.as_bytes()).as_ref().to_vec()
    }
}
