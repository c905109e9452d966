//! What a client of vLLM relies on: streams, usage, prefix hits, cancellation, manners of connections.

use std::time::Duration;

use http::{Method, StatusCode};
use http_body_util::BodyExt;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};

use crate::client::{Connection, events, eventually, get, post, request, sample, send, start};

fn chat(content: &str) -> Value {
    json!({"model": "llama", "max_tokens": 20, "messages": [{"role": "user", "content": content}]})
}

fn with(mut body: Value, more: Value) -> Value {
    for (name, value) in more.as_object().unwrap() {
        body[name] = value.clone();
    }
    body
}

#[tokio::test]
async fn a_stream_says_the_same_as_a_whole_answer() {
    let server = start(|_| {}).await;
    let path = "/v1/chat/completions";
    let whole = post(server.address(), path, &chat("Tell me about rivers.")).await.json();
    let options = json!({"stream": true, "stream_options": {"include_usage": true}});
    let stream = post(server.address(), path, &with(chat("Tell me about rivers."), options)).await;
    assert_eq!(stream.headers["content-type"], "text/event-stream; charset=utf-8");
    let events = events(&stream);
    let [first, .., usage, done] = events.as_slice() else { panic!("{events:?}") };
    assert_eq!(first["choices"][0]["delta"], json!({"role": "assistant", "content": ""}));
    assert_eq!(done, "[DONE]");
    assert_eq!((&usage["choices"], &usage["usage"]["completion_tokens"]), (&json!([]), &json!(20)));
    assert_eq!(usage["usage"]["prompt_tokens"], whole["usage"]["prompt_tokens"]);
    let text: String = events.iter().filter_map(|e| e["choices"][0]["delta"]["content"].as_str()).collect();
    assert_eq!(text, whole["choices"][0]["message"]["content"].as_str().unwrap());
    let last = &events[events.len() - 3]["choices"][0];
    assert_eq!((&last["finish_reason"], &whole["choices"][0]["finish_reason"]), (&json!("length"), &json!("length")));
    let other = post(server.address(), path, &chat("Tell me about stones.")).await.json();
    assert_ne!(other["choices"], whole["choices"]);
}

#[tokio::test]
async fn continuous_usage_counts_up() {
    let server = start(|_| {}).await;
    let options = json!({"stream": true, "stream_options": {"include_usage": true, "continuous_usage_stats": true}});
    let stream = post(server.address(), "/v1/chat/completions", &with(chat("count"), options)).await;
    let counts: Vec<u64> =
        events(&stream).iter().filter_map(|event| event["usage"]["completion_tokens"].as_u64()).collect();
    assert!(counts.is_sorted() && counts.last() == Some(&20) && counts.len() > 2, "{counts:?}");
    let refused = json!({"stream_options": {"include_usage": true}});
    let refused = post(server.address(), "/v1/chat/completions", &with(chat("count"), refused)).await;
    assert_eq!(
        (refused.status, refused.json()["error"]["param"].clone()),
        (StatusCode::BAD_REQUEST, json!("stream_options"))
    );
}

