//! From wanted and found endpoints to what requests need to reach them.

use std::{
    collections::{HashMap, hash_map::DefaultHasher},
    hash::{Hash, Hasher},
    path::PathBuf,
    sync::Arc,
};

use api::{ApiKeySource, EndpointSpec};
use discovery::resolve::{Found, TlsTo, Trust};
use dispatch::{Membership, Standing};
use http::HeaderValue;
use pool::{Endpoint, EndpointId, Host};
use proxy::client::{Destination, Protocol, TlsClient, Verify};
use telemetry::catalog::PICKS;

use super::{
    build::{Looks, Place, Unusable},
    keys::Keys,
};
use crate::{
    pools::{EndpointHandle, PoolHandle},
    world::World,
};

/// Whose a wanted endpoint is, by its identity.
pub(super) struct Owner {
    pub(super) pool: Arc<PoolHandle>,
    pub(super) protocol: Protocol,
    pub(super) tls: Option<Arc<TlsClient>>,
    pub(super) key: Option<ApiKeySource>,
    pub(super) looks: Looks,
}

/// An endpoint that is there, and the pool it serves in.
pub(super) struct Member {
    pub(super) pool: Arc<PoolHandle>,
    pub(super) endpoint: Endpoint,
    pub(super) handle: Arc<EndpointHandle>,
    pub(super) looks: Looks,
}

impl Member {
    pub(super) fn membership(&self) -> Membership {
        Membership { endpoint: self.endpoint.clone(), standing: Standing::Serving }
    }
}

pub(super) fn tls_to(tls: &api::EndpointTls) -> TlsTo {
    let trust = match (&tls.ca_file, tls.insecure_skip_verify) {
        (_, true) => Trust::Anyone,
        (Some(path), false) => Trust::CaFile(path.clone()),
        (None, false) => Trust::System,
    };
    TlsTo { server_name: tls.server_name.clone(), trust }
}

pub(super) fn tls_client(spec: &EndpointSpec, tls: &TlsTo) -> Result<Arc<TlsClient>, Unusable> {
    let verify = match &tls.trust {
        Trust::System => Verify::System,
        Trust::CaFile(path) => Verify::CaFile(PathBuf::clone(path)),
        Trust::Anyone => Verify::Nothing,
    };
    let name = tls.server_name.as_deref().unwrap_or(&spec.address);
    let unusable = |error: proxy::client::TlsError| Unusable::Tls {
        endpoint: spec.name.clone(),
        problem: crate::errors::chain(&error),
    };
    TlsClient::new(name, &verify).map(Arc::new).map_err(unusable)
}

/// What makes this endpoint another one when it changes: everything that is said of it, and the pool it serves in.
/// `life` tells one of the same name and address from its predecessor.
pub(super) fn identity(pool: &PoolHandle, spec: &EndpointSpec, life: &str, place: Place) -> u64 {
    let mut hasher = DefaultHasher::new();
    (&pool.name, life).hash(&mut hasher);
    format!("{:?}", (&spec.name, &spec.tls, &spec.api_key, place.protocol, place.engine)).hash(&mut hasher);
    (&spec.address, spec.port.unwrap_or(place.port)).hash(&mut hasher);
    hasher.finish()
}

/// The endpoints that are there, each with a handle: its former one if it had one.
pub(super) fn members(
    found: &[Found],
    owners: &HashMap<u64, Owner>,
    former: &HashMap<EndpointId, Arc<EndpointHandle>>,
    keys: &Keys,
    world: &World,
) -> HashMap<EndpointId, Member> {
    let member = |found: &Found| {
        let owner = owners.get(&found.want.identity)?;
        let endpoint = found.endpoint.clone();
        let handle = former.get(&endpoint.id).cloned().unwrap_or_else(|| handle(found, owner, keys, world));
        Some((endpoint.id, Member { pool: Arc::clone(&owner.pool), endpoint, handle, looks: owner.looks }))
    };
    found.iter().filter_map(member).collect()
}

fn handle(found: &Found, owner: &Owner, keys: &Keys, world: &World) -> Arc<EndpointHandle> {
    let endpoint = &found.endpoint;
    let authority = match &found.want.host {
        Host::Name(name) => format!("{name}:{}", found.want.port),
        Host::Ip(_) => endpoint.address.to_string(),
    };
    Arc::new(EndpointHandle {
        name: Arc::clone(&endpoint.name),
        destination: Arc::new(Destination {
            id: endpoint.id.get(),
            address: endpoint.address,
            protocol: owner.protocol,
            tls: owner.tls.clone(),
            authority: HeaderValue::from_str(&authority).expect("a host and a port are a header value"),
        }),
        authorization: keys.authorization(owner.key.as_ref()),
        picks: world.metrics.counter(&PICKS, &[&owner.pool.name, &endpoint.name]),
    })
}
