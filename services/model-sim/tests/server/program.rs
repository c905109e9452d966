//! The program: one line on stdout, and an orderly end.

use std::{
    io::{BufRead, BufReader, Read},
    net::SocketAddr,
    process::{Command, Stdio},
};

use serde_json::Value;

use crate::client::{get, post};

#[tokio::test]
async fn it_says_where_it_listens_and_ends_on_sigterm() {
    let mut program = Command::new(env!("CARGO_BIN_EXE_model-sim"))
        .args(["--engine", "vllm", "--model", "m", "--lora", "a", "--lora", "b=/b", "--admin", "127.0.0.1:0"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdout = BufReader::new(program.stdout.take().unwrap());
    let mut line = String::new();
    stdout.read_line(&mut line).unwrap();
    let said: Value = serde_json::from_str(&line).unwrap();
    let address: SocketAddr = said["listen"].as_str().unwrap().parse().unwrap();
    assert_eq!(get(address, "/v1/models").await.json()["data"][2]["id"], "b");
    assert!(said["admin"].as_str().unwrap().parse::<SocketAddr>().is_ok());
    let killed = Command::new("kill").args(["-TERM", &program.id().to_string()]).status().unwrap();
    assert!(killed.success());
    assert!(program.wait().unwrap().success());
    let mut rest = String::new();
    stdout.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "");
}

#[tokio::test]
async fn it_runs_sped_up_and_says_where_kv_events_are() {
    let config = r#"{"enable_kv_cache_events": true, "endpoint": "tcp://127.0.0.1:0", "replay_endpoint": null}"#;
    let mut program = Command::new(env!("CARGO_BIN_EXE_model-sim"))
        .args(["--profile", "qwen3-32b-4xa10g", "--model", "m", "--speed", "200", "--data-parallel-size", "2"])
        .args(["--kv-events-config", config])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(program.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let said: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(said["kv_events"].as_array().unwrap().len(), 2);
    assert!(said["kv_events"][1]["endpoint"].as_str().unwrap().starts_with("tcp://127.0.0.1:"));
    let began = std::time::Instant::now();
    let body = serde_json::json!({"model": "m", "prompt": "a", "max_tokens": 1000, "ignore_eos": true});
    let answer = post(said["listen"].as_str().unwrap().parse().unwrap(), "/v1/completions", &body).await;
    assert_eq!(answer.json()["usage"]["completion_tokens"], 1000);
    // A thousand steps of 40 ms each take 40 s in real time.
    assert!(began.elapsed() < std::time::Duration::from_secs(15), "{:?}", began.elapsed());
    program.kill().unwrap();
    program.wait().unwrap();
}

#[test]
fn it_explains_a_wrong_profile() {
    let output = Command::new(env!("CARGO_BIN_EXE_model-sim")).args(["--profile", "gpt-9"]).output().unwrap();
    assert!(!output.status.success() && output.stdout.is_empty());
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("gpt-9") && said.contains("llama-3.1-8b-h100"), "{said}");
}