#[tokio::test]
async fn shared_prefixes_and_former_turns_are_cached() {
    let server = start(|_| {}).await;
    let long = "All work and no play makes the gateway a dull machine. ".repeat(40);
    let ask = |messages: Value| json!({"model": "llama", "max_tokens": 64, "messages": messages, "ignore_eos": true});
    let first =
        post(server.address(), "/v1/chat/completions", &ask(json!([{"role": "user", "content": long}]))).await.json();
    assert_eq!(first["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
    let prompt = first["usage"]["prompt_tokens"].as_u64().unwrap();
    let again =
        post(server.address(), "/v1/chat/completions", &ask(json!([{"role": "user", "content": long}]))).await.json();
    assert_eq!(again["usage"]["prompt_tokens_details"]["cached_tokens"], (prompt - 1) / 16 * 16);
    // The next turn holds the answer too: its blocks were cached as they were generated.
    let messages = json!([
        {"role": "user", "content": long},
        {"role": "assistant", "content": first["choices"][0]["message"]["content"]},
        {"role": "user", "content": "Go on."},
    ]);
    let next = post(server.address(), "/v1/chat/completions", &ask(messages)).await.json();
    let cached = next["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap();
    assert!(cached >= (prompt + 63) / 16 * 16, "{cached} of {prompt} and 64");
    // A salt or another adapter shares nothing.
    let salted = with(ask(json!([{"role": "user", "content": long}])), json!({"cache_salt": "tenant"}));
    let salted = post(server.address(), "/v1/chat/completions", &salted).await.json();
    assert_eq!(salted["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
    let page = get(server.address(), "/metrics").await.text();
    let labels = "{engine=\"0\",model_name=\"llama\"}";
    let hits = sample(&page, &format!("vllm:prefix_cache_hits_total{labels}")).unwrap();
    assert_eq!(hits as u64, (prompt - 1) / 16 * 16 + cached);
}

#[tokio::test]
async fn a_client_that_leaves_frees_its_blocks() {
    // In real time: a long answer cannot be over before the client has left.
    let server = start(|options| options.time_scale = 1.0).await;
    let body = with(chat("long"), json!({"stream": true, "max_tokens": 5000, "ignore_eos": true}));
    for streams in [true, false] {
        let body = with(body.clone(), json!({"stream": streams}));
        let mut connection = Connection::open(server.address()).await.unwrap();
        let sent = connection.send(request(Method::POST, "/v1/chat/completions", body.to_string()));
        if streams {
            let mut response = sent.await.unwrap();
            response.body_mut().frame().await.unwrap().unwrap();
        } else {
            let gone = tokio::time::timeout(Duration::from_millis(60), sent).await;
            assert!(gone.is_err(), "a long answer is not there yet");
        }
        drop(connection);
        eventually(async || server.live_requests(), |live| *live == 0).await;
    }
    let page = eventually(
        async || get(server.address(), "/metrics").await.text(),
        |page| sample(page, "vllm:kv_cache_usage_perc{engine=\"0\",model_name=\"llama\"}") == Some(0.0),
    )
    .await;
    let aborted = "vllm:request_success_total{engine=\"0\",finished_reason=\"abort\",model_name=\"llama\"}";
    assert_eq!(sample(&page, aborted), Some(2.0));
    let outcomes: Vec<model_sim::Outcome> =
        server.requests().iter().filter(|r| r.method == "POST").map(|r| r.outcome).collect();
    assert_eq!(outcomes, [model_sim::Outcome::ClientGone; 2]);
}

#[tokio::test]
async fn choices_stop_strings_and_priorities() {
    let server = start(|_| {}).await;
    let path = "/v1/chat/completions";
    let two = post(server.address(), path, &with(chat("pick"), json!({"n": 2}))).await.json();
    let texts: Vec<&str> = (0..2).map(|i| two["choices"][i]["message"]["content"].as_str().unwrap()).collect();
    assert_ne!(texts[0], texts[1]);
    assert_eq!(two["usage"]["completion_tokens"], 40);
    let stop = &texts[0][10..16];
    let stopped = post(server.address(), path, &with(chat("pick"), json!({"stop": [stop]}))).await.json();
    let choice = &stopped["choices"][0];
    assert_eq!((&choice["finish_reason"], &choice["stop_reason"]), (&json!("stop"), &json!(stop)));
    assert_eq!(choice["message"]["content"], texts[0][..texts[0].find(stop).unwrap()]);
    let stream = post(server.address(), path, &with(chat("pick"), json!({"n": 2, "stream": true}))).await;
    let of = |index: u64| -> String {
        let all = events(&stream);
        let mine = all.iter().filter(|event| event["choices"][0]["index"] == index);
        mine.filter_map(|event| event["choices"][0]["delta"]["content"].as_str()).collect()
    };
    assert_eq!((of(0).as_str(), of(1).as_str()), (texts[0], texts[1]));
}

#[tokio::test]
async fn refusals_have_vllms_shapes() {
    let server = start(|_| {}).await;
    let path = "/v1/chat/completions";
    let unknown = post(server.address(), path, &with(chat("x"), json!({"model": "gpt"}))).await;
    assert_eq!(unknown.status, StatusCode::NOT_FOUND);
    let expected = json!({"error": {
        "message": "The model `gpt` does not exist.", "type": "NotFoundError", "param": "model", "code": 404,
    }});
    assert_eq!(unknown.json(), expected);
    let long = post(server.address(), path, &chat(&"word ".repeat(140_000))).await;
    assert_eq!((long.status, long.json()["error"]["param"].clone()), (StatusCode::BAD_REQUEST, json!("input_tokens")));
    assert!(long.text().contains("maximum context length"));
    let broken = send(server.address(), request(Method::POST, path, "{\"model\":")).await.unwrap();
    assert_eq!(
        (broken.status, broken.json()["error"]["type"].clone()),
        (StatusCode::BAD_REQUEST, json!("Bad Request"))
    );
    let mut untyped = request(Method::POST, path, chat("x").to_string());
    untyped.headers_mut().remove("content-type");
    assert_eq!(send(server.address(), untyped).await.unwrap().status, StatusCode::BAD_REQUEST);
    let shape = post(server.address(), path, &json!({"model": "llama"})).await;
    assert_eq!((shape.status, shape.json()["error"]["param"].clone()), (StatusCode::BAD_REQUEST, json!("messages")));
    assert_eq!(get(server.address(), path).await.status, StatusCode::METHOD_NOT_ALLOWED);
    assert_eq!(get(server.address(), "/sleep").await.json()["error"]["message"], "Not Found");
    // Older releases were flat.
    let old = start(|options| options.version = "0.9".parse().unwrap()).await;
    let flat = post(old.address(), path, &with(chat("x"), json!({"model": "gpt"}))).await.json();
    assert_eq!((&flat["object"], &flat["code"]), (&json!("error"), &json!(404)));
}

#[tokio::test]
async fn keys_guard_some_paths_only() {
    let server = start(|options| options.api_key = Some("secret".to_owned())).await;
    let refused = get(server.address(), "/v1/models").await;
    assert_eq!((refused.status, refused.json()), (StatusCode::UNAUTHORIZED, json!({"error": "Unauthorized"})));
    let mut allowed = request(Method::GET, "/v1/models", "");
    allowed.headers_mut().insert("authorization", "Bearer secret".parse().unwrap());
    assert_eq!(send(server.address(), allowed).await.unwrap().status, StatusCode::OK);
    assert_eq!(get(server.address(), "/metrics").await.status, StatusCode::OK);
}

#[tokio::test]
async fn request_ids_name_answers_and_come_back_when_asked_for() {
    let server = start(|options| options.request_id_headers = true).await;
    let mut named = request(Method::POST, "/v1/chat/completions", chat("hi").to_string());
    named.headers_mut().insert("x-request-id", "abc-1".parse().unwrap());
    let answer = send(server.address(), named).await.unwrap();
    assert_eq!(
        (answer.json()["id"].as_str(), &answer.headers["x-request-id"]),
        (Some("chatcmpl-abc-1"), &"abc-1".parse().unwrap())
    );
    assert_eq!(answer.headers["server"], "uvicorn");
    assert!(answer.headers.contains_key("date"));
    let plain = start(|_| {}).await;
    assert!(!post(plain.address(), "/v1/chat/completions", &chat("hi")).await.headers.contains_key("x-request-id"));
}

#[tokio::test]
async fn http2_without_tls_is_spoken_too() {
    let server = start(|_| {}).await;
    let stream = tokio::net::TcpStream::connect(server.address()).await.unwrap();
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let body = with(chat("hi"), json!({"stream": true}));
    let mut sent = request(Method::POST, "/v1/chat/completions", body.to_string());
    *sent.uri_mut() = format!("http://{}/v1/chat/completions", server.address()).parse().unwrap();
    sent.headers_mut().remove("host");
    let response = sender.send_request(sent).await.unwrap();
    assert_eq!((response.status(), response.version()), (StatusCode::OK, http::Version::HTTP_2));
    assert!(response.into_body().collect().await.unwrap().to_bytes().ends_with(b"data: [DONE]\n\n"));
    assert_eq!(server.requests()[0].version, "HTTP/2.0");
}

#[tokio::test]
async fn idle_connections_are_closed_but_not_fresh_or_busy_ones() {
    let server = start(|options| {
        options.keep_alive = Duration::from_millis(100);
        options.time_scale = 1.0;
    })
    .await;
    let mut fresh = Connection::open(server.address()).await.unwrap();
    let mut used = Connection::open(server.address()).await.unwrap();
    // Longer than the idle limit, and still answered: a busy connection is not idle.
    let body = with(chat("hi"), json!({"max_tokens": 60, "ignore_eos": true}));
    let response = used.send(request(Method::POST, "/v1/chat/completions", body.to_string())).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    response.into_body().collect().await.unwrap();
    used.closed().await;
    // Its time was longer than the limit too, but it never had an answer.
    let response = fresh.send(request(Method::GET, "/health", "")).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
}

#[tokio::test]
async fn adapters_are_served_loaded_and_unloaded() {
    let server = start(|options| options.adapters = vec!["sql".parse().unwrap()]).await;
    let ask = |model: &str| with(chat("select"), json!({"model": model}));
    let path = "/v1/chat/completions";
    assert_eq!(post(server.address(), path, &ask("sql")).await.json()["model"], "sql");
    assert_eq!(post(server.address(), path, &ask("chat")).await.status, StatusCode::NOT_FOUND);
    let load = json!({"lora_name": "chat", "lora_path": "/weights/chat"});
    let loaded = post(server.address(), "/v1/load_lora_adapter", &load).await;
    assert_eq!(loaded.text(), "Success: LoRA adapter 'chat' added successfully.");
    assert_eq!(post(server.address(), "/v1/load_lora_adapter", &load).await.status, StatusCode::BAD_REQUEST);
    assert_eq!(post(server.address(), path, &ask("chat")).await.status, StatusCode::OK);
    let models = get(server.address(), "/v1/models").await.json();
    let parents: Vec<&Value> = models["data"].as_array().unwrap().iter().map(|card| &card["parent"]).collect();
    assert_eq!(parents, [&Value::Null, &json!("llama"), &json!("llama")]);
    assert_eq!(get(server.address(), "/v1/models/chat").await.json()["root"], "/weights/chat");
    let unload = json!({"lora_name": "chat"});
    assert_eq!(post(server.address(), "/v1/unload_lora_adapter", &unload).await.status, StatusCode::OK);
    assert_eq!(post(server.address(), "/v1/unload_lora_adapter", &unload).await.status, StatusCode::NOT_FOUND);
    assert_eq!(post(server.address(), path, &ask("chat")).await.status, StatusCode::NOT_FOUND);
    let page = get(server.address(), "/metrics").await.text();
    let series = |names: &str| {
        format!(
            "vllm:lora_requests_info{{max_lora=\"4\",running_lora_adapters=\"{names}\",waiting_lora_adapters=\"{names}\"}}"
        )
    };
    for names in ["sql", "chat", ""] {
        assert!(sample(&page, &series(names)).is_some(), "{names}");
    }
    assert!(sample(&page, &series("")) >= sample(&page, &series("chat")));
}

#[tokio::test]
async fn ranks_share_a_port_and_can_be_pinned() {
    let server = start(|options| options.ranks = 2).await;
    for _ in 0..3 {
        let mut pinned = request(Method::POST, "/v1/chat/completions", chat("hi").to_string());
        pinned.headers_mut().insert("x-data-parallel-rank", "1".parse().unwrap());
        send(server.address(), pinned).await.unwrap();
    }
    let page = get(server.address(), "/metrics").await.text();
    let tokens = |rank: u32| {
        sample(&page, &format!("vllm:generation_tokens_total{{engine=\"{rank}\",model_name=\"llama\"}}")).unwrap()
    };
    assert_eq!((tokens(0), tokens(1)), (0.0, 60.0));
    assert_eq!(page.matches("num_gpu_blocks=\"56200\"").count(), 2);
}

#[tokio::test]
async fn a_full_queue_is_refused_when_a_limit_is_set() {
    let server = start(|options| {
        options.queued_requests_max = Some(0);
    })
    .await;
    let refused = post(server.address(), "/v1/chat/completions", &chat("hi")).await;
    assert_eq!((refused.status, refused.headers.get("retry-after")), (StatusCode::SERVICE_UNAVAILABLE, None));
    assert_eq!(refused.json()["error"]["type"], "Service Unavailable");
    let page = get(server.address(), "/metrics").await.text();
    let series = "vllm:admission_rejections_total{model_name=\"llama\",reason=\"max_num_queued_reqs\"}";
    assert_eq!(sample(&page, series), Some(1.0));
}

#[tokio::test]
async fn many_streams_at_once_all_end() {
    let server = start(|_| {}).await;
    let address = server.address();
    let mut running = tokio::task::JoinSet::new();
    for number in 0..300 {
        let body = with(chat(&format!("request {number}")), json!({"stream": true, "ignore_eos": true}));
        running.spawn(async move { events(&post(address, "/v1/chat/completions", &body).await).pop() });
    }
    while let Some(last) = running.join_next().await {
        assert_eq!(last.unwrap(), Some(json!("[DONE]")));
    }
    let page = get(address, "/metrics").await.text();
    assert_eq!(sample(&page, "vllm:generation_tokens_total{engine=\"0\",model_name=\"llama\"}"), Some(6000.0));
}

#[tokio::test]
async fn stopping_drops_streams_without_an_end_or_drains_them() {
    for (timeout, ends) in [(Duration::ZERO, false), (Duration::from_secs(20), true)] {
        let server = start(|options| {
            options.time_scale = 1.0;
            options.shutdown_timeout = timeout;
        })
        .await;
        let address = server.address();
        let body = with(chat("hi"), json!({"stream": true, "max_tokens": 100, "ignore_eos": true}));
        let mut connection = Connection::open(address).await.unwrap();
        let mut response =
            connection.send(request(Method::POST, "/v1/chat/completions", body.to_string())).await.unwrap();
        response.body_mut().frame().await.unwrap().unwrap();
        let stopping = tokio::spawn(server.stop());
        let rest = response.into_body().collect().await;
        let done = rest.is_ok_and(|rest| rest.to_bytes().ends_with(b"data: [DONE]\n\n"));
        assert_eq!(done, ends);
        stopping.await.unwrap();
        assert!(Connection::open(address).await.is_err(), "it no longer listens");
    }
}
