//! Everything that one InferenceGatewayConfig asks for.

use std::net::IpAddr;

use api::{
    cluster::{GatewayInfrastructure, ObjectKey},
    document::{GatewayTls, InferenceGatewayConfigSpec},
    names,
};
use serde_json::{Value, json};

use super::{
    Door, Marks, Owner, Plane, PodShape, Settings, access,
    ingress::{self, Front},
    object, picker,
    routes::{self, Chosen, Setting},
};
use crate::kind::{Id, Kind};

/// A config that is to be in force.
#[derive(Clone, Debug)]
pub struct Asked<'a> {
    pub settings: &'a Settings,
    pub key: &'a ObjectKey,
    pub uid: &'a str,
    pub spec: &'a InferenceGatewayConfigSpec,
    /// Pods of its data plane, each with whether it is ready.
    pub pods: &'a [(IpAddr, bool)],
    /// Whether an autoscaler sets the replicas of its data plane.
    pub autoscaled: bool,
    /// The certificate in ACM that was imported for it.
    pub imported: Option<&'a str>,
}

/// How TLS reaches a config's gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tls {
    /// Not at all.
    None,
    /// At the load balancer, with this certificate.
    AtLoadBalancer(String),
    /// At the gateway, with a Secret beside the config.
    Secret(String),
    /// At the gateway, with a certificate that is issued.
    Issued,
}

impl Tls {
    /// What `spec.tls` says.
    #[must_use]
    pub fn of(tls: Option<&GatewayTls>) -> Self {
        match tls {
            None => Self::None,
            Some(GatewayTls { secret_ref: Some(secret), .. }) => Self::Secret(secret.name.clone()),
            Some(GatewayTls { acm_arn, .. }) => match acm_arn.as_deref() {
                None | Some("") => Self::Issued,
                Some(arn) => Self::AtLoadBalancer(arn.to_owned()),
            },
        }
    }
}

