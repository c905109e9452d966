//! Routes written by hand, as requests meet them: a real data plane that follows the API server, in front of real servers.
//!
//! The data plane is started by the test itself, so that what is seen here is its doing and nobody else's.

use std::{
    collections::BTreeMap,
    net::{SocketAddr, TcpStream},
};

use harness::{Answer, Cluster, Connection, Space, chat_body, request, soon};
use serde_json::Value;

const SYSTEM: &str = "hyperpod-inference-system";

/// Two Services of one echo server each, and one without any.
const SERVERS: &str = r"
apiVersion: v1
kind: Service
metadata: {name: one}
spec: {selector: {app: one}, ports: [{name: http, port: 80, targetPort: 3000}, {name: h2c, port: 81, targetPort: 3001, appProtocol: kubernetes.io/h2c}]}
---
apiVersion: v1
kind: Service
metadata: {name: two}
spec: {selector: {app: two}, ports: [{name: http, port: 80, targetPort: 3000}]}
---
apiVersion: v1
kind: Service
metadata: {name: empty}
spec: {selector: {app: empty}, ports: [{name: http, port: 80, targetPort: 3000}]}
---
apiVersion: v1
kind: Pod
metadata: {name: one, labels: {app: one}}
spec: {containers: [{name: echo, image: echo-basic, ports: [{name: http, containerPort: 3000}], env: [{name: POD_NAME, value: one}],
  readinessProbe: {httpGet: {path: /health, port: http}, periodSeconds: 1}}]}
---
apiVersion: v1
kind: Pod
metadata: {name: two, labels: {app: two}}
spec: {containers: [{name: echo, image: echo-basic, ports: [{name: http, containerPort: 3000}], env: [{name: POD_NAME, value: two}],
  readinessProbe: {httpGet: {path: /health, port: http}, periodSeconds: 1}}]}
";

/// A Gateway and the process that carries its requests, in the namespace of a test.
struct DataPlane {
    space: Space,
    pod: String,
}

impl DataPlane {
    /// With these listeners, written as a YAML list.
    fn start(name: &str, listeners: &str) -> Self {
        let space = Cluster::shared().namespace(name);
        let this = Self { pod: format!("data-plane-{}", space.name), space };
        this.space.apply(SERVERS);
        this.listen(listeners);
        Cluster::shared().apply(&format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: {pod}, namespace: {SYSTEM}}}, spec: {{containers: [{{\
             name: gateway, image: inference-gateway, ports: [{{name: admin, containerPort: 9090}}], \
             args: [--kubernetes, --gateway, {ns}/gw, --admin, '0.0.0.0:9090'], \
             readinessProbe: {{httpGet: {{path: /readyz, port: admin}}, periodSeconds: 1}}}}]}}}}",
            pod = this.pod,
            ns = this.space.name,
        ));
        for (namespace, pod) in [(SYSTEM, &*this.pod), (&*this.space.name, "one"), (&*this.space.name, "two")] {
            let ready = ["wait", "--for=condition=Ready", "--timeout=60s", "--namespace", namespace, "pod", pod];
            Cluster::shared().kubectl(&ready);
        }
        this
    }

    fn listen(&self, listeners: &str) {
        self.space.apply(&format!(
            "apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {{name: gw}}\n\
             spec: {{gatewayClassName: inference-gateway, listeners: {listeners}}}"
        ));
    }

    /// A route on the Gateway: its name, its rules, and what else its spec says.
    fn route(&self, name: &str, rules: &str, rest: &str) {
        self.space.apply(&format!(
            "apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {{name: {name}}}\n\
             spec: {{parentRefs: [{{name: gw}}], rules: {rules}{rest}}}"
        ));
    }

    /// Where the listener of this port is reached.
    fn at(&self, port: u16) -> SocketAddr {
        let ip = Cluster::shared().kubectl(&["get", "pod", &self.pod, "-n", SYSTEM, "-o", "jsonpath={.status.podIP}"]);
        SocketAddr::new(ip.parse().unwrap(), if port < 1024 { port + 10_000 } else { port })
    }

    /// What answers on a host, once a listener does.
    fn ask(&self, port: u16, host: &str, target: &str, headers: &[(&str, &str)]) -> Answer {
        let mut head = format!("GET {target} HTTP/1.1\r\nhost: {host}\r\n");
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        let mut connection = Connection::open(self.at(port));
        connection.send(head + "\r\n").unwrap();
        connection.answer_to("GET").unwrap()
    }

    /// Waits until a request is answered with this status.
    fn until(&self, what: &str, port: u16, host: &str, target: &str, status: u16) {
        let at = self.at(port);
        soon(what, || TcpStream::connect(at).is_ok() && self.ask(port, host, target, &[]).status == status);
    }
}

impl Drop for DataPlane {
    fn drop(&mut self) {
        let words = ["delete", "pod", &self.pod, "-n", SYSTEM, "--wait=false"];
        let _ = Cluster::shared().try_kubectl(&words, "");
    }
}

