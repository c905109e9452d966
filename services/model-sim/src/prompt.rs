//! Prompts as token sequences: chat templates, lists, images; and the blocks they fill.

use engine::BlockHash;
use serde_json::Value;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use crate::{
    failure::Failure,
    text::{END_OF_TURN, VOCABULARY, token_id, tokenize_into},
};

/// The tokens a request asks about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Prompt {
    pub(crate) tokens: Vec<u32>,
    /// Keeps cache entries apart (`cache_salt`); enters the first block, and so every chain.
    pub(crate) salt: Option<String>,
}

/// Tokens an image or a sound takes; their contents stand for all of its data.
const MEDIUM_TOKENS: usize = 256;
/// Messages of a chat.
const MESSAGES_MAX: usize = 10_000;

impl Prompt {
    /// A chat: tools, then each message between role and end of turn, then the head of the answer.
    pub(crate) fn chat(messages: &[Value], tools: Option<&Value>) -> Result<Self, Failure> {
        if messages.is_empty() || messages.len() > MESSAGES_MAX {
            let text = format!("messages must have 1 to {MESSAGES_MAX} entries, got {}.", messages.len());
            return Err(Failure::invalid("messages", text));
        }
        let mut prompt = Self::default();
        if let Some(tools) = tools {
            prompt.turn("tools", |prompt| prompt.text(&tools.to_string()));
        }
        for message in messages {
            let Some(role) = message.get("role").and_then(Value::as_str) else {
                return Err(Failure::malformed("messages", "missing", "Field required: role"));
            };
            prompt.turn(role, |prompt| prompt.message(message));
        }
        prompt.answer_head();
        Ok(prompt)
    }

    /// One plain text.
    pub(crate) fn of_text(text: &str) -> Self {
        let mut prompt = Self::default();
        prompt.text(text);
        prompt
    }

    /// Adds plain text.
    pub(crate) fn text(&mut self, text: &str) {
        tokenize_into(&mut self.tokens, text);
    }

    /// Adds one turn.
    pub(crate) fn turn(&mut self, role: &str, write: impl FnOnce(&mut Self)) {
        self.head(role);
        write(self);
        self.special(END_OF_TURN);
    }

    /// Adds the head of the answer to come.
    pub(crate) fn answer_head(&mut self) {
        self.head("assistant");
    }

    fn head(&mut self, role: &str) {
        self.special("<|start|>");
        self.text(role);
        self.special("<|content|>");
    }

    /// Adds a message's content: a string, or parts of text and media; tool calls as their JSON.
    pub(crate) fn content(&mut self, content: &Value) {
        match content {
            Value::String(text) => self.text(text),
            Value::Array(parts) => parts.iter().for_each(|part| self.part(part)),
            Value::Null => {}
            Value::Bool(_) | Value::Number(_) | Value::Object(_) => self.text(&content.to_string()),
        }
    }

    fn message(&mut self, message: &Value) {
        self.content(&message["content"]);
        for calls in ["tool_calls", "tool_call_id"] {
            if let Some(calls) = message.get(calls).filter(|value| !value.is_null()) {
                self.text(&calls.to_string());
            }
        }
    }

    fn part(&mut self, part: &Value) {
        match part.get("text").and_then(Value::as_str) {
            Some(text) => self.text(text),
            None if part.is_string() => self.content(part),
            None => self.medium(&part.to_string()),
        }
    }

    /// Tokens that stand for data and depend on all of it.
    fn medium(&mut self, data: &str) {
        let seed = xxh3_64(data.as_bytes());
        let token = |index: usize| (xxh3_64_with_seed(&index.to_le_bytes(), seed) % u64::from(VOCABULARY)) as u32;
        self.tokens.extend((0..MEDIUM_TOKENS).map(token));
    }

    fn special(&mut self, name: &str) {
        self.tokens.push(token_id(name));
    }

    /// Hash of everything in it.
    pub(crate) fn hash(&self) -> u64 {
        xxh3_64_with_seed(&bytes(&self.tokens), self.salt_seed())
    }

    fn salt_seed(&self) -> u64 {
        self.salt.as_ref().map_or(0, |salt| xxh3_64(salt.as_bytes()))
    }

