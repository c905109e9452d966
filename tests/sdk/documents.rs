//! The OpenAPI description as a validator sees it, and the pages for people as a browser shows them.

use std::fs;

use harness::{Chromium, Config, Gateway, Peer, Python};

#[test]
fn the_openapi_description_is_valid_in_the_repository_and_as_served() {
    let (python, peer) = (Python::installed(), Peer::plain());
    let gateway = Gateway::start(&Config::plain("m1", [peer.address]));
    let served = tempfile::Builder::new().suffix(".json").tempfile().unwrap();
    fs::write(served.path(), gateway.admin.get("/openapi.json").body).unwrap();
    let written = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/openapi.yaml");
    for file in [written, &served.path().to_string_lossy()] {
        let (valid, said) = python.module("openapi_spec_validator", &["--schema", "3.1.0", file]);
        assert!(valid, "{file}: {said}");
    }
    let broken = tempfile::Builder::new().suffix(".json").tempfile().unwrap();
    fs::write(broken.path(), r#"{"openapi":"3.1.0","info":{"title":"a"},"paths":{}}"#).unwrap();
    let (valid, said) =
        python.module("openapi_spec_validator", &["--schema", "3.1.0", &broken.path().to_string_lossy()]);
    assert!(!valid && said.contains("version"), "the validator reads what it is given: {said}");
}

#[test]
fn a_browser_shows_the_pages_and_asks_nobody_else() {
    let peer = Peer::plain();
    let gateway = Gateway::start(&Config::plain("m1", [peer.address]));
    let origin = format!("http://{}", gateway.admin.address);
    let page = Chromium::installed().open(&format!("{origin}/docs"));
    for text in ["/v1/chat/completions", "/v1/messages", "/api/v1/pools", "/api/v1/decisions/", "model_not_found"] {
        assert!(page.document.contains(text), "no {text} in {}", page.document);
    }
    // The script is part of the document, and may say such words.
    let (before, rest) = page.document.split_once("<script").expect("the page has a script");
    let (_, behind) = rest.split_once("</script>").expect("a script ends");
    for broken in ["[object", "undefined", "NaN"] {
        assert!(!before.contains(broken) && !behind.contains(broken), "{broken} in {before}{behind}");
    }
    assert!(page.console.is_empty(), "{:?}", page.console);
    assert!(!page.asked_for.is_empty(), "the page reads the description by itself");
    let strangers: Vec<_> = page.asked_for.iter().filter(|url| !url.starts_with(&origin)).collect();
    assert!(strangers.is_empty(), "{strangers:?}");
    assert!(page.picture.len() > 10_000, "the picture is empty: {} bytes", page.picture.len());
    let answer = gateway.admin.get("/docs");
    let policy = answer.header("content-security-policy").expect("a policy for scripts and assets");
    assert!(policy.contains("default-src 'none'"), "{policy}");
}