fn pod(answer: &Answer) -> String {
    answer.json()["pod"].as_str().unwrap_or_default().to_owned()
}

fn headers<'a>(seen: &'a Value, name: &str) -> Vec<&'a str> {
    let all = seen["headers"].as_object().unwrap().iter();
    let named = all.filter(|(key, _)| key.eq_ignore_ascii_case(name));
    named.flat_map(|(_, values)| values.as_array().unwrap()).filter_map(Value::as_str).collect()
}

#[test]
fn requests_go_where_matches_hosts_and_listeners_say() {
    let listeners =
        "[{name: a, port: 80, protocol: HTTP}, {name: b, port: 8080, protocol: HTTP, hostname: '*.b.example'}]";
    let plane = DataPlane::start("routes", listeners);
    plane.route(
        "any",
        "[{matches: [{path: {type: PathPrefix, value: /two}}, {headers: [{name: X-To, value: two}]}, \
                     {queryParams: [{name: to, value: two}]}], backendRefs: [{name: two, port: 80}]}, \
          {matches: [{path: {type: Exact, value: /two/exact}}], backendRefs: [{name: one, port: 80}]}, \
          {matches: [{path: {type: PathPrefix, value: /h2c}}], backendRefs: [{name: one, port: 81}]}, \
          {matches: [{path: {type: PathPrefix, value: /one}}], backendRefs: [{name: one, port: 80}]}, \
          {matches: [{path: {type: Exact, value: /empty}}], backendRefs: [{name: empty, port: 80}]}, \
          {matches: [{path: {type: Exact, value: /missing}}], backendRefs: [{name: nobody, port: 80}]}]",
        "",
    );
    plane.route("host", "[{backendRefs: [{name: two, port: 80}]}]", ", hostnames: [c.b.example]");
    plane.until("the routes are in force", 80, "x", "/one", 200);
    plane.until("and the other listener", 8080, "c.b.example", "/", 200);

    for (target, extra, expected) in [
        ("/one", &[][..], "one"),
        ("/one/more?x=1", &[], "one"),
        ("/two", &[], "two"),
        ("/two/exact", &[], "one"),
        ("/two/exact/no", &[], "two"),
        ("/one?to=two", &[], "one"),
        ("/?to=two", &[], "two"),
        ("/", &[("x-to", "two")], "two"),
    ] {
        let answer = plane.ask(80, "x", target, extra);
        assert_eq!((answer.status, pod(&answer)), (200, expected.to_owned()), "{target}");
    }
    let h2c = plane.ask(80, "a.example", "/h2c?q=%2f", &[]).json();
    assert_eq!(
        (&h2c["proto"], &h2c["path"], &h2c["host"]),
        (&"HTTP/2.0".into(), &"/h2c?q=%2f".into(), &"a.example".into())
    );
    for (port, host, target, status, code) in [
        (80, "x", "/empty", 503, "no_endpoint"),
        (80, "x", "/missing", 500, "route_invalid"),
        (80, "x", "/onemore", 404, "path_not_found"),
        (8080, "b.example", "/one", 404, "path_not_found"),
    ] {
        let answer = plane.ask(port, host, target, &[]);
        assert_eq!((answer.status, answer.code()), (status, code.to_owned()), "{host}{target}");
    }
    assert_eq!(pod(&plane.ask(8080, "d.b.example", "/one", &[])), "one", "a route without hosts takes the listener's");

    // A listener comes, and one goes.
    let served = plane.at(8080);
    plane.listen("[{name: a, port: 80, protocol: HTTP}, {name: c, port: 8081, protocol: HTTP}]");
    plane.until("the new listener is open", 8081, "x", "/one", 200);
    soon("the former one is closed", || TcpStream::connect(served).is_err());
    assert_eq!(plane.ask(80, "x", "/one", &[]).status, 200);
}

