//! An identity provider: signs tokens, and publishes over HTTPS whatever a test wants it to publish.

use std::{
    path::PathBuf,
    time::{SystemTime, UNIX_EPOCH},
};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use rcgen::{KeyPair, PKCS_ED25519, PublicKeyData, SigningKey};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    peer::{Exchange, Next, Peer},
    tls::{Authority, TlsFront},
};

/// A running provider. Its certificate is of an authority of its own.
pub struct IdentityProvider {
    peer: Peer,
    front: TlsFront,
    folder: TempDir,
}

/// A private key of a provider, under a name.
pub struct TokenKey {
    kid: String,
    key: KeyPair,
}

impl TokenKey {
    /// A new key.
    ///
    /// # Panics
    /// When no key can be made.
    pub fn new(kid: &str) -> Self {
        Self { kid: kid.into(), key: KeyPair::generate_for(&PKCS_ED25519).expect("a key can be made") }
    }

    /// As it is published.
    pub fn published(&self) -> Value {
        let x = URL_SAFE_NO_PAD.encode(self.key.der_bytes());
        json!({"kty": "OKP", "crv": "Ed25519", "kid": self.kid, "x": x})
    }

    /// A token with exactly these claims.
    ///
    /// # Panics
    /// When nothing can be signed.
    pub fn token_of(&self, claims: &Value) -> String {
        let head = json!({"alg": "EdDSA", "typ": "JWT", "kid": self.kid});
        let part = |part: &Value| URL_SAFE_NO_PAD.encode(part.to_string());
        let signed = format!("{}.{}", part(&head), part(claims));
        let signature = self.key.sign(signed.as_bytes()).expect("a key signs");
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
    }

    /// A token that is good for ten minutes, with further claims.
    ///
    /// # Panics
    /// When `extra` is no object.
    pub fn token(&self, extra: &Value) -> String {
        let mut claims = json!({"iss": ISSUER, "aud": "gateway", "sub": "alice", "exp": now_s() + 600});
        claims.as_object_mut().expect("an object").extend(extra.as_object().expect("an object").clone());
        self.token_of(&claims)
    }
}

/// What its tokens say of it.
pub const ISSUER: &str = "https://idp.example";

/// Now, in seconds since 1970.
pub fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

impl IdentityProvider {
    /// Publishes these keys.
    ///
    /// # Panics
    /// When it cannot listen.
    pub fn start(keys: &[&TokenKey]) -> Self {
        let peer = Peer::start(publishing(keys));
        let authority = Authority::new();
        let front = TlsFront::start(peer.address, &authority, "127.0.0.1");
        let folder = TempDir::new().expect("a temporary folder can be made");
        authority.write(&folder.path().join("ca.pem"));
        Self { peer, front, folder }
    }

    /// Publishes these from now on.
    pub fn publish(&self, keys: &[&TokenKey]) {
        self.peer.follow(publishing(keys));
    }

    /// Answers like this from now on.
    pub fn follow(&self, script: impl Fn(&mut Exchange) -> Next + Send + Sync + 'static) {
        self.peer.follow(script);
    }

    /// How often its keys were asked for.
    pub fn fetches(&self) -> usize {
        self.peer.seen().len()
    }

    /// `spec.auth.jwt` with these further members of `provider`, such as `audiences: [gateway]`.
    pub fn jwt(&self, provider: &str) -> String {
        let uri = format!("https://{}/keys", self.front.address);
        format!("jwt: {{provider: {{name: idp, issuer: \"{ISSUER}\", remoteJWKS: {{uri: \"{uri}\"}}, {provider}}}}}")
    }

    /// The certificate to trust.
    pub fn ca_file(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }
}

fn publishing(keys: &[&TokenKey]) -> impl Fn(&mut Exchange) -> Next + Send + Sync + 'static {
    let keys: Vec<Value> = keys.iter().map(|key| key.published()).collect();
    let body = json!({ "keys": keys }).to_string();
    move |exchange| exchange.answer("200 OK", &[("content-type", "application/json")], &body)
}
