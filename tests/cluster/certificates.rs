//! HTTPS of a config: a certificate that cert-manager would issue, brought to AWS Certificate Manager, renewed, and freed.
//!
//! Neither is here: their kinds are, the test issues, and a small server says what ACM would.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use harness::{Cluster, Exchange, Next, Peer, Space, soon};
use rcgen::{CertificateParams, KeyPair};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};
use tokio_rustls::{
    TlsConnector,
    rustls::{
        ClientConfig, RootCertStore,
        pki_types::{CertificateDer, ServerName, pem::PemObject as _},
    },
};

use crate::{
    own_controller::NoController,
    product::{SYSTEM, alone, config, gateway, made, model, nothing_left},
};

/// Two kinds of cert-manager, as small as they can be.
fn install(cluster: Cluster) {
    for (kind, plural) in [("Certificate", "certificates"), ("Issuer", "issuers")] {
        let definition = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{plural}.cert-manager.io")},
            "spec": {
                "group": "cert-manager.io", "scope": "Namespaced",
                "names": {"kind": kind, "plural": plural, "singular": kind.to_lowercase()},
                "versions": [{
                    "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                    "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
                }],
            },
        });
        cluster.apply(&definition.to_string());
        let what = format!("crd/{plural}.cert-manager.io");
        cluster.kubectl(&["wait", "--for=condition=Established", "--timeout=60s", &what]);
    }
}

/// What cert-manager does of a Certificate; the certificate.
fn issue(cluster: Cluster, certificate: &Value, not_before: &str) -> String {
    let names: Vec<String> = serde_json::from_value(certificate["spec"]["dnsNames"].clone()).unwrap();
    let key = KeyPair::generate().unwrap();
    let pem = CertificateParams::new(names).unwrap().self_signed(&key).unwrap().pem();
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
        "metadata": {"name": certificate["spec"]["secretName"], "namespace": SYSTEM},
        "stringData": {"tls.crt": pem, "tls.key": key.serialize_pem()},
    });
    cluster.apply(&secret.to_string());
    let status = json!({"status": {
        "notBefore": not_before,
        "conditions": [{"type": "Ready", "status": "True", "reason": "Ready", "message": "", "lastTransitionTime": not_before}],
    }});
    let name = certificate["metadata"]["name"].as_str().unwrap();
    let (words, patch) = (["--namespace", SYSTEM, "patch", "certificate.cert-manager.io", name], status.to_string());
    cluster.kubectl(&[&words[..], &["--subresource=status", "--type=merge", "--patch", &patch]].concat());
    pem
}

/// Certificates by ARN, and everything that was asked for.
#[derive(Default)]
struct Shelf {
    held: BTreeMap<String, String>,
    asked: Vec<String>,
}

fn acm(shelf: &Mutex<Shelf>, exchange: &mut Exchange) -> Next {
    let asked: Value = serde_json::from_slice(&exchange.request.body).unwrap();
    let target = exchange.request.header("x-amz-target").unwrap().trim_start_matches("CertificateManager.").to_owned();
    let mut shelf = shelf.lock().unwrap();
    shelf.asked.push(target.clone());
    let arn = asked["CertificateArn"].as_str().unwrap_or("arn:aws:acm:us-east-1:1:certificate/1").to_owned();
    let said = match target.as_str() {
        "ImportCertificate" => {
            let pem = BASE64_STANDARD.decode(asked["Certificate"].as_str().unwrap()).unwrap();
            shelf.held.insert(arn.clone(), String::from_utf8(pem).unwrap());
            json!({"CertificateArn": arn})
        }
        "DeleteCertificate" => {
            shelf.held.remove(&arn);
            json!({})
        }
        "ListCertificates" => json!({"CertificateSummaryList": []}),
        other => panic!("{other} was not thought of"),
    };
    exchange.answer("200 OK", &[("content-type", "application/x-amz-json-1.1")], said.to_string())
}

