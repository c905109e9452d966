use std::time::{Duration, SystemTime};

use rcgen::{CertificateParams, KeyPair};

use super::{sites::Sites, *};

struct Pair {
    chain: String,
    key: String,
}

fn pair(names: &[&str]) -> Pair {
    let key = KeyPair::generate().unwrap();
    let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
    let certificate = CertificateParams::new(names).unwrap().self_signed(&key).unwrap();
    Pair { chain: certificate.pem(), key: key.serialize_pem() }
}

fn certificate(names: &[&str]) -> Arc<Certificate> {
    let Pair { chain, key } = pair(names);
    Arc::new(Certificate::from_pem(chain.as_bytes(), key.as_bytes()).unwrap())
}

fn site(hostname: Option<&str>, certificates: &[&Arc<Certificate>]) -> Site {
    Site {
        hostname: hostname.map(str::to_owned),
        certificates: certificates.iter().map(|&certificate| Arc::clone(certificate)).collect(),
    }
}

#[test]
fn i08_a_torn_or_broken_pair_is_refused_and_says_why() {
    let (one, other) = (pair(&["a.example"]), pair(&["a.example"]));
    let why = |chain: &str, key: &str| Certificate::from_pem(chain.as_bytes(), key.as_bytes()).unwrap_err().to_string();
    assert!(Certificate::from_pem(one.chain.as_bytes(), one.key.as_bytes()).is_ok());
    assert_eq!(why(&one.chain, &other.key), CertificateError::Mismatch.to_string());
    assert_eq!(why("", &one.key), CertificateError::NoCertificate.to_string());
    assert_eq!(why(&one.chain, ""), CertificateError::NoKey.to_string());
    assert_eq!(why(&one.chain.repeat(17), &one.key), CertificateError::LongChain.to_string());
    let cut = &one.chain[..one.chain.len() / 2];
    assert!(why(cut, &one.key).starts_with("the certificate is no PEM text"), "{}", why(cut, &one.key));
    let garbage = "-----BEGIN CERTIFICATE-----\nZ2FyYmFnZQ==\n-----END CERTIFICATE-----\n";
    assert!(why(garbage, &one.key).starts_with("the certificate cannot be read"), "{}", why(garbage, &one.key));
    let key = "-----BEGIN PRIVATE KEY-----\nZ2FyYmFnZQ==\n-----END PRIVATE KEY-----\n";
    assert!(why(&one.chain, key).starts_with("the key cannot be used"), "{}", why(&one.chain, key));
}

#[test]
fn it_expires_when_its_certificate_does() {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec!["a.example".to_owned()]).unwrap();
    let (from, to) = (SystemTime::UNIX_EPOCH + Duration::from_secs(1_000), Duration::from_secs(3_600));
    params.not_before = from.into();
    params.not_after = (from + to).into();
    let chain = params.self_signed(&key).unwrap().pem();
    let certificate = Certificate::from_pem(chain.as_bytes(), key.serialize_pem().as_bytes()).unwrap();
    assert_eq!(certificate.not_after(), from + to);
    assert!(!certificate.has_expired_at(from + to));
    assert!(certificate.has_expired_at(from + to + Duration::from_secs(1)));
}

#[test]
fn the_certificate_is_chosen_by_host_and_then_by_its_own_names() {
    let (any, exact, wild) = (certificate(&["x.test"]), certificate(&["A.example"]), certificate(&["*.example"]));
    let sites = Sites::default();
    sites.set(vec![site(None, &[&any, &wild, &exact])]);
    let chosen = |name: Option<&str>| sites.choose(name, |_| true);
    assert_eq!(chosen(Some("a.example")), Some(Arc::clone(&wild)), "the first that fits");
    assert_eq!(chosen(Some("b.a.example")), Some(Arc::clone(&any)), "a certificate's wildcard is one label");
    assert_eq!(chosen(Some("other.test")), Some(Arc::clone(&any)));
    assert_eq!(chosen(None), Some(Arc::clone(&any)));

    sites.set(vec![
        site(Some("*.example"), &[&wild]),
        site(Some("*.deep.example"), &[&any]),
        site(Some("a.example"), &[&exact]),
    ]);
    let chosen = |name: Option<&str>| sites.choose(name, |_| true);
    assert_eq!(chosen(Some("a.example")), Some(Arc::clone(&exact)), "an exact host wins");
    assert_eq!(chosen(Some("b.c.example")), Some(Arc::clone(&wild)), "a listener's wildcard is of any depth");
    assert_eq!(chosen(Some("c.deep.example")), Some(Arc::clone(&any)), "the longer wildcard wins");
    for nobody in [None, Some("example"), Some("notexample"), Some("a.test")] {
        assert_eq!(chosen(nobody), None, "{nobody:?}");
    }
    assert_eq!(sites.choose(Some("a.example"), |_| false), None, "none that the client can check");
}
