//! The client against a small stand-in for ACM that speaks its protocol: AWS JSON 1.1.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use aws_sdk_acm::config::{Credentials, Region};
use axum::{
    Router,
    body::Bytes,
    extract::State,
    http::{HeaderMap, StatusCode},
    routing::post,
};
use serde_json::{Value, json};

use super::*;

/// What the stand-in holds, by ARN.
#[derive(Clone, Debug, Default)]
struct Held {
    domain: String,
    tags: Value,
    imports: u32,
    in_use: bool,
}

type Shelf = Arc<Mutex<BTreeMap<String, Held>>>;

async fn answer(State(shelf): State<Shelf>, headers: HeaderMap, body: Bytes) -> (StatusCode, String) {
    let target = headers["x-amz-target"].to_str().unwrap().trim_start_matches("CertificateManager.").to_owned();
    let asked: Value = serde_json::from_slice(&body).unwrap();
    let arn = asked["CertificateArn"].as_str().unwrap_or_default().to_owned();
    let mut shelf = shelf.lock().unwrap();
    let refusal = |kind: &str| (StatusCode::BAD_REQUEST, json!({"__type": kind, "message": "no"}).to_string());
    let said = match target.as_str() {
        "ImportCertificate" => {
            let arn = if arn.is_empty() { format!("arn:aws:acm:us-east-1:1:certificate/{}", shelf.len()) } else { arn };
            let held = shelf.entry(arn.clone()).or_default();
            // As ACM does it.
            if held.imports > 0 && !asked["Tags"].is_null() {
                return refusal("ValidationException");
            }
            held.imports += 1;
            if !asked["Tags"].is_null() {
                held.tags = asked["Tags"].clone();
            }
            held.domain = "gw.example".into();
            json!({"CertificateArn": arn})
        }
        "ListCertificates" => {
            let all = shelf.iter().map(|(arn, held)| json!({"CertificateArn": arn, "DomainName": held.domain}));
            json!({"CertificateSummaryList": all.collect::<Vec<_>>()})
        }
        "ListTagsForCertificate" => json!({"Tags": shelf[&arn].tags}),
        "DeleteCertificate" => match shelf.get(&arn) {
            None => return refusal("ResourceNotFoundException"),
            Some(held) if held.in_use => return refusal("ResourceInUseException"),
            Some(_) => {
                shelf.remove(&arn);
                json!({})
            }
        },
        _ => return refusal("UnknownOperationException"),
    };
    (StatusCode::OK, said.to_string())
}

async fn acm() -> (Acm, Shelf) {
    let shelf = Shelf::default();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let router = Router::new().route("/", post(answer)).with_state(Arc::clone(&shelf));
    tokio::spawn(axum::serve(listener, router).into_future());
    let config = aws_sdk_acm::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new("us-east-1"))
        .credentials_provider(Credentials::for_tests())
        .http_client(Builder::new().build_http())
        .timeout_config(timeouts())
        .endpoint_url(url)
        .build();
    (Acm(Client::from_conf(config)), shelf)
}

fn issued(at: &str) -> Issued {
    Issued {
        certificate: "CERT".into(),
        chain: Some("CHAIN".into()),
        key: "KEY".into(),
        at: at.into(),
        dns_names: vec!["gw.example".into()],
    }
}

#[tokio::test]
async fn a_renewed_certificate_keeps_its_name() {
    let (acm, shelf) = acm().await;
    let arn = acm.import(None, &issued("t1"), "uid-1").await.unwrap();
    assert_eq!(acm.import(Some(&arn), &issued("t2"), "uid-1").await.unwrap(), arn);
    let shelf = shelf.lock().unwrap();
    assert_eq!((shelf.len(), shelf[&arn].imports), (1, 2));
    let tags = shelf[&arn].tags.as_array().unwrap();
    assert!(tags.iter().any(|tag| tag["Key"] == "CreatedBy" && tag["Value"] == "HyperPodInference"), "{tags:?}");
}

#[tokio::test]
async fn an_import_that_was_never_noted_is_found_again_and_no_others() {
    let (acm, _) = acm().await;
    acm.import(None, &issued("t1"), "uid-other").await.unwrap();
    assert_eq!(acm.find("gw.example", "uid-1").await.unwrap(), None);
    let arn = acm.import(None, &issued("t1"), "uid-1").await.unwrap();
    assert_eq!(acm.find("gw.example", "uid-1").await.unwrap(), Some(arn));
}

#[tokio::test]
async fn a_certificate_in_use_is_deleted_later_and_a_gone_one_is_deleted() {
    let (acm, shelf) = acm().await;
    let arn = acm.import(None, &issued("t1"), "uid-1").await.unwrap();
    shelf.lock().unwrap().get_mut(&arn).unwrap().in_use = true;
    assert_eq!(acm.delete(&arn).await, Err(AcmError::InUse));
    shelf.lock().unwrap().get_mut(&arn).unwrap().in_use = false;
    assert_eq!(acm.delete(&arn).await, Ok(()));
    assert_eq!(acm.delete(&arn).await, Ok(()));
}

#[tokio::test(start_paused = true)]
async fn an_acm_that_says_nothing_is_given_up() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let config = aws_sdk_acm::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new("us-east-1"))
        .credentials_provider(Credentials::for_tests())
        .http_client(Builder::new().build_http())
        .timeout_config(timeouts())
        .endpoint_url(format!("http://{}", listener.local_addr().unwrap()))
        .build();
    let acm = Acm(Client::from_conf(config));
    let started = tokio::time::Instant::now();
    assert!(matches!(acm.delete("arn").await, Err(AcmError::Failed(_))));
    assert!(started.elapsed() <= CALL_MAX + Duration::from_secs(1), "{:?}", started.elapsed());
}
