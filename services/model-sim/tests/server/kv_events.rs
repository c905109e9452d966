//! KV events: what a subscriber is told, and how it gets what it missed. Read with the ZMQ crate's own sockets.

use std::collections::HashSet;

use bytes::Bytes;
use model_sim::{Face, KvEvents, Options, Running, StartError};
use serde_json::json;
use zeromq::{DealerSocket, Socket, SocketRecv, SocketSend, SubSocket, ZmqMessage};

use crate::client::{PATIENCE, eventually, get, post, start};

const TOPIC: &str = "kv@127.0.0.1@llama";

fn publishing(options: &mut Options) {
    options.kv_events = Some(KvEvents {
        enable_kv_cache_events: true,
        endpoint: "tcp://127.0.0.1:0".to_owned(),
        replay_endpoint: Some("tcp://127.0.0.1:0".to_owned()),
        topic: TOPIC.to_owned(),
        ..KvEvents::default()
    });
}

async fn generate(server: &Running, prompt: &str) {
    let body = json!({"model": "llama", "prompt": prompt, "max_tokens": 20, "ignore_eos": true});
    assert_eq!(post(server.address(), "/v1/completions", &body).await.status, 200);
}

fn long_prompt(name: &str) -> String {
    format!("{name} {}", "counts the boats on the river and ".repeat(12))
}

async fn receive(socket: &mut impl SocketRecv) -> ZmqMessage {
    tokio::time::timeout(PATIENCE, socket.recv()).await.expect("a message comes in time").unwrap()
}

fn number(frame: &Bytes) -> u64 {
    u64::from_be_bytes(frame.as_ref().try_into().expect("eight bytes"))
}

/// All batches from `from` on, as the replay address has them: topic, number, payload.
async fn replayed(endpoint: &str, from: u64) -> Vec<(Bytes, u64, Bytes)> {
    let mut dealer = DealerSocket::new();
    dealer.connect(endpoint).await.unwrap();
    let question = vec![Bytes::new(), Bytes::copy_from_slice(&from.to_be_bytes())];
    dealer.send(ZmqMessage::try_from(question).unwrap()).await.unwrap();
    let mut all = Vec::new();
    loop {
        let frames = receive(&mut dealer).await.into_vec();
        let [empty, topic, number_frame, payload] = frames.as_slice() else { panic!("{frames:?}") };
        assert!(empty.is_empty());
        if number(number_frame) == u64::MAX {
            assert!(topic.is_empty() && payload.is_empty());
            return all;
        }
        all.push((topic.clone(), number(number_frame), payload.clone()));
    }
}

#[tokio::test]
async fn a_subscriber_is_told_and_can_ask_again() {
    let server = start(publishing).await;
    let source = server.kv_event_sources()[0].clone();
    let mut subscriber = SubSocket::new();
    subscriber.connect(&source.endpoint).await.unwrap();
    subscriber.subscribe("kv@").await.unwrap();
    // A subscription takes effect when the publisher has seen it: what comes before is for the replay.
    let mut sent = 0;
    let first = loop {
        generate(&server, &long_prompt(&format!("Number {sent}"))).await;
        sent += 1;
        assert!(sent < 500, "no message comes");
        if let Ok(message) = tokio::time::timeout(std::time::Duration::from_millis(50), subscriber.recv()).await {
            break message.unwrap().into_vec();
        }
    };
    let [topic, number_frame, payload] = first.as_slice() else { panic!("{first:?}") };
    assert_eq!(topic.as_ref(), TOPIC.as_bytes());
    let all = replayed(source.replay_endpoint.as_deref().unwrap(), 0).await;
    let numbers: Vec<u64> = all.iter().map(|(_, number, _)| *number).collect();
    assert_eq!(numbers, (0..numbers.len() as u64).collect::<Vec<_>>(), "none is missing");
    let again = &all[number(number_frame) as usize];
    assert_eq!((&again.0, &again.2), (topic, payload), "the same batch, told twice");
    let later = replayed(source.replay_endpoint.as_deref().unwrap(), numbers.len() as u64 - 1).await;
    assert_eq!(later.len(), 1);
}

