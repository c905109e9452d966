//! SGLang and TGI where they differ from vLLM.

use http::StatusCode;
use model_sim::Face;
use serde_json::{Value, json};

use crate::client::{events, get, post, sample, start};

fn chat(model: &str) -> Value {
    json!({"model": model, "max_tokens": 5, "ignore_eos": true, "messages": [{"role": "user", "content": "hello"}]})
}

async fn face(face: Face) -> model_sim::Running {
    start(|options| {
        options.face = face;
        options.version = face.newest();
        options.adapters = vec!["sql".parse().unwrap()];
    })
    .await
}

#[tokio::test]
async fn sglang_serves_any_model_name_and_is_flat() {
    let server = face(Face::Sglang).await;
    let answer = post(server.address(), "/v1/chat/completions", &chat("whatever")).await;
    assert_eq!((answer.status, &answer.json()["model"]), (StatusCode::OK, &json!("whatever")));
    assert_eq!(answer.json()["choices"][0]["matched_stop"], Value::Null);
    let long = json!({"messages": [{"role": "user", "content": "word ".repeat(140_000)}]});
    let refused = post(server.address(), "/v1/chat/completions", &long).await.json();
    assert_eq!((&refused["object"], &refused["code"]), (&json!("error"), &json!(400)));
    let mut stream = chat("llama:sql");
    stream["stream"] = json!(true);
    let events = events(&post(server.address(), "/v1/chat/completions", &stream).await);
    let delta = json!({"reasoning_content": null, "role": "assistant", "content": ""});
    assert_eq!(events[0]["choices"][0]["delta"], delta);
    let last = &events[events.len() - 2]["choices"][0];
    assert_eq!((&last["delta"], &last["finish_reason"]), (&json!({"reasoning_content": null}), &json!("length")));
    let unknown = get(server.address(), "/v1/models/none").await;
    assert_eq!((unknown.status, &unknown.json()["error"]["code"]), (StatusCode::NOT_FOUND, &json!("model_not_found")));
    assert_eq!(get(server.address(), "/health").await.status, StatusCode::OK);
    assert_eq!(get(server.address(), "/version").await.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn sglang_generates_natively_and_measures() {
    let server = face(Face::Sglang).await;
    let ask = json!({"text": "Once upon a time", "sampling_params": {"max_new_tokens": 4, "ignore_eos": true}});
    let answer = post(server.address(), "/generate", &ask).await.json();
    assert_eq!(answer["meta_info"]["completion_tokens"], 4);
    assert_eq!(answer["meta_info"]["finish_reason"], json!({"type": "length", "length": 4}));
    let batch = json!({"text": ["a b", "c d"], "sampling_params": {"max_new_tokens": 2}});
    assert_eq!(post(server.address(), "/generate", &batch).await.json().as_array().unwrap().len(), 2);
    let page = get(server.address(), "/metrics").await.text();
    let labels = "engine_type=\"unified\",model_name=\"llama\",moe_ep_rank=\"0\",pp_rank=\"0\",tp_rank=\"0\"";
    assert_eq!(sample(&page, &format!("sglang:num_queue_reqs{{{labels}}}")), Some(0.0));
    assert!(sample(&page, &format!("sglang:generation_tokens_total{{{labels}}}")).unwrap() >= 6.0);
    assert_eq!(sample(&page, &format!("sglang:e2e_request_latency_seconds_count{{{labels}}}")), Some(3.0));
    assert!(!page.contains("process_") && !page.contains("_created"));
    let old = start(|options| {
        options.face = Face::Sglang;
        options.version = "0.5.9".parse().unwrap();
    })
    .await;
    let page = get(old.address(), "/metrics").await.text();
    assert!(page.contains(
        "sglang:cache_config_info{engine_type=\"unified\",model_name=\"llama\",num_pages=\"28099\",page_size=\"16\""
    ));
}

#[tokio::test]
async fn tgi_ignores_the_model_and_refuses_in_its_own_words() {
    let server = face(Face::Tgi).await;
    let before = get(server.address(), "/metrics").await.text();
    assert!(!before.contains("tgi_queue_size") && before.contains("tgi_batch_max_total_tokens 449584"));
    let answer = post(server.address(), "/v1/chat/completions", &chat("whatever")).await;
    assert_eq!((answer.status, &answer.json()["model"]), (StatusCode::OK, &json!("llama")));
    assert!(!answer.headers.contains_key("server"));
    let refused = post(server.address(), "/v1/chat/completions", &json!({"messages": []})).await;
    assert_eq!(
        (refused.status, &refused.json()["error_type"]),
        (StatusCode::UNPROCESSABLE_ENTITY, &json!("validation"))
    );
    let page = get(server.address(), "/metrics").await.text();
    assert_eq!(sample(&page, "tgi_queue_size"), Some(0.0));
    assert_eq!(sample(&page, "tgi_request_success"), Some(1.0));
    assert!(page.contains("# TYPE tgi_queue_size gauge\ntgi_queue_size 0\n"));
}

#[tokio::test]
async fn tgi_generates_natively() {
    let server = face(Face::Tgi).await;
    let ask = json!({"inputs": "Once upon", "parameters": {"max_new_tokens": 4, "ignore_eos": true, "details": true}});
    let answer = post(server.address(), "/generate", &ask).await;
    assert_eq!(answer.json()["details"]["generated_tokens"], 4);
    assert_eq!(answer.headers["x-generated-tokens"], "4");
    let stream = events(&post(server.address(), "/generate_stream", &ask).await);
    let last = stream.last().unwrap();
    assert_eq!(last["generated_text"], answer.json()["generated_text"]);
    assert_eq!(last["details"]["finish_reason"], "length");
    assert_eq!(get(server.address(), "/info").await.json()["max_concurrent_requests"], 128);
}

#[tokio::test]
async fn tgi_is_overloaded_beyond_its_limit() {
    let server = start(|options| {
        options.face = Face::Tgi;
        options.concurrent_requests_max = 0;
    })
    .await;
    let refused = post(server.address(), "/generate", &json!({"inputs": "hi"})).await;
    assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(refused.json(), json!({"error": "Model is overloaded", "error_type": "overloaded"}));
}
