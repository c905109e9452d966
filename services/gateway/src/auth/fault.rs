//! Why a request's sender is not let in, in words for the client and, as RFC 6750 wants them, for its library.
//!
//! The words are fixed, but for names that the operator chose: nothing of a token or a key ever gets into an answer, a log or a
//! metric by way of a refusal. They tell a caller what to do about it, and tell a stranger nothing that the documentation does
//! not.

use protocol::Reason;

use crate::rejection::Rejection;

/// What is wrong with a request's credentials.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// There are none.
    #[error("{0}")]
    Missing(&'static str),
    /// A header of credentials is there more than once: readers would disagree on which one counts.
    #[error("credentials are sent twice: send one Authorization or x-api-key header")]
    Repeated,
    /// The `Authorization` header is of another scheme, or is not text.
    #[error("the Authorization header must be `Bearer` and a single token or key")]
    Scheme,
    /// No client has this key.
    #[error("the key is not known: check it, or ask the operator of this gateway for one")]
    UnknownKey,
    /// Neither a key nor a token.
    #[error("the token is no JSON Web Token of three parts: send it whole")]
    Malformed,
    /// Longer than any token that is read.
    #[error("the token is longer than 16384 bytes: ask for one with fewer claims")]
    TooLong,
    /// Signed in a way that is not accepted.
    #[error("the token is signed with an algorithm that is not accepted here: RS, PS, ES and EdDSA are")]
    Algorithm,
    /// It says that its reader must understand something that we do not.
    #[error("the token demands an extension (crit) that is not understood here")]
    Extension,
    /// Signed by a key that the provider does not publish, or with another algorithm than that key's.
    #[error("the token is signed with a key that the identity provider does not publish: get a new token")]
    UnknownSigner,
    /// The signature is not that of the key.
    #[error("the token's signature is not valid: get a new token")]
    Signature,
    /// Keys have never been read.
    #[error("the identity provider's keys could not be read yet, so no token can be checked: try again in a moment")]
    NoKeys,
    /// Of another issuer.
    #[error("the token is of another issuer than this gateway accepts")]
    Issuer,
    /// For another audience.
    #[error("the token is for another audience than this gateway")]
    Audience,
    /// A time that is missing or no number.
    #[error("the token's `{0}` is missing or no number")]
    Time(&'static str),
    /// Over.
    #[error("the token has expired: get a new one")]
    Expired,
    /// Not begun.
    #[error("the token is not valid yet: check the clocks of its sender and its issuer")]
    NotYet,
    /// A claim that the configuration demands is not there, or holds nothing that is admitted.
    #[error("the token is valid, and its claim `{0}` does not admit it to this gateway: ask the operator for access")]
    Claim(Box<str>),
}

impl Fault {
    /// Whether newer keys might make the token a good one.
    pub(super) const fn may_be_old_keys(&self) -> bool {
        match self {
            Self::UnknownSigner | Self::Signature | Self::NoKeys => true,
            Self::Missing(_)
            | Self::Repeated
            | Self::Scheme
            | Self::UnknownKey
            | Self::Malformed
            | Self::TooLong
            | Self::Algorithm
            | Self::Extension
            | Self::Issuer
            | Self::Audience
            | Self::Time(_)
            | Self::Expired
            | Self::NotYet
            | Self::Claim(_) => false,
        }
    }

    /// The refusal, in the name of this realm.
    pub(super) fn reject(&self, realm: &str) -> Rejection {
        let reason = match self {
            Self::Claim(_) => Reason::Forbidden,
            Self::Missing(_)
            | Self::Repeated
            | Self::Scheme
            | Self::UnknownKey
            | Self::Malformed
            | Self::TooLong
            | Self::Algorithm
            | Self::Extension
            | Self::UnknownSigner
            | Self::Signature
            | Self::NoKeys
            | Self::Issuer
            | Self::Audience
            | Self::Time(_)
            | Self::Expired
            | Self::NotYet => Reason::Unauthenticated,
        };
        let mut rejection = Rejection::new(reason, self.to_string()).challenge(&self.challenge(realm));
        if *self == Self::NoKeys {
            rejection.should_retry = Some("true");
        }
        rejection
    }

    /// `WWW-Authenticate`. Without credentials there is no error to name (RFC 6750, 3.1).
    fn challenge(&self, realm: &str) -> String {
        let error = match self {
            Self::Missing(_) | Self::NoKeys => return format!("Bearer realm=\"{realm}\""),
            Self::Repeated | Self::Scheme => "invalid_request",
            Self::Claim(_) => "insufficient_scope",
            Self::UnknownKey
            | Self::Malformed
            | Self::TooLong
            | Self::Algorithm
            | Self::Extension
            | Self::UnknownSigner
            | Self::Signature
            | Self::Issuer
            | Self::Audience
            | Self::Time(_)
            | Self::Expired
            | Self::NotYet => "invalid_token",
        };
        format!("Bearer realm=\"{realm}\", error=\"{error}\", error_description=\"{}\"", described(&self.to_string()))
    }
}

/// As `error_description` may be written: printable ASCII without quotes and backslashes.
fn described(text: &str) -> String {
    let plain = |char: char| match char {
        '"' | '\\' | '`' => '\'',
        ' '..='~' => char,
        _ => '?',
    };
    text.chars().map(plain).collect()
}
