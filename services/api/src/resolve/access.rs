//! Who may send requests, by what claim their band is chosen, and what certificate they meet.

use std::collections::BTreeMap;

use serde_json::Value as Json;

use super::read;
use crate::{
    config::{ApiKeys, Auth, BandClaim, ClaimHolds, FlowBand, Hidden, Jwt, KeyPair, RequiredClaim, Tls},
    document::{self, BandName, ClaimValueType, GatewayTls, Kind},
    load::Item,
    place::Findings,
    rules::secrets::{TLS_ENTRIES, key},
    secret,
};

/// HTTPS for clients, with the pair of the Secret that is named.
pub(super) fn tls(spec: GatewayTls, items: &[Item<'_>]) -> Tls {
    let secret = spec.secret_ref.map(|reference| reference.name);
    let mut entries = secret.as_deref().map(|name| entries_of(name, items)).unwrap_or_default();
    let [certificate, key] = TLS_ENTRIES.map(|entry| entries.remove(entry));
    let pair = certificate.zip(key).map(|(certificate_pem, key_pem)| KeyPair { certificate_pem, key_pem });
    Tls { secret, acm_arn: spec.acm_arn.filter(|arn| !arn.is_empty()), pair }
}

/// Tokens and keys.
pub(super) fn auth(spec: document::Auth, items: &[Item<'_>]) -> Auth {
    Auth { jwt: spec.jwt.map(jwt), api_keys: spec.api_keys.map(|spec| api_keys(spec, items)) }
}

/// The claim of `spec.flowControl`, or the one that a scheduler has in its place.
pub(super) fn band_claim(flow_control: &Json, item: &Item<'_>, findings: &mut Findings) -> Option<Option<BandClaim>> {
    let Some(written) = flow_control.get("bandClaim") else { return Some(None) };
    let spec: document::BandClaim = read(written.clone(), item, findings)?;
    let values = spec.values.into_iter().map(|(value, name)| (value, band(name))).collect();
    Some(Some(BandClaim { name: spec.name, values }))
}

fn band(name: BandName) -> FlowBand {
    match name {
        BandName::Critical => FlowBand::Critical,
        BandName::Standard => FlowBand::Standard,
        BandName::Sheddable => FlowBand::Sheddable,
    }
}

fn jwt(spec: document::Jwt) -> Jwt {
    let provider = spec.provider;
    let required_claims = provider.required_claims.into_iter().map(|claim| RequiredClaim {
        name: claim.name,
        holds: match claim.value_type {
            ClaimValueType::String => ClaimHolds::Text,
            ClaimValueType::StringArray => ClaimHolds::Texts,
        },
        values: claim.values,
    });
    Jwt {
        required_claims: required_claims.collect(),
        provider: provider.name,
        issuer: provider.issuer,
        jwks_uri: provider.remote_jwks.uri,
        clock_skew: spec.clock_skew.0,
        audiences: provider.audiences,
    }
}

fn api_keys(spec: document::ApiKeys, items: &[Item<'_>]) -> ApiKeys {
    let secret = spec.secret_ref.name;
    let entries = entries_of(&secret, items).into_iter();
    let keys = entries.filter_map(|(client, value)| Some((client, Hidden(key(&value)?.to_vec()))));
    ApiKeys { keys: keys.collect(), secret }
}

/// What a Secret holds. What is wrong in it was told already.
fn entries_of(name: &str, items: &[Item<'_>]) -> BTreeMap<String, Hidden> {
    let mut secrets = items.iter().filter(|item| item.kind == Kind::Secret);
    let found = secrets.find(|item| item.name() == Some(name));
    found.map(|item| secret::entries(&item.at, &mut Findings::default())).unwrap_or_default()
}
