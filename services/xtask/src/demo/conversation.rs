//! The chats of the demo, and what is printed about each.
//!
//! Each exchange shows one thing: a shared prefix stays where its cache is, an adapter is resolved, a stream passes
//! unbuffered, an unknown model is refused with advice and touches no endpoint.

use std::io::Write;

use anyhow::Context;
use serde_json::{Value, json};

use super::interrupt::Interrupt;
use super::site::{ADAPTERS, Gateway, MODEL};
use crate::http::{self, Answer};

const PATH: &str = "/v1/chat/completions";
/// Long enough for a sentence, short enough for a slow pod.
const ANSWER_TOKENS: u32 = 24;
/// About 1,200 tokens of shared instructions, far more than the gateway needs to see a common prefix.
const RULES: u32 = 80;
const SHOWN_CHARS: usize = 90;

/// What is asked, and what it shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Topic {
    FirstOfPrefix,
    SecondOfPrefix,
    Adapter,
    Stream,
    UnknownModel,
}

impl Topic {
    pub(crate) const ALL: [Self; 5] =
        [Self::FirstOfPrefix, Self::SecondOfPrefix, Self::Adapter, Self::Stream, Self::UnknownModel];

    /// For people.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::FirstOfPrefix => "a question behind long instructions",
            Self::SecondOfPrefix => "another question behind the same instructions",
            Self::Adapter => "a question to a LoRA adapter",
            Self::Stream => "a streamed answer",
            Self::UnknownModel => "a model that nobody serves",
        }
    }

    fn body(self) -> Value {
        let (system, question, model) = match self {
            Self::FirstOfPrefix => (instructions(), "How do I return a parcel?", MODEL),
            Self::SecondOfPrefix => (instructions(), "Do you ship to Norway?", MODEL),
            Self::Adapter => ("You write SQL.".to_owned(), "Orders of last week, by country.", ADAPTERS[0]),
            Self::Stream => ("You tell stories.".to_owned(), "One about a lighthouse.", MODEL),
            Self::UnknownModel => (String::new(), "Is anybody there?", "gpt-unknown"),
        };
        let messages = json!([{"role": "system", "content": system}, {"role": "user", "content": question}]);
        let mut body = json!({"model": model, "messages": messages, "max_tokens": ANSWER_TOKENS});
        if self == Self::Stream {
            body["stream"] = json!(true);
            body["stream_options"] = json!({"include_usage": true});
        }
        body
    }
}

/// A question, its answer, and the gateway's reasons.
#[derive(Debug)]
pub(crate) struct Exchange {
    pub topic: Topic,
    pub answer: Answer,
    /// Of `/api/v1/decisions/{x-request-id}`; `None` when no endpoint was picked.
    pub decision: Option<Value>,
}

impl Exchange {
    /// The endpoint that answered; while the gateway has not settled that, the one it chose.
    pub(crate) fn endpoint(&self) -> Option<&str> {
        let decision = self.decision.as_ref()?;
        decision["endpoint"].as_str().or(decision["picked"][0].as_str())
    }
}

/// Asks everything in order and prints it.
pub(crate) fn hold(gateway: &Gateway, interrupt: &Interrupt) -> anyhow::Result<Vec<Exchange>> {
    let mut exchanges = Vec::new();
    for (index, topic) in Topic::ALL.into_iter().enumerate() {
        interrupt.check()?;
        println!("\n{}. {}", index + 1, topic.title());
        let exchange = ask(gateway, topic).with_context(|| format!("exchange {}: {}", index + 1, topic.title()))?;
        println!("{}", told(&exchange));
        exchanges.push(exchange);
    }
    Ok(exchanges)
}

fn ask(gateway: &Gateway, topic: Topic) -> anyhow::Result<Exchange> {
    let mut show = |piece: &[u8]| {
        if topic == Topic::Stream {
            print!("{}", deltas(&String::from_utf8_lossy(piece)));
            // What cannot be shown now is shown with the next line.
            let _ = std::io::stdout().flush();
        }
    };
    if topic == Topic::Stream {
        print!("   ");
    }
    let answer = http::post(gateway.data, PATH, &topic.body(), &mut show)?;
    let id = answer.header("x-request-id").context("the answer has no x-request-id")?;
    let found = http::get(gateway.admin, &format!("/api/v1/decisions/{id}"))?;
    let decision = if found.status == 200 { Some(found.json()?) } else { None };
    Ok(Exchange { topic, answer, decision })
}

