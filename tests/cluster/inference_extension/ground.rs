//! What tests of pools with pickers of their own stand on: two Gateways, two Deployments of echo servers, and what each
//! test puts between them. Made once, for all of them.

use std::{
    net::{IpAddr, SocketAddr},
    sync::{
        OnceLock,
        atomic::{AtomicU8, AtomicUsize, Ordering},
    },
};

use harness::{Answer, Cluster, Connection, Picker, PickerAsked, Space};
use serde_json::{Value, json};

/// In requests: where they are to go, as `ip` or `ip:port`, separated by commas.
pub(crate) const PICK: &str = "x-pick";
/// Pickers run in the test; no pod of the rig gets an address that begins like this.
const PICKERS: [u8; 3] = [10, 250, 251];
/// Where a picker listens.
const PICKER_PORT: u16 = 9002;

static NEXT: AtomicU8 = AtomicU8::new(1);

pub(crate) struct Ground {
    pub(crate) space: Space,
    /// Three echo servers each, at ports 3000 and 3001 (HTTP/2).
    pub(crate) first: Vec<Server>,
    pub(crate) second: Vec<Server>,
    /// Two with three containers each, at 3000, 3002 and 3004.
    pub(crate) ranks: Vec<Server>,
    /// A Gateway without a host, and one for `second.example.com`.
    pub(crate) any: SocketAddr,
    pub(crate) second_host: SocketAddr,
}

#[derive(Clone, Debug)]
pub(crate) struct Server {
    pub(crate) name: String,
    pub(crate) ip: IpAddr,
}

pub(crate) fn ground() -> &'static Ground {
    static GROUND: OnceLock<Ground> = OnceLock::new();
    GROUND.get_or_init(Ground::make)
}

fn servers(app: &str, replicas: u32, http_ports: &[u16]) -> Value {
    let container = |port: &u16| {
        json!({
            "name": format!("echo-{port}"), "image": "echo-basic",
            "env": [
                {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                {"name": "HTTP_PORT", "value": port.to_string()}, {"name": "H2C_PORT", "value": (port + 1).to_string()},
            ],
            "ports": [{"containerPort": port}],
            "readinessProbe": {"httpGet": {"path": "/health", "port": port}, "periodSeconds": 1},
        })
    };
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": app},
        "spec": {
            "replicas": replicas, "selector": {"matchLabels": {"app": app}},
            "template": {
                "metadata": {"labels": {"app": app}},
                "spec": {"containers": http_ports.iter().map(container).collect::<Vec<_>>()},
            },
        },
    })
}

impl Ground {
    fn make() -> Self {
        let space = Cluster::shared().namespace("extension");
        let listener = json!({"name": "http", "port": 80, "protocol": "HTTP"});
        let mut hosted = listener.clone();
        hosted["hostname"] = json!("second.example.com");
        for (name, listener) in [("any", listener), ("second", hosted)] {
            let gateway = json!({
                "apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway", "metadata": {"name": name},
                "spec": {"gatewayClassName": "inference-gateway", "listeners": [listener]},
            });
            space.apply(&gateway.to_string());
        }
        for (app, replicas, ports) in
            [("first", 3, &[3000][..]), ("second", 3, &[3000]), ("ranks", 2, &[3000, 3002, 3004])]
        {
            space.apply(&servers(app, replicas, ports).to_string());
        }
        let pods = |app: &str| -> Vec<Server> {
            space.wait_for(&format!("deploy/{app}"), "Available");
            space.until(&format!("deploy/{app}"), |it| it["status"]["readyReplicas"] == it["spec"]["replicas"]);
            let server = |pod: &Value| Server {
                name: pod["metadata"]["name"].as_str().unwrap().to_owned(),
                ip: pod["status"]["podIP"].as_str().unwrap().parse().unwrap(),
            };
            space.list("pods", &format!("app={app}")).iter().map(server).collect()
        };
        let (first, second, ranks) = (pods("first"), pods("second"), pods("ranks"));
        let address = |name: &str| {
            let gateway = space.until(&format!("gateway/{name}"), |it| crate::product::is(it, "Programmed", "True"));
            SocketAddr::new(gateway["status"]["addresses"][0]["value"].as_str().unwrap().parse().unwrap(), 80)
        };
        let (any, second_host) = (address("any"), address("second"));
        Self { first, second, ranks, any, second_host, space }
    }

