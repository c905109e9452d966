use super::*;
use crate::bodies::{Kind, Requests};
use crate::load::Connection;

fn backend() -> Backend {
    Backend::start(2).unwrap()
}

#[tokio::test]
async fn a_chat_is_answered_whole_and_the_connection_kept() {
    let backend = backend();
    let mut connection = Connection::open(&backend.addresses[1].into()).await.unwrap();
    for number in 0..3 {
        let mut body = Vec::new();
        let request = Requests::new(4_000, Kind::Whole, 1).get(number).clone();
        let status = connection.exchange(&request, &mut |piece| body.extend_from_slice(piece)).await.unwrap();
        let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert_eq!((status, body["usage"]["completion_tokens"].as_u64()), (200, Some(60)));
    }
}

#[tokio::test]
async fn a_stream_has_its_chunks_its_usage_and_its_end() {
    let backend = backend();
    backend.answer(Answering::Streamed(Stream { chunks: 5, gap: Duration::from_millis(1) }));
    let mut connection = Connection::open(&backend.addresses[0].into()).await.unwrap();
    let mut body = Vec::new();
    let request = Requests::new(1_000, Kind::Streamed, 1).get(0).clone();
    connection.exchange(&request, &mut |piece| body.extend_from_slice(piece)).await.unwrap();
    let text = String::from_utf8(body).unwrap();
    let events: Vec<&str> = text.split_terminator("\n\n").collect();
    assert_eq!(events.len(), 5 + 3);
    assert_eq!(events[7], "data: [DONE]");
    for event in &events[..7] {
        serde_json::from_str::<serde_json::Value>(event.strip_prefix("data: ").unwrap()).unwrap();
    }
    assert!((170..230).contains(&events[0].len()), "{} bytes", events[0].len());
}

#[tokio::test]
async fn the_metrics_page_is_a_real_one() {
    let backend = backend();
    let mut connection = Connection::open(&backend.addresses[0].into()).await.unwrap();
    let mut page = Vec::new();
    let request = Bytes::from_static(b"GET /metrics HTTP/1.1\r\nhost: a\r\n\r\n");
    connection.exchange(&request, &mut |piece| page.extend_from_slice(piece)).await.unwrap();
    let page = String::from_utf8(page).unwrap();
    assert_eq!(page.len(), 52_834);
    assert!(page.contains("\nvllm:num_requests_waiting{"));
}

#[tokio::test]
async fn a_dropped_backend_answers_no_more() {
    let backend = backend();
    let address = backend.addresses[0];
    drop(backend);
    let refused = async {
        while TcpStream::connect(address).await.is_ok() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), refused).await.unwrap();
}

#[tokio::test]
async fn the_held_are_answered_when_they_are_let_go() {
    let backend = backend();
    backend.answer(Answering::Held);
    let request = Requests::new(1_000, Kind::Whole, 1).get(0).clone();
    let mut connection = Connection::open(&backend.addresses[0].into()).await.unwrap();
    let waits = tokio::spawn(async move { connection.exchange(&request, &mut |_| {}).await });
    while backend.held() == 0 {
        tokio::task::yield_now().await;
    }
    assert!(!waits.is_finished());
    backend.answer(Answering::Whole);
    assert_eq!(waits.await.unwrap().unwrap(), 200);
    assert_eq!(backend.held(), 0);
}
