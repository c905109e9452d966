//! The certificates that listeners show: each pair is read when it changes, and a bad one never takes a good one's place.
//!
//! A pair that is torn (one half replaced before the other), broken or expired is counted and told once, and what was shown
//! before stays. Only where nothing better is known an expired one is shown, loudly: some load balancers do not look, and
//! those clients that do are no worse off. A pair is known by the Secret it comes from.

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::Hasher,
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use api::Config;
use proxy::serve::tls::{Certificate, CertificateError, Site, Tls};
use telemetry::{
    Metrics,
    catalog::{CERTIFICATE_NOT_AFTER, CERTIFICATES_REFUSED},
};
use xxhash_rust::xxh3::Xxh3;

use super::build::Unusable;

/// A pair as it is kept in a Secret: PEM, unread.
#[derive(Clone, Copy)]
pub(crate) struct Pair<'a> {
    /// `tls.crt`.
    pub(crate) certificate: &'a [u8],
    /// `tls.key`.
    pub(crate) key: &'a [u8],
}

/// What one listener is to show.
pub(crate) struct Wanted<'a> {
    /// What metrics call it.
    pub(crate) listener: &'a str,
    /// As in [`Site::hostname`].
    pub(crate) hostname: Option<&'a str>,
    /// Names of Secrets, and what is in them; nothing: there is no such Secret now.
    pub(crate) secrets: Vec<(&'a str, Option<Pair<'a>>)>,
}

/// What metrics call the listener of a process that reads files.
const FRONT: &str = "https";

/// The pair that a configuration in files names.
pub(super) fn of(config: &Config) -> Option<(&str, Pair<'_>)> {
    let tls = config.tls.as_ref()?;
    let (secret, pair) = tls.secret.as_deref().zip(tls.pair.as_ref())?;
    Some((secret, Pair { certificate: &pair.certificate_pem.0, key: &pair.key_pem.0 }))
}

/// Why a pair is not shown.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Problem {
    /// It is none.
    #[error(transparent)]
    Unusable(#[from] CertificateError),
    /// The one in force is better.
    #[error("the certificate has expired, and the one in force has not")]
    Expired,
}

/// Every Secret's newest good pair.
#[derive(Default)]
pub(crate) struct Certificates {
    kept: BTreeMap<String, Kept>,
    /// Listeners with series.
    shown: BTreeSet<String>,
}

#[derive(Default)]
struct Kept {
    good: Option<Arc<Certificate>>,
    /// Digests of what was accepted, and of what was refused last.
    accepted: Option<u64>,
    refused: Option<u64>,
}

impl Certificates {
    /// Whether the pair that a configuration in files names can be shown.
    ///
    /// # Errors
    /// As of [`Certificates::judge`].
    pub(super) fn judge_front(&mut self, config: &Config, metrics: &Metrics) -> Result<(), Unusable> {
        let Some((secret, pair)) = of(config) else { return Ok(()) };
        let unusable = |problem| Unusable::Certificate { secret: secret.to_owned(), problem };
        self.judge(FRONT, secret, pair, metrics).map(|_| ()).map_err(unusable)
    }

    /// Shows that pair, or speaks plain text where the configuration names none.
    pub(super) fn show_front(&mut self, config: &Config, front: &Tls, metrics: &Metrics) {
        match of(config) {
            Some((secret, pair)) => {
                let wanted = Wanted { listener: FRONT, hostname: None, secrets: vec![(secret, Some(pair))] };
                self.show(&[(front, vec![wanted])], metrics);
            }
            None => {
                self.show(&[], metrics);
                front.speak_plain();
            }
        }
    }