impl Asked<'_> {
    /// The Gateway that it makes.
    #[must_use]
    pub fn gateway(&self) -> ObjectKey {
        ObjectKey::new(&self.settings.system_namespace, &self.key.name)
    }

    /// Labels of all that it makes.
    #[must_use]
    pub fn marks(&self) -> Marks {
        Marks::of_config(self.key, &self.gateway())
    }

    /// Name of its data plane's objects.
    #[must_use]
    pub fn plane_name(&self) -> String {
        let gateway = self.gateway();
        names::data_plane(&gateway.namespace, &gateway.name)
    }

    /// The Secret with the certificate that is issued for it, in the system namespace.
    #[must_use]
    pub fn issued_secret(&self) -> String {
        names::fitted(&format!("{}-tls", self.plane_name()))
    }

    /// Everything but the anchor, whose uid is `anchor`.
    #[must_use]
    pub fn objects(&self, anchor: &str) -> Vec<Value> {
        let plane = self.plane(anchor);
        let mut objects = plane.objects();
        objects.push(self.gateway_object(&plane));
        objects.extend(self.certificate(&plane.owner));
        objects.extend(self.ingress(&plane));
        objects.extend(self.beside(&plane));
        objects
    }

    fn plane(&self, anchor: &str) -> Plane {
        let name = self.plane_name();
        let spec = self.spec;
        let replicas = spec.schedulers.iter().map(|it| it.replicas).chain([spec.bbr.replicas]).max();
        let of_schedulers = |pick: fn(&api::document::SchedulerSpec) -> &Vec<Value>| {
            spec.schedulers.iter().flat_map(pick).cloned().collect()
        };
        Plane {
            settings: self.settings.clone(),
            gateway: self.gateway(),
            owner: anchor_owner(&name, anchor),
            name,
            marks: self.marks(),
            doors: vec![self.door()],
            replicas: replicas.filter(|_| !self.autoscaled),
            pods: PodShape {
                defaults: spec.pod_defaults.clone().unwrap_or_default(),
                env: of_schedulers(|it| &it.env),
                env_from: of_schedulers(|it| &it.env_from),
                metrics: spec.observability.metrics.enabled,
            },
            infrastructure: GatewayInfrastructure::default(),
        }
    }

    fn door(&self) -> Door {
        match Tls::of(self.spec.tls.as_ref()) {
            Tls::None | Tls::AtLoadBalancer(_) => Door { name: "http".into(), port: 80, scheme: "http" },
            Tls::Secret(_) | Tls::Issued => Door { name: "https".into(), port: 443, scheme: "https" },
        }
    }

    fn gateway_object(&self, plane: &Plane) -> Value {
        let gateway = self.gateway();
        let id = Id::new(Kind::Gateway, &gateway.namespace, &gateway.name);
        let door = self.door();
        let mut listener = json!({
            "name": door.name, "port": door.port, "protocol": door.scheme.to_uppercase(),
            "allowedRoutes": {
                "kinds": [{"group": "gateway.networking.k8s.io", "kind": "HTTPRoute"}],
                "namespaces": {"from": "Selector", "selector": {"matchLabels": {
                    "kubernetes.io/metadata.name": self.key.namespace,
                }}},
            },
        });
        let certificate = match Tls::of(self.spec.tls.as_ref()) {
            Tls::None | Tls::AtLoadBalancer(_) => None,
            Tls::Secret(name) => Some(json!({"name": name, "namespace": self.key.namespace})),
            Tls::Issued => Some(json!({"name": self.issued_secret()})),
        };
        if let Some(mut certificate) = certificate {
            certificate["group"] = json!("");
            certificate["kind"] = json!("Secret");
            listener["tls"] = json!({"mode": "Terminate", "certificateRefs": [certificate]});
        }
        let mut made = object(&id, &self.marks(), Some(&plane.owner));
        made["spec"] = json!({"gatewayClassName": names::GATEWAY_CLASS, "listeners": [listener]});
        made
    }

    /// An issuer that signs with the certificate itself, and the certificate: the load balancer does not check it.
    fn certificate(&self, owner: &Owner) -> Vec<Value> {
        if Tls::of(self.spec.tls.as_ref()) != Tls::Issued {
            return Vec::new();
        }
        let name = self.plane_name();
        let made = |kind| object(&Id::new(kind, &self.settings.system_namespace, &name), &self.marks(), Some(owner));
        let mut issuer = made(Kind::Issuer);
        issuer["spec"] = json!({"selfSigned": {}});
        let mut certificate = made(Kind::Certificate);
        certificate["spec"] = json!({
            "secretName": self.issued_secret(),
            "dnsNames": self.dns_names(),
            "privateKey": {"algorithm": "RSA", "size": 2048, "rotationPolicy": "Always"},
            "issuerRef": {"group": "cert-manager.io", "kind": "Issuer", "name": name},
        });
        vec![issuer, certificate]
    }

    /// Under which names clients in the cluster reach it.
    #[must_use]
    pub fn dns_names(&self) -> Vec<String> {
        let service = format!("{}.{}", self.plane_name(), self.settings.system_namespace);
        vec![format!("{service}.svc"), format!("{service}.svc.cluster.local")]
    }

    /// None without a certificate that a load balancer can have: it would serve in the clear what was to be encrypted.
    fn ingress(&self, plane: &Plane) -> Option<Value> {
        let tls = Tls::of(self.spec.tls.as_ref());
        let front = match &tls {
            Tls::None => Front::Plain,
            Tls::AtLoadBalancer(arn) => Front::Ends { arn },
            Tls::Issued => Front::Both { arn: self.imported? },
            Tls::Secret(_) => return None,
        };
        let namespace = &self.settings.system_namespace;
        Some(ingress::ingress(namespace, &self.key.name, &plane.name, &front, &self.marks(), &plane.owner))
    }

    /// What is made in the config's own namespace, owned by the config.
    fn beside(&self, plane: &Plane) -> Vec<Value> {
        let (marks, owner, gateway) = (self.marks(), self.owner(), self.gateway());
        let at = Setting {
            namespace: &self.key.namespace,
            gateway_namespace: &gateway.namespace,
            gateway: &gateway.name,
            marks: &marks,
            owner: &owner,
        };
        let chosen = if self.spec.bbr.enabled { Chosen::ByModel } else { Chosen::Always };
        let data_port = names::pod_port(self.door().port);
        let mut objects = self.access(plane, &owner);
        for scheduler in &self.spec.schedulers {
            objects.push(picker::service(&self.key.namespace, &scheduler.name, &marks, &owner));
            objects.push(picker::slice(&self.key.namespace, &scheduler.name, data_port, self.pods, &marks, &owner));
            objects.extend(routes::pool(at, scheduler));
            objects.push(routes::of_scheduler(at, scheduler, chosen));
        }
        if let Some(first) = self.spec.schedulers.first() {
            objects.push(routes::health(at, &self.key.name, &first.name));
        }
        objects
    }

    fn access(&self, plane: &Plane, owner: &Owner) -> Vec<Value> {
        let marks = self.marks();
        let place = access::Place {
            namespace: &self.key.namespace,
            name: &plane.name,
            account: &plane.name,
            account_namespace: &self.settings.system_namespace,
            marks: &marks,
            owner: Some(owner),
        };
        let mut rules = vec![access::config_maps()];
        rules.extend(access::secrets(&self.secrets_beside()));
        let mut objects: Vec<Value> = access::role(&place, &rules).into();
        match Tls::of(self.spec.tls.as_ref()) {
            Tls::None | Tls::AtLoadBalancer(_) => {}
            Tls::Secret(name) => objects.push(self.grant(&name, plane, owner)),
            Tls::Issued => {
                let name = format!("{}-certificate", plane.name);
                let at_home = access::Place {
                    namespace: &self.settings.system_namespace,
                    name: &name,
                    owner: Some(&plane.owner),
                    ..place
                };
                let rules: Vec<Value> = access::secrets(&[self.issued_secret()]).into_iter().collect();
                objects.extend(access::role(&at_home, &rules));
            }
        }
        objects
    }

    /// Lets Gateways of the system namespace name the one Secret, as the Gateway API demands.
    fn grant(&self, secret: &str, plane: &Plane, owner: &Owner) -> Value {
        let id = Id::new(Kind::ReferenceGrant, &self.key.namespace, &plane.name);
        let mut grant = object(&id, &self.marks(), Some(owner));
        grant["spec"] = json!({
            "from": [{
                "group": "gateway.networking.k8s.io", "kind": "Gateway", "namespace": self.settings.system_namespace,
            }],
            "to": [{"group": "", "kind": "Secret", "name": secret}],
        });
        grant
    }

    /// Secrets in the config's namespace that the data plane reads itself.
    fn secrets_beside(&self) -> Vec<String> {
        let keys = self.spec.auth.as_ref().and_then(|auth| auth.api_keys.as_ref());
        let mut secrets: Vec<String> = keys.map(|keys| keys.secret_ref.name.clone()).into_iter().collect();
        match Tls::of(self.spec.tls.as_ref()) {
            Tls::Secret(name) => secrets.push(name),
            Tls::None | Tls::AtLoadBalancer(_) | Tls::Issued => {}
        }
        secrets.sort();
        secrets.dedup();
        secrets
    }

    fn owner(&self) -> Owner {
        Owner {
            api_version: format!("{}/{}", names::GROUP, names::CONFIG_VERSION),
            kind: "InferenceGatewayConfig".into(),
            name: self.key.name.clone(),
            uid: self.uid.to_owned(),
        }
    }
}

/// An anchor as the owner of what hangs on it.
#[must_use]
pub fn anchor_owner(name: &str, uid: &str) -> Owner {
    Owner { api_version: "v1".into(), kind: "ConfigMap".into(), name: name.to_owned(), uid: uid.to_owned() }
}
