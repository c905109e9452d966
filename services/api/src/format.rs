//! What texts may look like, each rule once: its name in the schema, its check, and what to tell who broke it.
//!
//! Hand-written checks in place of regular expressions, so that the message says what is wrong and the crate stays
//! small. `docs` is the phrase that `docs/config.md` prints.

use std::net::{IpAddr, Ipv6Addr};

use schemars::{Schema, SchemaGenerator};

use crate::{duration, quantity};

/// A rule for a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// Lower-case letters, digits and `-`: names of Kubernetes objects that become host names.
    DnsLabel,
    /// Labels joined by `.`.
    DnsSubdomain,
    /// The key of a Kubernetes label.
    LabelKey,
    /// The value of a Kubernetes label.
    LabelValue,
    /// What can stand in a header: model and adapter names.
    HeaderText,
    /// A header's name.
    HeaderName,
    /// IP address or DNS name.
    Host,
    /// The path of a URL.
    UrlPath,
    /// `https://…`.
    HttpsUrl,
    /// The Gateway API's duration.
    Duration,
    /// Kubernetes' quantity, of bytes.
    Quantity,
    /// The name of an environment variable.
    EnvName,
    /// The path of a file.
    FilePath,
}

impl Format {
    pub(crate) const ALL: [Self; 13] = [
        Self::DnsLabel,
        Self::DnsSubdomain,
        Self::LabelKey,
        Self::LabelValue,
        Self::HeaderText,
        Self::HeaderName,
        Self::Host,
        Self::UrlPath,
        Self::HttpsUrl,
        Self::Duration,
        Self::Quantity,
        Self::EnvName,
        Self::FilePath,
    ];

    /// Its name in the schema.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::DnsLabel => "dns-label",
            Self::DnsSubdomain => "dns-subdomain",
            Self::LabelKey => "label-key",
            Self::LabelValue => "label-value",
            Self::HeaderText => "header-text",
            Self::HeaderName => "header-name",
            Self::Host => "host",
            Self::UrlPath => "url-path",
            Self::HttpsUrl => "https-url",
            Self::Duration => duration::FORMAT,
            Self::Quantity => quantity::FORMAT,
            Self::EnvName => "env-name",
            Self::FilePath => "file-path",
        }
    }

    /// Fewest and most characters.
    pub(crate) const fn chars(self) -> (u64, u64) {
        match self {
            Self::DnsLabel => (1, 63),
            Self::LabelValue => (0, 63),
            Self::DnsSubdomain | Self::HeaderText | Self::Host | Self::EnvName => (1, 253),
            Self::HeaderName => (1, 256),
            // A prefix of 253, a slash and a name of 63.
            Self::LabelKey => (1, 317),
            Self::UrlPath => (1, 1024),
            Self::HttpsUrl => (1, 2048),
            Self::Duration | Self::Quantity => (1, 40),
            Self::FilePath => (1, 4096),
        }
    }

    /// What it must be, to end the sentence "must be …".
    pub(crate) const fn phrase(self) -> &'static str {
        match self {
            Self::DnsLabel => "lower-case letters, digits and `-`, beginning and ending with a letter or digit",
            Self::DnsSubdomain => {
                "lower-case letters, digits, `-` and `.`, each part beginning and ending with a letter or digit"
            }
            Self::LabelKey => "the key of a Kubernetes label, like `app` or `example.com/app`",
            Self::LabelValue => {
                "letters, digits, `-`, `_` and `.`, beginning and ending with a letter or digit, or empty"
            }
            Self::HeaderText => "text without control characters, and without spaces at its ends",
            Self::HeaderName => "the name of a header, like `x-team`",
            Self::Host => "an IP address or a DNS name, without scheme, port or path",
            Self::UrlPath => {
                "a path like `/v1/thing`, without query, fragment, spaces, `..` or `*` (paths match whole)"
            }
            Self::HttpsUrl => "an `https://` URL",
            Self::Duration => "a duration like `30s`, `5m` or `200ms` (units h, m, s, ms; `0s` for zero)",
            Self::Quantity => "a number of bytes like `64Mi` or 1000",
            Self::EnvName => "the name of an environment variable: letters, digits and `_`, not beginning with a digit",
            Self::FilePath => "the path of a file",
        }
    }

    /// The same as a regular expression that an API server understands (RE2), as far as one can say it.
    pub(crate) const fn pattern(self) -> &'static str {
        match self {
            Self::DnsLabel => "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$",
            Self::DnsSubdomain => r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?(\.[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)*$",
            Self::LabelKey => {
                r"^([a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?(\.[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$"
            }
            Self::LabelValue => "^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$",
            Self::HeaderText => r"^[^\pZ\p{Cc}]([^\p{Cc}]*[^\pZ\p{Cc}])?$",
            Self::HeaderName => r"^[-!#$%&'*+.^_`|~0-9A-Za-z]+$",
            // Loosely: only files name hosts.
            Self::Host => r"^[^/\s]+$",
            Self::UrlPath => r"^/[!$-)+-;=@-\[\]-~]*$",
            Self::HttpsUrl => r##"^https://[!"$-.0->A-~]+([/?#][!-~]*)?$"##,
            Self::Duration => duration::PATTERN,
            Self::Quantity => r"^([0-9]{1,20}(\.[0-9]{0,9})?|\.[0-9]{1,9})(Ki|Mi|Gi|Ti|Pi|Ei|k|M|G|T|P|E)?$",
            Self::EnvName => "^[A-Za-z_][A-Za-z0-9_]*$",
            Self::FilePath => r"^[^\x00]+$",
        }
    }

    /// Whether a text is one. Lengths are the schema's concern.
    pub(crate) fn holds(self, text: &str) -> bool {
        match self {
            Self::DnsLabel => is_dns_label(text),
            Self::DnsSubdomain => text.split('.').all(is_dns_label),
            Self::LabelKey => is_label_key(text),
            Self::LabelValue => text.is_empty() || is_qualified(text),
            Self::HeaderText => !text.contains(char::is_control) && text.trim() == text && !text.is_empty(),
            Self::HeaderName => text.bytes().all(is_token_byte) && !text.is_empty(),
            Self::Host => is_host(text),
            Self::UrlPath => is_url_path(text),
            Self::HttpsUrl => is_https_url(text),
            Self::Duration => duration::GatewayDuration::parse(text).is_some(),
            Self::Quantity => quantity::ByteQuantity::parse(text).is_some(),
            Self::EnvName => {
                text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
                    && text.bytes().next().is_some_and(|b| !b.is_ascii_digit())
            }
            Self::FilePath => !text.contains('\0') && !text.is_empty(),
        }
    }
}

