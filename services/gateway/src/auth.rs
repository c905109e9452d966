//! Who may send requests: by a token of an identity provider, by a key of the operator's own making, or by either.
//!
//! Every request is decided by its headers alone, before its body is read. It fails closed: what cannot be checked is refused,
//! whatever the reason. A token that was checked a moment ago costs a look; one that the known keys do not check makes the
//! provider be asked once for newer ones, however many requests bring such tokens.
//!
//! It refuses to speak of what it reads: no token, no key and no claim gets into a log, a metric or an answer.

mod api_keys;
mod cache;
mod claims;
mod credentials;
mod fault;
mod fetch;
mod identity;
mod key_set;
mod schedule;
mod source;
mod token;

use std::{sync::Arc, time::SystemTime};

use api::Config;
use http::{HeaderMap, HeaderName, header::AUTHORIZATION};

use self::{
    api_keys::ApiKeys,
    cache::{CHECK_COUNTS_FOR, Cache},
    claims::Demands,
    credentials::KEY_HEADERS,
    token::Token,
};
pub use self::{
    fault::Fault,
    identity::{Admitted, By, Identity, Kept},
    source::{KeySource, Waiting, follow},
};
use crate::{rejection::Rejection, world::World};

/// Who may send requests, by one configuration.
pub struct Auth {
    /// Whose gateway it is, for `WWW-Authenticate`.
    realm: Box<str>,
    keys: Option<ApiKeys>,
    tokens: Option<Tokens>,
}

struct Tokens {
    demands: Demands,
    kept: Kept,
    source: Arc<KeySource>,
    cache: Cache,
}

/// Why a request does not pass now.
pub enum Held {
    /// It is refused.
    Refused(Box<Rejection>),
    /// Newer keys are on their way, which may let it pass: wait, and ask again.
    Waiting(Waiting),
}

impl Auth {
    /// What a configuration asks for, and what is to be said of it. Nothing if everybody may pass. Keys of a provider that
    /// `former` knew stay known.
    pub fn new(config: &Config, former: Option<&Self>, world: &World) -> Option<(Self, Vec<String>)> {
        let auth = config.auth.as_ref()?;
        let (keys, notes) = auth.api_keys.as_ref().map(ApiKeys::new).unzip();
        let tokens = auth.jwt.as_ref().map(|jwt| {
            let known = former.and_then(Self::key_source).filter(|source| source.is_of(&jwt.provider, &jwt.jwks_uri));
            let new = || KeySource::new(&jwt.provider, &jwt.jwks_uri, world.clock, &world.metrics);
            Tokens {
                demands: Demands::new(jwt),
                kept: Kept::new(claims_asked_for(config)),
                source: known.cloned().unwrap_or_else(new),
                cache: Cache::new(),
            }
        });
        Some((Self { realm: config.name.as_str().into(), keys, tokens }, notes.unwrap_or_default()))
    }

    /// Where the provider's keys come from; somebody has to [`follow`] it.
    pub fn key_source(&self) -> Option<&Arc<KeySource>> {
        self.tokens.as_ref().map(|tokens| &tokens.source)
    }

    /// Whether a request with these headers may pass.
    ///
    /// # Errors
    /// Why not, or what to wait for.
    pub fn admit(&self, headers: &HeaderMap, now: SystemTime) -> Result<Admitted, Held> {
        self.check(headers, now).map_err(|fault| {
            let source = self.key_source().filter(|_| fault.may_be_old_keys());
            source.and_then(KeySource::wish).map_or_else(|| self.refused(&fault), Held::Waiting)
        })
    }

    /// The same, for a request that has waited: it does not wait again.
    ///
    /// # Errors
    /// Why not.
    pub fn admit_now(&self, headers: &HeaderMap, now: SystemTime) -> Result<Admitted, Box<Rejection>> {
        self.check(headers, now).map_err(|fault| Box::new(fault.reject(&self.realm)))
    }

    fn refused(&self, fault: &Fault) -> Held {
        Held::Refused(Box::new(fault.reject(&self.realm)))
    }

    /// A key in a header of its own decides if it is there and known; else what `Authorization` says.
    fn check(&self, headers: &HeaderMap, now: SystemTime) -> Result<Admitted, Fault> {
        let admitted =
            |identity: Arc<Identity>, credential: &HeaderName| Admitted { identity, credential: credential.clone() };
        let mut fault = None;
        if let Some(keys) = &self.keys {
            for name in &KEY_HEADERS {
                let Some(value) = credentials::only(headers, name)? else { continue };
                match keys.find(value.as_bytes().trim_ascii()) {
                    Some(identity) => return Ok(admitted(Arc::clone(identity), name)),
                    None => fault = Some(Fault::UnknownKey),
                }
            }
        }
        match credentials::bearer(headers)? {
            Some(bearer) => Ok(admitted(self.bearer(bearer, now)?, &AUTHORIZATION)),
            None => Err(fault.unwrap_or(Fault::Missing(self.wanted()))),
        }
    }

    /// Whose token or key this is.
    fn bearer(&self, bearer: &str, now: SystemTime) -> Result<Arc<Identity>, Fault> {
        let key = || self.keys.as_ref().and_then(|keys| keys.find(bearer.as_bytes())).cloned();
        // Hashing a long token as a key costs more than finding it among those checked before.
        let tokens = self.tokens.as_ref().filter(|_| self.keys.is_none() || looks_like_a_token(bearer));
        match tokens {
            Some(tokens) => tokens.check(bearer, now).or_else(|fault| key().ok_or(fault)),
            None => key().ok_or(Fault::UnknownKey),
        }
    }

    fn wanted(&self) -> &'static str {
        match (&self.tokens, &self.keys) {
            (Some(_), None) => "no token: send one as `Authorization: Bearer TOKEN`",
            (None, _) => "no key: send yours as `Authorization: Bearer KEY` or `x-api-key: KEY`",
            (Some(_), Some(_)) => {
                "no token or key: send one as `Authorization: Bearer …`, or a key as `x-api-key: KEY`"
            }
        }
    }
}

impl Tokens {
    fn check(&self, text: &str, now: SystemTime) -> Result<Arc<Identity>, Fault> {
        let keys = self.source.keys();
        let place = self.cache.place(text);
        if let Some(identity) = self.cache.find(place, keys.version, now) {
            return Ok(identity);
        }
        let token = Token::read(text)?;
        let until = self.demands.is_ours(&token.claims, now)?;
        if keys.version == 0 {
            return Err(Fault::NoKeys);
        }
        keys.set.verify(&token)?;
        self.demands.admit(&token.claims)?;
        let identity = Arc::new(Identity::of_token(&token.claims, &self.kept));
        self.cache.keep(place, &identity, keys.version, until.min(now + CHECK_COUNTS_FOR));
        Ok(identity)
    }
}

fn looks_like_a_token(text: &str) -> bool {
    text.bytes().filter(|byte| *byte == b'.').count() == 2
}

/// Claims that limits and bands look at.
fn claims_asked_for(config: &Config) -> impl Iterator<Item = &str> {
    let limits = config.limits.iter().chain(config.schedulers.iter().flat_map(|scheduler| &scheduler.limits));
    let by_limits = limits.filter_map(|limit| match &limit.key {
        api::LimitKey::Claim(name) => Some(name.as_str()),
        api::LimitKey::Header(_) | api::LimitKey::Authorization => None,
    });
    let bands = config.schedulers.iter().map(|scheduler| &scheduler.band_claim).chain([&config.band_claim]);
    by_limits.chain(bands.flatten().map(|claim| claim.name.as_str()))
}

#[cfg(test)]
mod tests;