    /// Reads a pair, without effect on what is shown.
    ///
    /// # Errors
    /// It cannot take the place of what is kept. That is counted and told the first time.
    pub(crate) fn judge(
        &mut self,
        listener: &str,
        secret: &str,
        pair: Pair<'_>,
        metrics: &Metrics,
    ) -> Result<Arc<Certificate>, Problem> {
        let kept = self.kept.entry(secret.to_owned()).or_default();
        let digest = digest(pair);
        if let Some(good) = kept.good.as_ref().filter(|_| kept.accepted == Some(digest)) {
            return Ok(Arc::clone(good));
        }
        let judged = judged(kept.good.as_deref(), pair, SystemTime::now());
        match &judged {
            Ok(_) => kept.refused = None,
            Err(problem) if kept.refused != Some(digest) => {
                kept.refused = Some(digest);
                metrics.counter(&CERTIFICATES_REFUSED, &[listener]).increment(1);
                if kept.good.is_some() {
                    tracing::error!(listener, secret, %problem, "certificate refused; what was shown before stays");
                } else {
                    tracing::error!(listener, secret, %problem, "certificate refused, and there is no other to show");
                }
            }
            Err(_) => {}
        }
        judged
    }

    /// Shows what [`Certificates::judge`] lets through, and what is kept in place of the rest. Secrets that nobody names
    /// are forgotten. `doors`: each listener's socket, and the sites behind it.
    pub(crate) fn show(&mut self, doors: &[(&Tls, Vec<Wanted<'_>>)], metrics: &Metrics) {
        let mut named = BTreeSet::new();
        let mut listeners = BTreeSet::new();
        for (tls, wanted) in doors {
            let mut sites = Vec::new();
            for wanted in wanted {
                let certificates = self.certificates(wanted, metrics);
                named.extend(wanted.secrets.iter().map(|(secret, _)| (*secret).to_owned()));
                if let Some(first) = certificates.iter().map(|certificate| certificate.not_after()).min() {
                    listeners.insert(wanted.listener.to_owned());
                    let seconds = first.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
                    metrics.gauge(&CERTIFICATE_NOT_AFTER, &[wanted.listener]).set(seconds);
                }
                sites.push(Site { hostname: wanted.hostname.map(str::to_ascii_lowercase), certificates });
            }
            if let Err(error) = tls.speak_tls(sites) {
                tracing::error!(%error, "certificates cannot be shown; what was shown before stays");
            }
        }
        for gone in self.shown.difference(&listeners) {
            metrics.forget_gauge(&CERTIFICATE_NOT_AFTER, &[gone]);
        }
        self.shown = listeners;
        self.kept.retain(|secret, _| named.contains(secret));
    }

    fn certificates(&mut self, wanted: &Wanted<'_>, metrics: &Metrics) -> Vec<Arc<Certificate>> {
        let mut certificates = Vec::new();
        for (secret, pair) in &wanted.secrets {
            if let Some(pair) = *pair
                && let Ok(new) = self.judge(wanted.listener, secret, pair, metrics)
            {
                self.accept(wanted.listener, secret, pair, new);
            }
            certificates.extend(self.kept.get(*secret).and_then(|kept| kept.good.clone()));
        }
        certificates
    }

    fn accept(&mut self, listener: &str, secret: &str, pair: Pair<'_>, new: Arc<Certificate>) {
        let kept = self.kept.entry(secret.to_owned()).or_default();
        let digest = digest(pair);
        if kept.accepted == Some(digest) {
            return;
        }
        let not_after = new.not_after().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        if new.has_expired_at(SystemTime::now()) {
            tracing::error!(
                listener,
                secret,
                not_after,
                "the certificate has EXPIRED: clients that check it refuse it"
            );
        } else {
            tracing::info!(listener, secret, not_after, "certificate in force");
        }
        kept.good = Some(new);
        kept.accepted = Some(digest);
    }
}

/// Whether a pair may take the place of what is kept.
fn judged(kept: Option<&Certificate>, pair: Pair<'_>, now: SystemTime) -> Result<Arc<Certificate>, Problem> {
    let new = Certificate::from_pem(pair.certificate, pair.key)?;
    if new.has_expired_at(now) && kept.is_some_and(|kept| !kept.has_expired_at(now)) {
        return Err(Problem::Expired);
    }
    Ok(Arc::new(new))
}

/// Tells contents apart without keeping them.
fn digest(pair: Pair<'_>) -> u64 {
    let mut hasher = Xxh3::new();
    for half in [pair.certificate, pair.key] {
        hasher.write_usize(half.len());
        hasher.update(half);
    }
    hasher.finish()
}