/// The status of a chat over TLS, with nobody trusted but who has this certificate.
fn chat_over_tls(to: SocketAddr, name: &str, pem: &str) -> Option<u16> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()).unwrap();
        let config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        let tcp = TcpStream::connect(to).await.ok()?;
        let name = ServerName::try_from(name.to_owned()).unwrap();
        let mut tls = TlsConnector::from(Arc::new(config)).connect(name, tcp).await.ok()?;
        let body =
            json!({"model": "llama", "max_tokens": 2, "messages": [{"role": "user", "content": "hi"}]}).to_string();
        let head = format!(
            "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        tls.write_all(format!("{head}{body}").as_bytes()).await.ok()?;
        let mut answer = Vec::new();
        // Whether the end of TLS comes with the end of the answer does not matter here.
        let _ = tls.read_to_end(&mut answer).await;
        String::from_utf8_lossy(&answer).split(' ').nth(1)?.parse().ok()
    })
}

fn told(space: &Space) -> Value {
    space.get(&format!("igwc/{}", space.name))["status"]["tls"].clone()
}

#[test]
fn a_certificate_that_is_issued_goes_to_acm_is_renewed_there_and_freed_with_its_config() {
    let (_controller, cluster) = (alone(), Cluster::shared());
    install(cluster);
    let shelf = Arc::new(Mutex::new(Shelf::default()));
    let aws = Peer::start({
        let shelf = Arc::clone(&shelf);
        move |exchange| acm(&shelf, exchange)
    });
    let endpoint = format!("http://{}", aws.address);
    let away = NoController::for_a_while(cluster);
    let kubeconfig = std::env::var_os("KUBECONFIG").expect("set inside");
    let environment = [
        ("AWS_ENDPOINT_URL", endpoint.as_str()),
        ("AWS_REGION", "us-east-1"),
        ("AWS_ACCESS_KEY_ID", "test"),
        ("AWS_SECRET_ACCESS_KEY", "test"),
        ("AWS_EC2_METADATA_DISABLED", "true"),
    ];
    let _controller_of_ours = away.start(kubeconfig.as_ref(), &environment);
    let space = cluster.namespace("issued");
    space.apply(&model("llama", 1));
    let mut secured = config(&space.name, &["llama"]);
    secured["spec"]["tls"] = json!({});
    space.apply(&secured.to_string());

    let certificate =
        cluster.eventually("a Certificate", || made(cluster, "certificate.cert-manager.io", &space.name).pop());
    let issuer = &certificate["spec"]["issuerRef"];
    let issuers = made(cluster, "issuer.cert-manager.io", &space.name);
    assert_eq!((&issuers[0]["metadata"]["name"], issuers.len()), (&issuer["name"], 1));
    assert!(made(cluster, "ingress", &space.name).is_empty(), "a load balancer without its certificate would be open");
    let name = certificate["spec"]["dnsNames"][0].as_str().unwrap();
    let to = SocketAddr::new(gateway(cluster, &space.name).ip(), 443);

    let mut arns = Vec::new();
    for not_before in ["2026-01-01T00:00:00Z", "2026-10-01T00:00:00Z"] {
        let pem = issue(cluster, &certificate, not_before);
        let stands = space.until(&format!("igwc/{}", space.name), |it| it["status"]["tls"]["issuedAt"] == not_before);
        let arn = stands["status"]["tls"]["acmArn"].as_str().unwrap().to_owned();
        assert_eq!(stands["status"]["tls"]["dnsNames"], certificate["spec"]["dnsNames"]);
        assert_eq!(shelf.lock().unwrap().held.get(&arn).map(|held| held.trim()), Some(pem.trim()));
        cluster.eventually("the load balancer has it", || {
            let ingress = made(cluster, "ingress", &space.name).pop()?;
            (ingress["metadata"]["annotations"]["alb.ingress.kubernetes.io/certificate-arn"] == *arn).then_some(())
        });
        soon("the gateway shows it", || chat_over_tls(to, name, &pem) == Some(200));
        arns.push(arn);
    }
    assert_eq!(arns[0], arns[1], "a renewed one keeps its name");
    assert!(told(&space).to_string().len() < 2_000, "no key and no certificate is told");

    space.kubectl(&["delete", "igwc", &space.name, "--timeout=30s"]);
    nothing_left(cluster, &space, &space.name);
    let shelf = shelf.lock().unwrap();
    assert!(shelf.held.is_empty(), "{:?}", shelf.asked);
    assert_eq!(shelf.asked.iter().filter(|asked| *asked == "ImportCertificate").count(), 2, "{:?}", shelf.asked);
}
