//! The other APIs of an OpenAI-compatible server.

use http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::client::{events, get, post, request, send, start};

#[tokio::test]
async fn completions_take_texts_ids_and_many_of_them() {
    let server = start(|_| {}).await;
    let ask = |prompt: Value| json!({"model": "llama", "prompt": prompt, "max_tokens": 3, "ignore_eos": true});
    let path = "/v1/completions";
    let one = post(server.address(), path, &ask(json!("Hello"))).await.json();
    assert_eq!((&one["object"], &one["usage"]["completion_tokens"]), (&json!("text_completion"), &json!(3)));
    let ids = post(server.address(), path, &ask(json!([5, 6, 7, 8]))).await.json();
    assert_eq!(ids["usage"]["prompt_tokens"], 4);
    let many = post(server.address(), path, &ask(json!(["Hello", "World"]))).await.json();
    assert_eq!(many["choices"][1]["index"], 1);
    assert_eq!(many["choices"][0]["text"], one["choices"][0]["text"]);
    let mut stream = ask(json!(["Hello", "World"]));
    stream["stream"] = json!(true);
    let events = events(&post(server.address(), path, &stream).await);
    let text = |index: u64| -> String {
        let mine = events.iter().filter(|event| event["choices"][0]["index"] == index);
        mine.filter_map(|event| event["choices"][0]["text"].as_str()).collect()
    };
    assert_eq!(
        (json!(text(0)), json!(text(1))),
        (many["choices"][0]["text"].clone(), many["choices"][1]["text"].clone())
    );
    assert_eq!(post(server.address(), path, &json!({"model": "llama"})).await.status, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn tokens_of_a_text_are_those_of_a_prompt() {
    let server = start(|_| {}).await;
    let text = "Count the words, please: 12345.";
    let counted = post(server.address(), "/tokenize", &json!({"model": "llama", "prompt": text})).await.json();
    let ask = json!({"model": "llama", "prompt": text, "max_tokens": 1});
    let answer = post(server.address(), "/v1/completions", &ask).await.json();
    assert_eq!(counted["count"], answer["usage"]["prompt_tokens"]);
    let back = post(server.address(), "/detokenize", &json!({"tokens": counted["tokens"]})).await.json();
    assert_eq!(back["prompt"], text);
    let chat = json!({"messages": [{"role": "user", "content": text}]});
    let counted = post(server.address(), "/tokenize", &chat).await.json();
    let answer = post(server.address(), "/v1/chat/completions", &chat).await.json();
    assert_eq!(counted["count"], answer["usage"]["prompt_tokens"]);
}

#[tokio::test]
async fn responses_come_whole_as_events_and_again() {
    let server = start(|_| {}).await;
    let ask = json!({"model": "llama", "input": "Say something.", "max_output_tokens": 5000});
    let whole = post(server.address(), "/v1/responses", &ask).await.json();
    assert_eq!((&whole["object"], &whole["status"]), (&json!("response"), &json!("completed")));
    let text = whole["output"][0]["content"][0]["text"].as_str().unwrap();
    let path = format!("/v1/responses/{}", whole["id"].as_str().unwrap());
    assert_eq!(get(server.address(), &path).await.json()["output"], whole["output"]);
    assert_eq!(get(server.address(), "/v1/responses/resp_none").await.status, StatusCode::NOT_FOUND);
    let mut stream = ask.clone();
    stream["stream"] = json!(true);
    let answer = post(server.address(), "/v1/responses", &stream).await;
    let events = events(&answer);
    let kinds: Vec<&str> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!((kinds[0], *kinds.last().unwrap()), ("response.created", "response.completed"));
    let streamed: String = events
        .iter()
        .filter(|e| e["type"] == "response.output_text.delta")
        .filter_map(|e| e["delta"].as_str())
        .collect();
    assert_eq!(streamed, text);
    let numbers: Vec<u64> = events.iter().map(|event| event["sequence_number"].as_u64().unwrap()).collect();
    assert!(numbers.into_iter().eq(0..events.len() as u64));
    assert!(answer.text().starts_with("event: response.created\n") && !answer.text().contains("[DONE]"));
    let usage = &events.last().unwrap()["response"]["usage"];
    assert_eq!(usage["output_tokens"], whole["usage"]["output_tokens"]);
}

#[tokio::test]
async fn anthropic_messages() {
    let server = start(|_| {}).await;
    let ask = json!({
        "model": "llama", "max_tokens": 12, "system": "Be brief.", "messages": [{"role": "user", "content": "Hi"}],
    });
    let whole = post(server.address(), "/v1/messages", &ask).await.json();
    assert_eq!((&whole["type"], &whole["stop_reason"]), (&json!("message"), &json!("max_tokens")));
    let counted = post(server.address(), "/v1/messages/count_tokens", &ask).await.json();
    assert_eq!(counted["input_tokens"], whole["usage"]["input_tokens"]);
    let mut stream = ask.clone();
    stream["stream"] = json!(true);
    let events = events(&post(server.address(), "/v1/messages", &stream).await);
    let mut kinds: Vec<&str> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    kinds.dedup();
    let expected = [
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ];
    assert_eq!(kinds, expected);
    let text: String = events.iter().filter_map(|event| event["delta"]["text"].as_str()).collect();
    assert_eq!(json!(text), whole["content"][0]["text"]);
    let refused = post(server.address(), "/v1/messages", &json!({"model": "x", "max_tokens": 1, "messages": []})).await;
    assert_eq!((refused.status, &refused.json()["error"]["type"]), (StatusCode::NOT_FOUND, &json!("not_found_error")));
}

#[tokio::test]
async fn pooling_models() {
    let server = start(|_| {}).await;
    let embed = async |body: Value| post(server.address(), "/v1/embeddings", &body).await.json();
    let two = embed(json!({"model": "llama", "input": ["a stone", "a bridge"]})).await;
    let vector = |index: usize| two["data"][index]["embedding"].as_array().unwrap().clone();
    assert!(vector(0).len() == 64 && vector(0) != vector(1));
    assert_eq!(embed(json!({"input": "a stone"})).await["data"][0]["embedding"], json!(vector(0)));
    let encoded = embed(json!({"input": "a stone", "encoding_format": "base64"})).await;
    assert_eq!(encoded["data"][0]["embedding"].as_str().unwrap().len(), (64_usize * 4).div_ceil(3) * 4);
    let rank =
        json!({"model": "llama", "query": "stone bridge", "documents": ["milk", "the stone bridge"], "top_n": 1});
    for path in ["/rerank", "/v1/rerank", "/v2/rerank"] {
        let ranked = post(server.address(), path, &rank).await.json();
        assert_eq!((ranked["results"].as_array().unwrap().len(), &ranked["results"][0]["index"]), (1, &json!(1)));
    }
    let score = json!({"model": "llama", "text_1": "stone", "text_2": ["stone", "milk"]});
    let scores = post(server.address(), "/score", &score).await.json();
    assert!(scores["data"][0]["score"].as_f64() > scores["data"][1]["score"].as_f64());
    let classes = post(server.address(), "/classify", &json!({"input": ["x"]})).await.json();
    assert_eq!(classes["data"][0]["num_classes"], 2);
    assert_eq!(post(server.address(), "/pooling", &json!({"input": "x"})).await.json()["data"][0]["object"], "pooling");
    let page = get(server.address(), "/metrics").await.text();
    assert!(page.contains("vllm:request_success_total{engine=\"0\",finished_reason=\"stop\",model_name=\"llama\"}"));
}

#[tokio::test]
async fn audio_is_a_form() {
    let server = start(|_| {}).await;
    let form = |model: &str, close: &str| {
        let mut body = Vec::new();
        for (name, value) in [("model", model.as_bytes()), ("response_format", b"json")] {
            body.extend(format!("--XX\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n").bytes());
            body.extend(value);
            body.extend(b"\r\n");
        }
        body.extend(b"--XX\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.wav\"\r\n\r\n");
        body.extend([7; 100_000]);
        body.extend(format!("\r\n--XX{close}").bytes());
        let mut sent = request(Method::POST, "/v1/audio/transcriptions", body);
        sent.headers_mut().insert("content-type", "multipart/form-data; boundary=XX".parse().unwrap());
        sent
    };
    let answer = send(server.address(), form("llama", "--\r\n")).await.unwrap();
    assert_eq!(answer.json()["usage"], json!({"type": "duration", "seconds": 4}));
    assert!(!answer.json()["text"].as_str().unwrap().is_empty());
    assert_eq!(send(server.address(), form("other", "--\r\n")).await.unwrap().status, StatusCode::NOT_FOUND);
    assert_eq!(send(server.address(), form("llama", "")).await.unwrap().status, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn images_and_invocations() {
    let server = start(|_| {}).await;
    let images = post(server.address(), "/v1/images/generations", &json!({"prompt": "a stone", "n": 2})).await.json();
    assert_eq!(images["data"].as_array().unwrap().len(), 2);
    assert!(images["data"][0]["b64_json"].as_str().unwrap().starts_with("iVBORw0KGgo"));
    let chat = post(server.address(), "/invocations", &json!({"messages": [{"role": "user", "content": "x"}]})).await;
    assert_eq!(chat.json()["object"], "chat.completion");
    let completion = post(server.address(), "/invocations", &json!({"prompt": "x"})).await;
    assert_eq!(completion.json()["object"], "text_completion");
}

#[tokio::test]
async fn plain_paths() {
    let server = start(|_| {}).await;
    assert!(get(server.address(), "/health").await.body.is_empty());
    assert_eq!(post(server.address(), "/ping", &json!({})).await.status, StatusCode::OK);
    assert_eq!(get(server.address(), "/version").await.json(), json!({"version": "0.33.0"}));
    assert_eq!(get(server.address(), "/load").await.json(), json!({"server_load": 0}));
    assert_eq!(get(server.address(), "/metrics/").await.status, StatusCode::OK);
    assert_eq!(get(server.address(), "/sim/state").await.json()["profile"], "llama-3.1-8b-h100");
}
