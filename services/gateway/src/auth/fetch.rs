//! One fetch of a provider's key set, over HTTPS alone and bounded in every direction.
//!
//! Certificates are those that the system trusts (`SSL_CERT_FILE` and `SSL_CERT_DIR` name others). A redirect is followed to
//! `https` only, and not for long: keys that came by plain HTTP would be anybody's.

use std::time::Duration;

use bytes::Bytes;
use http::{
    HeaderMap, Method, Request, Response, StatusCode, Uri,
    header::{ACCEPT, CACHE_CONTROL, LOCATION, USER_AGENT},
};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};

use super::key_set::{KeySet, NoKeySet};

/// Largest set that is read, in bytes.
const SET_BYTES_MAX: usize = 1 << 20;
/// Longest time that all of a fetch may take.
const FETCH_MAX: Duration = Duration::from_secs(5);
/// Redirects that are followed.
const REDIRECTS_MAX: usize = 3;

/// What a fetch brought.
#[derive(Debug)]
pub(super) struct Fetched {
    pub(super) set: KeySet,
    /// What is to be said of keys that are of no use.
    pub(super) notes: Vec<String>,
    /// How long the provider says that the answer is good.
    pub(super) good_for: Option<Duration>,
}

/// Why a fetch brought nothing.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotFetched {
    /// No certificate to trust.
    #[error("no certificate authority is trusted here: the system has none, or SSL_CERT_FILE names none")]
    NoRoots,
    /// The URI cannot be asked for.
    #[error("it is no https URI")]
    Uri,
    /// Nobody answered.
    #[error("no answer")]
    Unreachable(#[source] hyper_util::client::legacy::Error),
    /// Too slow.
    #[error("no whole answer within 5 s")]
    Timeout,
    /// Not the answer that was asked for.
    #[error("the answer is {0}")]
    Status(StatusCode),
    /// To a place that is not followed.
    #[error("it redirects to a place that is not https, or too often")]
    Redirect,
    /// Cut off, or larger than any key set.
    #[error("the answer broke off, or is larger than 1 MiB")]
    Body,
    /// Something else than keys.
    #[error(transparent)]
    NoKeySet(#[from] NoKeySet),
}

impl NotFetched {
    /// As it stands in metrics.
    pub(super) const fn label(&self) -> &'static str {
        match self {
            Self::NoRoots | Self::Uri | Self::Unreachable(_) => "unreachable",
            Self::Timeout => "timeout",
            Self::Status(_) | Self::Redirect => "status",
            Self::Body => "body",
            Self::NoKeySet(_) => "no_key_set",
        }
    }
}

/// Whoever fetches.
pub(super) struct Fetcher(Client<HttpsConnector<HttpConnector>, Empty<Bytes>>);

impl Fetcher {
    /// Reads what is trusted, which takes a while.
    pub(super) fn new() -> Result<Self, NotFetched> {
        let tls = HttpsConnectorBuilder::new()
            .with_provider_and_native_roots(rustls::crypto::ring::default_provider())
            .map_err(|_| NotFetched::NoRoots)?;
        Ok(Self(Client::builder(TokioExecutor::new()).build(tls.https_only().enable_http1().build())))
    }

    /// Fetches a set.
    pub(super) async fn fetch(&self, uri: &str) -> Result<Fetched, NotFetched> {
        tokio::time::timeout(FETCH_MAX, self.get(uri)).await.map_err(|_| NotFetched::Timeout)?
    }

    async fn get(&self, uri: &str) -> Result<Fetched, NotFetched> {
        let response = self.followed(uri).await?;
        let good_for = max_age(response.headers());
        let body = Limited::new(response.into_body(), SET_BYTES_MAX).collect().await.map_err(|_| NotFetched::Body)?;
        let (set, notes) = KeySet::read(&body.to_bytes())?;
        Ok(Fetched { set, notes, good_for })
    }

    async fn followed(&self, uri: &str) -> Result<Response<Incoming>, NotFetched> {
        let mut uri: Uri = uri.parse().map_err(|_| NotFetched::Uri)?;
        for _ in 0..=REDIRECTS_MAX {
            let request = Request::builder()
                .method(Method::GET)
                .uri(&uri)
                .header(ACCEPT, "application/jwk-set+json, application/json")
                .header(USER_AGENT, concat!("inference-gateway/", env!("CARGO_PKG_VERSION")))
                .body(Empty::new())
                .map_err(|_| NotFetched::Uri)?;
            let response = self.0.request(request).await.map_err(NotFetched::Unreachable)?;
            match response.status() {
                StatusCode::OK => return Ok(response),
                status if status.is_redirection() => uri = target(&uri, response.headers())?,
                status => return Err(NotFetched::Status(status)),
            }
        }
        Err(NotFetched::Redirect)
    }
}

/// Where a redirect leads: to another place over HTTPS, or to another path of the same one.
fn target(from: &Uri, headers: &HeaderMap) -> Result<Uri, NotFetched> {
    let location = headers.get(LOCATION).and_then(|value| value.to_str().ok()).ok_or(NotFetched::Redirect)?;
    let location = match (location.starts_with('/') && !location.starts_with("//"), from.authority()) {
        (true, Some(authority)) => format!("https://{authority}{location}"),
        _ => location.to_owned(),
    };
    let uri: Uri = location.parse().map_err(|_| NotFetched::Redirect)?;
    if uri.scheme_str() == Some("https") { Ok(uri) } else { Err(NotFetched::Redirect) }
}

fn max_age(headers: &HeaderMap) -> Option<Duration> {
    let values = headers.get_all(CACHE_CONTROL).iter().filter_map(|value| value.to_str().ok());
    let mut directives = values.flat_map(|value| value.split(',')).map(str::trim);
    directives.find_map(|directive| {
        let (name, seconds) = directive.split_once('=')?;
        let seconds = seconds.trim_matches('"').parse().ok()?;
        name.trim().eq_ignore_ascii_case("max-age").then(|| Duration::from_secs(seconds))
    })
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn an_answer_says_how_long_it_is_good() {
        for (value, seconds) in [
            ("max-age=600", Some(600)),
            ("public, Max-Age=\"60\", must-revalidate", Some(60)),
            ("s-maxage=5, no-cache", None),
            ("max-age=soon", None),
        ] {
            let headers = HeaderMap::from_iter([(CACHE_CONTROL, HeaderValue::from_static(value))]);
            assert_eq!(max_age(&headers), seconds.map(Duration::from_secs), "{value}");
        }
    }

    #[test]
    fn a_redirect_stays_with_https() {
        let from = Uri::from_static("https://idp.example/keys");
        for (location, to) in [
            ("/other", Some("https://idp.example/other")),
            ("https://cdn.example/keys", Some("https://cdn.example/keys")),
            ("http://idp.example/keys", None),
            ("//evil.example/keys", None),
            ("file:///etc/keys", None),
            ("", None),
        ] {
            let headers = HeaderMap::from_iter([(LOCATION, HeaderValue::from_static(location))]);
            assert_eq!(target(&from, &headers).ok().map(|uri| uri.to_string()).as_deref(), to, "{location}");
        }
        assert!(target(&from, &HeaderMap::new()).is_err());
    }
}