fn is_dns_label(text: &str) -> bool {
    let inner = text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
    inner && text.len() <= 63 && !text.is_empty() && !text.starts_with('-') && !text.ends_with('-')
}

fn is_qualified(text: &str) -> bool {
    let ends = [text.bytes().next(), text.bytes().last()];
    text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
        && ends.into_iter().all(|b| b.is_some_and(|b| b.is_ascii_alphanumeric()))
}

fn is_label_key(text: &str) -> bool {
    let (prefix, name) = text.split_once('/').map_or((None, text), |(prefix, name)| (Some(prefix), name));
    prefix.is_none_or(|prefix| prefix.split('.').all(is_dns_label) && prefix.len() <= 253)
        && is_qualified(name)
        && name.len() <= 63
}

fn is_token_byte(b: u8) -> bool {
    b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b)
}

fn is_host(text: &str) -> bool {
    if let Some(inner) = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        return inner.parse::<Ipv6Addr>().is_ok();
    }
    if text.parse::<IpAddr>().is_ok() {
        return true;
    }
    let name = text.strip_suffix('.').unwrap_or(text);
    let label = |label: &str| {
        !label.is_empty()
            && label.len() <= 63
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
    };
    // A name whose last part is a number is a mistyped IPv4 address, never a host.
    let number_at_end = name.rsplit('.').next().is_some_and(|last| last.bytes().all(|b| b.is_ascii_digit()));
    name.split('.').all(label) && !number_at_end
}

fn is_url_path(text: &str) -> bool {
    let plain = |b: u8| b.is_ascii_graphic() && !matches!(b, b'?' | b'#' | b'*' | b'\\' | b'"' | b'<' | b'>');
    text.starts_with('/') && text.bytes().all(plain) && !text.split('/').any(|part| part == ".." || part == ".")
}

fn is_https_url(text: &str) -> bool {
    text.strip_prefix("https://").is_some_and(|rest| {
        let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
        !host.is_empty() && !host.contains('@') && rest.bytes().all(|b| b.is_ascii_graphic())
    })
}

// === Schemas of texts, for `#[schemars(schema_with = …)]` ===

macro_rules! schemas {
    ($($function:ident => $format:ident),* $(,)?) => {
        $(pub(crate) fn $function(_: &mut SchemaGenerator) -> Schema {
            schema(Format::$format)
        })*
    };
}

schemas! {
    dns_label => DnsLabel,
    dns_subdomain => DnsSubdomain,
    header_text => HeaderText,
    header_name => HeaderName,
    host => Host,
    url_path => UrlPath,
    https_url => HttpsUrl,
    env_name => EnvName,
    file_path => FilePath,
    label_key => LabelKey,
}

/// A list of texts of one format.
pub(crate) fn list(format: Format, items_max: usize) -> Schema {
    schemars::json_schema!({ "type": "array", "items": schema(format), "maxItems": items_max })
}

/// Kubernetes labels.
pub(crate) fn labels(_: &mut SchemaGenerator) -> Schema {
    schemars::json_schema!({
        "type": "object",
        "propertyNames": schema(Format::LabelKey),
        "additionalProperties": schema(Format::LabelValue),
    })
}

/// Labels that a selector demands, as many as an `InferencePool` may.
pub(crate) fn selected_labels(generator: &mut SchemaGenerator) -> Schema {
    let mut schema = labels(generator);
    schema.insert("maxProperties".to_owned(), 64.into());
    schema
}

fn schema(format: Format) -> Schema {
    let (chars_min, chars_max) = format.chars();
    schemars::json_schema!({ "type": "string", "format": format.name(), "minLength": chars_min, "maxLength": chars_max })
}

#[cfg(test)]
mod tests;