    /// Full blocks of this prompt followed by `answer`.
    pub(crate) fn blocks(&self, answer: impl Iterator<Item = u32>, block_tokens: usize) -> Vec<BlockHash> {
        let mut all = self.tokens.clone();
        all.extend(answer);
        let hash = |(index, block): (usize, &[u32])| {
            let seed = if index == 0 { self.salt_seed() } else { 0 };
            BlockHash(xxh3_64_with_seed(&bytes(block), seed))
        };
        all.chunks_exact(block_tokens).enumerate().map(hash).collect()
    }
}

fn bytes(tokens: &[u32]) -> Vec<u8> {
    tokens.iter().flat_map(|token| token.to_le_bytes()).collect()
}

/// The prompts of a member that may be a text, token ids, or a list of either.
pub(crate) fn prompts(name: &str, value: &Value) -> Result<Vec<Prompt>, Failure> {
    let wrong = || Failure::malformed(name, "type_error", "Input should be a string, token ids, or a list of either");
    let ids = |list: &[Value]| -> Option<Prompt> {
        let tokens: Option<Vec<u32>> =
            list.iter().map(|id| id.as_u64().and_then(|id| u32::try_from(id).ok())).collect();
        tokens.map(|tokens| Prompt { tokens, salt: None })
    };
    match value {
        Value::String(text) => Ok(vec![Prompt::of_text(text)]),
        Value::Array(list) if list.first().is_some_and(Value::is_number) => Ok(vec![ids(list).ok_or_else(wrong)?]),
        Value::Array(list) => {
            let one = |item: &Value| match item {
                Value::String(text) => Ok(Prompt::of_text(text)),
                Value::Array(inner) => ids(inner).ok_or_else(wrong),
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => Err(wrong()),
            };
            list.iter().map(one).collect()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => Err(wrong()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn chat(messages: Value) -> Prompt {
        Prompt::chat(messages.as_array().unwrap(), None).unwrap()
    }

    #[test]
    fn the_next_turn_begins_with_the_whole_last_one() {
        let first = chat(json!([{"role": "user", "content": "How are you?"}]));
        let next = chat(json!([
            {"role": "user", "content": "How are you?"},
            {"role": "assistant", "content": "the light is very good. now"},
            {"role": "user", "content": "And then?"},
        ]));
        let mut sequence = first.tokens;
        tokenize_into(&mut sequence, "the light is very good. now");
        sequence.push(token_id(END_OF_TURN));
        assert_eq!(next.tokens[..sequence.len()], sequence);
    }

    #[test]
    fn texts_and_parts_are_alike_and_images_differ_by_their_data() {
        let text = chat(json!([{"role": "user", "content": "look"}]));
        let parts = chat(json!([{"role": "user", "content": [{"type": "text", "text": "look"}]}]));
        assert_eq!(text, parts);
        let image =
            |url: &str| chat(json!([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}]));
        assert_ne!(image("data:a").tokens, image("data:b").tokens);
        assert_eq!(image("data:a").tokens.len(), image("data:b").tokens.len());
    }

    #[test]
    fn prompts_come_as_texts_and_ids() {
        let count = |value: Value| prompts("prompt", &value).map(|p| p.len());
        assert_eq!(count(json!("a")).unwrap(), 1);
        assert_eq!(count(json!(["a", "b"])).unwrap(), 2);
        assert_eq!(count(json!([1, 2, 3])).unwrap(), 1);
        assert_eq!(count(json!([[1, 2], [3]])).unwrap(), 2);
        for bad in [json!(1), json!([true]), json!([1, "a"]), json!([[1.5]])] {
            assert!(count(bad).is_err());
        }
    }

    #[test]
    fn a_salt_changes_the_first_block_only() {
        let plain = Prompt { tokens: (0..40).collect(), salt: None };
        let salted = Prompt { salt: Some("mine".to_owned()), ..plain.clone() };
        let (a, b) = (plain.blocks(std::iter::empty(), 16), salted.blocks(std::iter::empty(), 16));
        assert_eq!((a.len(), b.len()), (2, 2));
        assert!(a[0] != b[0] && a[1] == b[1]);
        assert_eq!(plain.blocks(40..48, 16).len(), 3);
    }
}
