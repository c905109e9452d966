//! Keys of the operator's own making: one per client, known by their hashes alone.
//!
//! Each process hashes with a salt of its own, so that neither a copy of its memory nor the time that a look takes says
//! anything about a key. A rotated Secret makes a new value of this type; there is nothing to invalidate.

use std::{collections::HashMap, sync::Arc};

use rustls::crypto::ring;
use sha2::{Digest, Sha256};

use super::Identity;

/// Shortest key that is taken, in bytes: what can be guessed is no key.
const KEY_BYTES_MIN: usize = 8;
/// Longest key that is looked at, in bytes.
const KEY_BYTES_MAX: usize = 4096;

const SALT_BYTES: usize = 32;

type Hash = [u8; 32];

/// The keys of all clients.
pub(super) struct ApiKeys {
    salt: [u8; SALT_BYTES],
    clients: HashMap<Hash, Arc<Identity>>,
}

impl ApiKeys {
    /// Of these clients, and what is to be said of keys that are not taken.
    pub(super) fn new(keys: &api::ApiKeys) -> (Self, Vec<String>) {
        let mut salt = [0; SALT_BYTES];
        ring::default_provider()
            .secure_random
            .fill(&mut salt)
            .expect("the system has random numbers, as TLS needs them");
        let mut known = Self { salt, clients: HashMap::new() };
        let mut notes = Vec::new();
        for (client, key) in &keys.keys {
            let key = key.0.trim_ascii();
            let problem = match key.len() {
                ..KEY_BYTES_MIN => Some("it is shorter than 8 characters"),
                KEY_BYTES_MIN..=KEY_BYTES_MAX if !key.iter().all(u8::is_ascii_graphic) => {
                    Some("it holds characters that no header can carry")
                }
                KEY_BYTES_MIN..=KEY_BYTES_MAX => {
                    let hash = known.hash(key);
                    let is_new = !known.clients.contains_key(&hash);
                    known.clients.entry(hash).or_insert_with(|| Arc::new(Identity::of_key(client)));
                    (!is_new).then_some("another client has the same")
                }
                _ => Some("it is longer than 4096 characters"),
            };
            notes.extend(
                problem.map(|why| format!("Secret `{}`: the key of `{client}` is not taken: {why}", keys.secret)),
            );
        }
        if known.clients.is_empty() {
            notes.push(format!("Secret `{}` holds no key that is taken: nobody gets in by a key", keys.secret));
        }
        (known, notes)
    }

    /// Whose key it is.
    pub(super) fn find(&self, key: &[u8]) -> Option<&Arc<Identity>> {
        if !(KEY_BYTES_MIN..=KEY_BYTES_MAX).contains(&key.len()) {
            return None;
        }
        self.clients.get(&self.hash(key))
    }

    fn hash(&self, key: &[u8]) -> Hash {
        Sha256::new().chain_update(self.salt).chain_update(key).finalize().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(pairs: &[(&str, &str)]) -> (ApiKeys, Vec<String>) {
        let keys = pairs.iter().map(|(client, key)| ((*client).to_owned(), api::Hidden(key.as_bytes().to_vec())));
        ApiKeys::new(&api::ApiKeys { secret: "clients".into(), keys: keys.collect() })
    }

    #[test]
    fn a_client_is_known_by_its_whole_key() {
        let (known, notes) = keys(&[("alice", "sk-alice-0123456789\n"), ("bob", "sk-bob-0123456789ab")]);
        assert_eq!(notes, [""; 0]);
        let subject = |key: &str| known.find(key.as_bytes()).and_then(|identity| identity.subject());
        assert_eq!(subject("sk-alice-0123456789"), Some("alice"));
        assert_eq!(subject("sk-bob-0123456789ab"), Some("bob"));
        for wrong in
            ["", "alice", "sk-alice-012345678", "sk-alice-01234567899", "SK-ALICE-0123456789", "sk-alice-0123456789\n"]
        {
            assert_eq!(subject(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn what_is_no_key_is_not_taken_and_that_is_said_without_it() {
        let long = "x".repeat(4097);
        let (known, notes) = keys(&[
            ("a", "short"),
            ("b", "has a space inside it"),
            ("c", "the-same-key-for-two"),
            ("d", "the-same-key-for-two"),
            ("e", &long),
            ("f", ""),
        ]);
        assert_eq!(known.find(b"the-same-key-for-two").and_then(|identity| identity.subject()), Some("c"));
        assert!(known.find(b"short").is_none() && known.find(long.as_bytes()).is_none() && known.find(b"").is_none());
        assert_eq!(notes.len(), 5, "{notes:?}");
        assert!(!notes.iter().any(|note| note.contains("short") && !note.contains("shorter")), "{notes:?}");
        let (_, notes) = keys(&[]);
        assert!(notes[0].contains("nobody gets in"), "{notes:?}");
    }

    #[test]
    fn two_processes_hash_a_key_differently() {
        let (one, two) = (keys(&[("a", "sk-0123456789abcdef")]).0, keys(&[("a", "sk-0123456789abcdef")]).0);
        assert_ne!(one.clients.keys().next(), two.clients.keys().next());
    }
}
