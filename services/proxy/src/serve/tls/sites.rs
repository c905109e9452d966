//! Which certificate a client is shown.
//!
//! First the listener's site for the name that the client asks for: the exact host name, else the longest wildcard, else
//! the site of every host. Then, of that site's certificates that the client can check, the first whose names have it,
//! else the first. So a listener for every host shows its first certificate to a client that asks for an unknown name or
//! for none, as nginx and Envoy do; one whose sites all have host names refuses the handshake, as the Gateway API asks.

use std::sync::Arc;

use arc_swap::ArcSwap;
use rustls::{
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};

use super::Certificate;

/// Certificates for the hosts of one listener.
#[derive(Clone, Debug, PartialEq)]
pub struct Site {
    /// In lower case: `example.com`, `*.example.com` (names of any depth below), or nothing for every host.
    pub hostname: Option<String>,
    /// In order of preference.
    pub certificates: Vec<Arc<Certificate>>,
}

/// All of them, replaced as one.
#[derive(Debug, Default)]
pub(super) struct Sites(ArcSwap<Vec<Site>>);

impl Sites {
    pub(super) fn set(&self, sites: Vec<Site>) {
        self.0.store(Arc::new(sites));
    }

    pub(super) fn are(&self, sites: &[Site]) -> bool {
        **self.0.load() == sites
    }

    /// The certificate for a name in lower case, among those that `can_check` accepts.
    pub(super) fn choose(
        &self,
        name: Option<&str>,
        can_check: impl Fn(&Certificate) -> bool,
    ) -> Option<Arc<Certificate>> {
        let sites = self.0.load();
        let ranked = sites.iter().filter_map(|site| Some((rank(site.hostname.as_deref(), name)?, site)));
        let (_, site) = ranked.max_by_key(|(rank, _)| *rank)?;
        let usable = || site.certificates.iter().filter(|certificate| can_check(certificate));
        let fitting = name.and_then(|name| usable().find(|certificate| certificate.fits(name)));
        fitting.or_else(|| usable().next()).cloned()
    }
}

impl ResolvesServerCert for Sites {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let name = hello.server_name().map(str::to_ascii_lowercase);
        let schemes = hello.signature_schemes();
        let chosen =
            self.choose(name.as_deref(), |certificate| certificate.key.key.choose_scheme(schemes).is_some())?;
        Some(Arc::clone(&chosen.key))
    }
}

/// How well a host name fits, or not at all: longer is better, exact is best.
fn rank(hostname: Option<&str>, name: Option<&str>) -> Option<usize> {
    let (Some(hostname), Some(name)) = (hostname, name) else { return hostname.is_none().then_some(0) };
    match hostname.strip_prefix('*') {
        // The dot stays: `*.example.com` is not for `notexample.com`, nor for `example.com`.
        Some(suffix) => (name.len() > suffix.len() && name.ends_with(suffix)).then_some(suffix.len()),
        None => (hostname == name).then_some(usize::MAX),
    }
}