#[tokio::test]
async fn a_repeated_prompt_says_nothing_new() {
    let server = start(publishing).await;
    let replay = server.kv_event_sources()[0].replay_endpoint.clone().unwrap();
    generate(&server, &long_prompt("Ann")).await;
    let before = replayed(&replay, 0).await;
    assert!(!before.is_empty());
    generate(&server, &long_prompt("Ann")).await;
    // Its last prompt block and its answer are those of the first, too: computed again, as every last token is.
    let after = replayed(&replay, 0).await;
    generate(&server, &long_prompt("Bob")).await;
    let other = replayed(&replay, 0).await;
    let bytes = |batches: &[(Bytes, u64, Bytes)]| batches.iter().map(|(_, _, payload)| payload.len()).sum::<usize>();
    let (repeated, new) = (bytes(&after) - bytes(&before), bytes(&other) - bytes(&after));
    assert!(repeated * 2 < new, "{repeated} bytes for a repetition, {new} for another prompt");
}

#[tokio::test]
async fn a_full_queue_loses_batches_that_the_replay_still_has() {
    let server = start(|options| {
        publishing(options);
        options.kv_events.as_mut().unwrap().max_queue_size = 1;
        // Many steps fall due at once: their batches come faster than the sending task gets its turn.
        options.time_scale = 0.0005;
    })
    .await;
    let source = server.kv_event_sources()[0].clone();
    let mut subscriber = SubSocket::new();
    subscriber.connect(&source.endpoint).await.unwrap();
    subscriber.subscribe("").await.unwrap();
    let mut heard = Vec::new();
    for name in 0..500 {
        let body =
            json!({"model": "llama", "prompt": long_prompt(&name.to_string()), "max_tokens": 800, "ignore_eos": true});
        assert_eq!(post(server.address(), "/v1/completions", &body).await.status, 200);
        while let Ok(message) = tokio::time::timeout(std::time::Duration::from_millis(50), subscriber.recv()).await {
            heard.push(number(message.unwrap().get(1).unwrap()));
        }
        if heard.len() > 1 {
            break;
        }
    }
    assert!(heard.windows(2).any(|pair| pair[1] > pair[0] + 1), "a gap tells of the loss: {heard:?}");
    let all = replayed(source.replay_endpoint.as_deref().unwrap(), heard[0]).await;
    let numbers: Vec<u64> = all.iter().map(|(_, number, _)| *number).collect();
    assert!(numbers.windows(2).all(|pair| pair[1] == pair[0] + 1), "{numbers:?}");
    assert!(heard.iter().all(|number| numbers.contains(number)) && numbers.len() > heard.len());
}

#[tokio::test]
async fn each_rank_has_its_own_publisher_and_numbers() {
    let server = start(|options| {
        publishing(options);
        options.ranks = 3;
    })
    .await;
    let ports: HashSet<&String> = server.kv_event_sources().iter().map(|source| &source.endpoint).collect();
    assert_eq!(ports.len(), 3);
    for name in ["Ann", "Bob", "Cy", "Dan", "Eve", "Fay"] {
        generate(&server, &long_prompt(name)).await;
    }
    for (rank, source) in server.kv_event_sources().iter().enumerate() {
        let batches = replayed(source.replay_endpoint.as_deref().unwrap(), 0).await;
        assert_eq!(batches[0].1, 0, "rank {rank} begins at 0");
        assert!(batches.iter().all(|(_, _, payload)| payload.last() == Some(&(rank as u8))));
    }
    let shown = get(server.address(), "/kv_event_sources").await.json();
    assert_eq!(shown["2"]["endpoint"], server.kv_event_sources()[2].endpoint);
    assert_eq!(shown["2"]["topic"], TOPIC);
}

#[tokio::test]
async fn a_publisher_connects_to_a_subscriber_that_waits() {
    let mut subscriber = SubSocket::new();
    let bound = subscriber.bind("tcp://127.0.0.1:0").await.unwrap().to_string();
    subscriber.subscribe("").await.unwrap();
    let server = start(|options| {
        publishing(options);
        options.kv_events.as_mut().unwrap().endpoint = bound.clone();
    })
    .await;
    let mut sent = 0;
    let heard = eventually(
        async || {
            sent += 1;
            generate(&server, &long_prompt(&format!("Number {sent}"))).await;
            tokio::time::timeout(std::time::Duration::from_millis(50), subscriber.recv()).await.ok()
        },
        Option::is_some,
    )
    .await;
    assert_eq!(heard.unwrap().unwrap().len(), 3);
}

#[tokio::test]
async fn other_engines_publish_nothing() {
    let profile = engine::Profile::named("llama-3.1-8b-h100").unwrap();
    let mut options = Options::new(Face::Sglang, profile, "llama");
    publishing(&mut options);
    assert!(matches!(model_sim::start(options).await, Err(StartError::KvEvents(_))));
}