#[test]
fn filters_weights_and_times_of_a_rule_hold() {
    let plane = DataPlane::start("filters", "[{name: a, port: 80, protocol: HTTP}]");
    plane.route(
        "route",
        "[{matches: [{path: {type: PathPrefix, value: /edit}}], \
           filters: [{type: RequestHeaderModifier, requestHeaderModifier: {set: [{name: X-Set, value: s}], add: [{name: X-Add, value: a}], remove: [X-Gone]}}, \
                     {type: ResponseHeaderModifier, responseHeaderModifier: {set: [{name: X-Answer, value: a}], remove: [x-content-type-options]}}, \
                     {type: URLRewrite, urlRewrite: {hostname: other.example, path: {type: ReplacePrefixMatch, replacePrefixMatch: /}}}], \
           backendRefs: [{name: one, port: 80}]}, \
          {matches: [{path: {type: PathPrefix, value: /away}}], \
           filters: [{type: RequestRedirect, requestRedirect: {hostname: away.example, statusCode: 301}}]}, \
          {matches: [{path: {type: PathPrefix, value: /split}}], \
           backendRefs: [{name: one, port: 80, weight: 9}, {name: two, port: 80, weight: 1}, {name: nobody, port: 80, weight: 0}]}, \
          {matches: [{path: {type: PathPrefix, value: /slow}}], timeouts: {request: 200ms}, backendRefs: [{name: one, port: 80}]}]",
        "",
    );
    plane.until("the route is in force", 80, "x", "/edit", 200);
    let answer = plane.ask(80, "x", "/edit/a?b=c", &[("x-set", "0"), ("x-gone", "0")]);
    let seen = answer.json();
    assert_eq!((&seen["path"], &seen["host"]), (&"/a?b=c".into(), &"other.example".into()));
    assert_eq!((headers(&seen, "x-set"), headers(&seen, "x-add")), (vec!["s"], vec!["a"]));
    assert!(headers(&seen, "x-gone").is_empty() && headers(&seen, "x-request-id").len() == 1);
    assert_eq!((answer.header("x-answer"), answer.header("x-content-type-options")), (Some("a"), None));

    let away = plane.ask(80, "x", "/away/a?b=c", &[]);
    assert_eq!((away.status, away.header("location")), (301, Some("http://away.example/away/a?b=c")));

    // 500 requests at nine to one: 50 of the lesser share, and five standard deviations are 33.
    let mut shares = BTreeMap::new();
    for _ in 0..500 {
        *shares.entry(pod(&plane.ask(80, "x", "/split", &[]))).or_insert(0_u32) += 1;
    }
    assert!(shares.len() == 2 && shares["two"].abs_diff(50) <= 33, "{shares:?}");

    let slow = plane.ask(80, "x", "/slow?delay=5s", &[]);
    assert_eq!((slow.status, slow.code()), (504, "endpoint_timeout".to_owned()));
}

#[test]
fn a_backend_of_another_namespace_needs_its_permission() {
    let plane = DataPlane::start("grant", "[{name: a, port: 80, protocol: HTTP}]");
    let other = Cluster::shared().namespace("granted");
    other.apply(SERVERS);
    other.wait_for("pod/one", "Ready");
    let rules = format!("[{{backendRefs: [{{name: one, namespace: {}, port: 80}}]}}]", other.name);
    plane.route("route", &rules, "");
    plane.until("without permission it leads nowhere", 80, "x", "/", 500);
    other.apply(&format!(
        "{{apiVersion: gateway.networking.k8s.io/v1beta1, kind: ReferenceGrant, metadata: {{name: grant}}, spec: {{\
         from: [{{group: gateway.networking.k8s.io, kind: HTTPRoute, namespace: {}}}], to: [{{group: '', kind: Service}}]}}}}",
        plane.space.name
    ));
    plane.until("with it, there", 80, "x", "/", 200);
    other.kubectl(&["delete", "referencegrant", "grant"]);
    plane.until("and no longer without", 80, "x", "/", 500);
}

#[test]
fn a_pool_behind_a_route_is_picked_from_as_its_pods_come_and_go() {
    let plane = DataPlane::start("pool", "[{name: a, port: 80, protocol: HTTP}]");
    let model = |name: &str| {
        format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}, labels: {{app: m}}}}, spec: {{terminationGracePeriodSeconds: 1, \
             containers: [{{name: m, image: model-sim, args: [--model, llama], ports: [{{name: http, containerPort: 8000}}], \
             readinessProbe: {{httpGet: {{path: /health, port: http}}, periodSeconds: 1}}}}]}}}}"
        )
    };
    plane.space.apply(&model("m-0"));
    plane.space.apply(
        "{apiVersion: inference.networking.k8s.io/v1, kind: InferencePool, metadata: {name: pool}, spec: {\
         selector: {matchLabels: {app: m}}, targetPorts: [{number: 8000}], endpointPickerRef: {name: ours, port: {number: 9002}}}}",
    );
    plane.space.apply(
        "{apiVersion: v1, kind: Service, metadata: {name: ours, labels: {app.kubernetes.io/managed-by: inference-gateway-controller}}, \
         spec: {ports: [{name: grpc, port: 9002}]}}",
    );
    plane.route(
        "route",
        "[{backendRefs: [{group: inference.networking.k8s.io, kind: InferencePool, name: pool}]}]",
        "",
    );
    plane.until("the pool answers", 80, "x", "/v1/models", 200);
    let at = plane.at(80);
    let chat = || {
        request(
            at,
            "POST",
            "/v1/chat/completions",
            &[("content-type", "application/json")],
            chat_body("llama", "hello"),
        )
    };
    let answer = chat();
    assert_eq!((answer.status, answer.complete), (200, true), "{}", answer.text());

    plane.space.apply(&model("m-1"));
    plane.space.wait_for("pod/m-1", "Ready");
    plane.space.kubectl(&["delete", "pod", "m-0", "--wait=true"]);
    soon("the other pod serves", || chat().status == 200);
    plane.space.kubectl(&["delete", "pod", "m-1", "--wait=true"]);
    soon("without pods there is none to ask", || {
        let answer = chat();
        (answer.status, answer.code()) == (503, "no_endpoint".to_owned())
    });
}