/// What is printed below an exchange's title.
fn told(exchange: &Exchange) -> String {
    let said = match exchange.topic {
        // Shown while it came.
        Topic::Stream => "\n".to_owned(),
        Topic::FirstOfPrefix | Topic::SecondOfPrefix | Topic::Adapter | Topic::UnknownModel => {
            format!("   {}\n", shortened(&words(&exchange.answer)))
        }
    };
    let status = exchange.answer.status;
    match &exchange.decision {
        None => format!("{said}   status {status}, no endpoint was touched"),
        Some(decision) => {
            let endpoint = exchange.endpoint().unwrap_or("nobody");
            let reason = decision["explanation"].as_str().or(decision["reason"].as_str()).unwrap_or("no reason given");
            format!("{said}   status {status}, served by {endpoint}: {reason}\n{}", scores(decision))
        }
    }
}

/// The answer's text, or its error's message.
fn words(answer: &Answer) -> String {
    let Ok(body) = answer.json() else { return answer.text() };
    let text = body["choices"][0]["message"]["content"].as_str().or(body["error"]["message"].as_str());
    text.map_or_else(|| answer.text(), str::to_owned)
}

fn shortened(text: &str) -> String {
    let mut chars = text.chars();
    let start: String = chars.by_ref().take(SHOWN_CHARS).collect();
    if chars.next().is_some() { format!("{start}…") } else { start }
}

/// One line per candidate: its total, then the scorers that count.
fn scores(decision: &Value) -> String {
    let candidates = decision["candidates"].as_array().map(Vec::as_slice).unwrap_or_default();
    let lines = candidates.iter().map(|candidate| {
        let name = candidate["endpoint"].as_str().unwrap_or("?");
        if let Some(rejected) = candidate["rejected"].as_str() {
            return format!("     {name:<7} left out: {rejected}");
        }
        let counting = candidate["scores"].as_object().into_iter().flatten().filter(|(_, score)| score["weight"] != 0);
        let parts = counting.map(|(scorer, score)| {
            format!("{scorer} {:.2}×{}", score["score"].as_f64().unwrap_or_default(), score["weight"])
        });
        let total = candidate["total"].as_f64().unwrap_or_default();
        format!("     {name:<7} {total:>6.3} = {}", parts.collect::<Vec<_>>().join(" + "))
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// The text that the events in `piece` add. An event cut in two by the transport is not shown: this is for the eye.
fn deltas(piece: &str) -> String {
    let events = piece.lines().filter_map(|line| line.strip_prefix("data: "));
    let parsed = events.filter_map(|event| serde_json::from_str::<Value>(event).ok());
    parsed.filter_map(|event| event["choices"][0]["delta"]["content"].as_str().map(str::to_owned)).collect()
}

/// What every request of this made-up shop begins with.
fn instructions() -> String {
    let subjects = ["parcels", "refunds", "sizes", "vouchers"];
    let rules = (1..=RULES).zip(subjects.into_iter().cycle()).map(|(number, subject)| {
        format!("Rule {number}: when a customer asks about {subject}, answer in two friendly sentences.\n")
    });
    rules.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_share_their_prefix() {
        let (first, second) = (Topic::FirstOfPrefix.body().to_string(), Topic::SecondOfPrefix.body().to_string());
        let common = first.bytes().zip(second.bytes()).take_while(|(a, b)| a == b).count();
        assert!(common > 4_000, "{common} bytes");
        assert_ne!(first, second);
    }

    #[test]
    fn only_the_streamed_question_streams() {
        for topic in Topic::ALL {
            assert_eq!(topic.body()["stream"].as_bool(), (topic == Topic::Stream).then_some(true));
        }
    }

    #[test]
    fn streamed_text_is_joined() {
        let piece =
            "data: {\"choices\":[{\"delta\":{\"content\":\"a \"}}]}\n\ndata: {\"choices\":[]}\n\ndata: [DONE]\n\n";
        assert_eq!(deltas(piece), "a ");
    }

    #[test]
    fn scores_are_told_in_one_line_each() {
        let decision = json!({"candidates": [
            {"endpoint": "a", "total": 4.5, "rejected": null, "scores": {
                "lru": {"raw": 0, "score": 1.0, "weight": 0}, "queue": {"raw": 0, "score": 1.0, "weight": 2}}},
            {"endpoint": "b", "total": 0.0, "scores": {}, "rejected": "stale"},
        ]});
        assert_eq!(scores(&decision), "     a        4.500 = queue 1.00×2\n     b       left out: stale");
    }

    #[test]
    fn long_answers_are_cut_between_characters() {
        assert_eq!(shortened("é".repeat(91).as_str()), format!("{}…", "é".repeat(90)));
        assert_eq!(shortened("short"), "short");
    }
}
