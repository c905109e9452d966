//! Where a rule sends requests: a port of a Service, or a pool; and why a reference leads to neither.

use api::cluster::{BackendRef, InferencePool, ObjectKey, Objects, Service};

use super::{Compiled, Fault};
use crate::{
    attach::reference::{POOL_GROUP, Referent, Referrer, is_permitted},
    rule::{AppProtocol, Target},
};

/// Resolves the references of one route and keeps what it finds.
pub(super) struct Resolver<'o> {
    pub objects: &'o Objects,
    /// Of the route.
    pub namespace: &'o str,
    pub out: &'o mut Compiled,
}

impl Resolver<'_> {
    /// Where a reference leads. What is wrong with it is noted for the route's status.
    pub(super) fn target(&mut self, named: &BackendRef) -> Target {
        match self.find(named) {
            Ok(target) => target,
            Err(fault) => {
                let target = Target::Invalid(fault.message.clone());
                self.out.unresolved.push(fault);
                target
            }
        }
    }

    fn find(&mut self, named: &BackendRef) -> Result<Target, Fault> {
        let (group, kind) = (named.group.as_deref().unwrap_or(""), named.kind.as_deref().unwrap_or("Service"));
        let key = ObjectKey::new(named.namespace.as_deref().unwrap_or(self.namespace), &named.name);
        match (group, kind) {
            ("", "Service") => {
                self.permit(Referent { group: "", kind: "Service", key: &key })?;
                service(self.objects, key.clone(), named.port)
            }
            (POOL_GROUP, "InferencePool") => {
                self.permit(Referent { group: POOL_GROUP, kind: "InferencePool", key: &key })?;
                self.pool(&key)
            }
            _ => {
                let message = format!(
                    "`{}` is a {kind} of group `{group}`: only Services, and InferencePools of group `{POOL_GROUP}`",
                    named.name
                );
                Err(Fault { reason: "InvalidKind", message })
            }
        }
    }

    fn permit(&self, to: Referent<'_>) -> Result<(), Fault> {
        let from = Referrer { kind: "HTTPRoute", namespace: self.namespace };
        if is_permitted(self.objects, from, to) {
            return Ok(());
        }
        let message = format!(
            "no ReferenceGrant in namespace `{}` lets HTTPRoutes of `{}` use {} `{}`",
            to.key.namespace, self.namespace, to.kind, to.key
        );
        Err(Fault { reason: "RefNotPermitted", message })
    }

    fn pool(&mut self, key: &ObjectKey) -> Result<Target, Fault> {
        let pool =
            self.objects.pools.get(key).ok_or_else(|| not_found(format!("InferencePool `{key}` does not exist")))?;
        self.out.pools.push(key.clone());
        // The pool's own status tells of its picker; the route refers to a pool that exists.
        Ok(match picker_fault(self.objects, pool) {
            Some(fault) if !fails_open(pool) => Target::Invalid(format!("InferencePool `{key}`: {fault}")),
            Some(_) | None => Target::Pool(key.clone()),
        })
    }
}

/// What is wrong with the picker that a pool names, if anything. A pool that names none is picked in by us.
pub(crate) fn picker_fault(objects: &Objects, pool: &InferencePool) -> Option<String> {
    let picker = pool.spec.endpoint_picker_ref.as_ref()?;
    let kind = picker.kind.as_deref().unwrap_or("Service");
    if !picker.group.is_empty() || kind != "Service" {
        return Some(format!(
            "endpoint picker `{}` is a {kind} of group `{}`: only Services",
            picker.name, picker.group
        ));
    }
    let Some(service) = objects.services.get(&ObjectKey::new(&pool.metadata.namespace, &picker.name)) else {
        return Some(format!("endpoint picker Service `{}` does not exist", picker.name));
    };
    if is_external(service) {
        return Some(format!("endpoint picker Service `{}` is of type ExternalName", picker.name));
    }
    let port = picker.port?.number;
    let has_port = service.spec.ports.iter().any(|it| it.port == port);
    (!has_port).then(|| format!("endpoint picker Service `{}` has no port {port}", picker.name))
}

fn fails_open(pool: &InferencePool) -> bool {
    pool.spec.endpoint_picker_ref.as_ref().and_then(|it| it.failure_mode.as_deref()) == Some("FailOpen")
}

/// Its name is looked up by whoever connects, and may be anything, also inside the cluster: a way around every grant.
fn is_external(service: &Service) -> bool {
    service.spec.kind == "ExternalName"
}

fn not_found(message: String) -> Fault {
    Fault { reason: "BackendNotFound", message }
}

fn service(objects: &Objects, key: ObjectKey, port: Option<u16>) -> Result<Target, Fault> {
    let service = objects.services.get(&key).ok_or_else(|| not_found(format!("Service `{key}` does not exist")))?;
    if is_external(service) {
        let message = format!("Service `{key}` is of type ExternalName, which is not followed");
        return Err(Fault { reason: "InvalidKind", message });
    }
    let port = port.ok_or_else(|| not_found(format!("the reference to Service `{key}` names no port")))?;
    let is_meant = |it: &&api::cluster::ServicePort| it.port == port && matches!(it.protocol.as_str(), "" | "TCP");
    let found = service.spec.ports.iter().find(is_meant);
    let found = found.ok_or_else(|| not_found(format!("Service `{key}` has no TCP port {port}")))?;
    let protocol = protocol(found.app_protocol.as_deref()).map_err(|name| Fault {
        reason: "UnsupportedProtocol",
        message: format!("port {port} of Service `{key}` speaks `{name}`: HTTP/1.1 and h2c are spoken"),
    })?;
    Ok(Target::Service { key, port, protocol })
}

/// What `appProtocol` means; the name itself where we do not speak it.
fn protocol(name: Option<&str>) -> Result<AppProtocol, &str> {
    match name {
        None | Some("" | "http" | "HTTP" | "http1" | "tcp" | "TCP") => Ok(AppProtocol::Http1),
        Some("kubernetes.io/h2c" | "h2c" | "http2" | "HTTP2" | "grpc") => Ok(AppProtocol::H2c),
        Some(other) => Err(other),
    }
}