    /// A Service that nothing is behind until [`Ground::lead`].
    pub(crate) fn picker_service(&self, name: &str) {
        let service = json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
            "spec": {"ports": [{"name": "grpc", "port": PICKER_PORT}]},
        });
        self.space.apply(&service.to_string());
    }

    /// Lets a picker's Service lead to this address, or to none.
    pub(crate) fn lead(&self, name: &str, to: Option<IpAddr>) {
        let endpoints: Vec<Value> =
            to.iter().map(|ip| json!({"addresses": [ip], "conditions": {"ready": true}})).collect();
        let slice = json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": {"name": format!("{name}-1"), "labels": {"kubernetes.io/service-name": name}},
            "addressType": "IPv4", "endpoints": endpoints, "ports": [{"name": "grpc", "port": PICKER_PORT}],
        });
        self.space.apply(&slice.to_string());
    }

    /// A picker for these servers, behind a Service of this name.
    pub(crate) fn picker(&self, name: &str, servers: &[Server], ports: &[u16]) -> Picker {
        let [a, b, c] = PICKERS;
        let ip = IpAddr::from([a, b, c, NEXT.fetch_add(1, Ordering::Relaxed)]);
        self.picker_service(name);
        self.lead(name, Some(ip));
        picker_at((ip, PICKER_PORT).into(), servers, ports)
    }

    /// A pool of the pods of `app`.
    pub(crate) fn pool(&self, name: &str, app: &str, ports: &[u16], picker: Value, rest: Value) {
        let ports: Vec<Value> = ports.iter().map(|port| json!({"number": port})).collect();
        let mut spec = json!({"selector": {"matchLabels": {"app": app}}, "targetPorts": ports});
        if !picker.is_null() {
            spec["endpointPickerRef"] = picker;
        }
        for (key, value) in rest.as_object().into_iter().flatten() {
            spec[key] = value.clone();
        }
        let pool = json!({
            "apiVersion": "inference.networking.k8s.io/v1", "kind": "InferencePool",
            "metadata": {"name": name}, "spec": spec,
        });
        self.space.apply(&pool.to_string());
    }

    /// A route on a Gateway for what begins with `/NAME`; each backend is a member of `backendRefs`.
    pub(crate) fn route(&self, name: &str, gateway: &str, backends: &Value) {
        let rule = json!({
            "matches": [{"path": {"type": "PathPrefix", "value": format!("/{name}")}}], "backendRefs": backends,
        });
        self.rules(name, gateway, &json!([rule]));
    }

    /// A route with these rules.
    pub(crate) fn rules(&self, name: &str, gateway: &str, rules: &Value) {
        let route = json!({
            "apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute", "metadata": {"name": name},
            "spec": {"parentRefs": [{"name": gateway}], "rules": rules},
        });
        self.space.apply(&route.to_string());
    }

    pub(crate) fn names(servers: &[Server]) -> Vec<&str> {
        let mut names: Vec<&str> = servers.iter().map(|server| server.name.as_str()).collect();
        names.sort_unstable();
        names
    }
}

/// A reference to a picker's Service.
pub(crate) fn by(service: &str, failure_mode: &str) -> Value {
    json!({"name": service, "port": {"number": PICKER_PORT}, "failureMode": failure_mode})
}

/// A reference to a pool, as a backend.
pub(crate) fn to(pool: &str) -> Value {
    json!({"group": "inference.networking.k8s.io", "kind": "InferencePool", "name": pool})
}

/// Listens at an address, and picks of its servers what a request asks for, or any where it asks for nothing.
pub(crate) fn picker_at(at: SocketAddr, servers: &[Server], ports: &[u16]) -> Picker {
    let own: Vec<SocketAddr> =
        servers.iter().flat_map(|server| ports.iter().map(|port| SocketAddr::new(server.ip, *port))).collect();
    let turn = AtomicUsize::new(0);
    Picker::start_at(at, move |asked: &PickerAsked| {
        let turn = turn.fetch_add(1, Ordering::Relaxed);
        let wanted = |at: &SocketAddr| match asked.header(PICK) {
            None => true,
            Some(list) => {
                list.split(',').map(str::trim).any(|item| item == at.to_string() || item == at.ip().to_string())
            }
        };
        let mut picked: Vec<SocketAddr> = own.iter().copied().filter(wanted).collect();
        let count = picked.len();
        if count > 0 {
            picked.rotate_left(turn % count);
        }
        picked
    })
}

/// One request.
pub(crate) fn ask(to: SocketAddr, host: &str, path: &str, pick: Option<&str>, body: Option<&str>) -> Answer {
    let method = if body.is_some() { "POST" } else { "GET" };
    let body = body.unwrap_or_default();
    let mut head = format!("{method} {path} HTTP/1.1\r\nhost: {host}\r\n");
    if let Some(pick) = pick {
        head.push_str(&format!("{PICK}: {pick}\r\n"));
    }
    if method == "POST" {
        head.push_str(&format!("content-length: {}\r\n", body.len()));
    }
    let mut connection = Connection::open(to);
    connection.send(format!("{head}\r\n{body}")).unwrap();
    connection.answer_to(method).unwrap()
}

/// The pod that answered.
pub(crate) fn pod(answer: &Answer) -> String {
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()["pod"].as_str().unwrap().to_owned()
}
