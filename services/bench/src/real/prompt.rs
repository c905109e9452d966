//! The text of a drawn call: words of one token each, so that prompts agree in exactly the blocks in which the draft says
//! that they do, as long as each word is one token, as it is to `model-sim` and nearly so to real tokenisers.

use fastrand::Rng;

use crate::world::call::{Call, ENGINE_BLOCK_TOKENS, mix};

/// Letters of a word; with the space before it four bytes, as English has for each token.
const LETTERS: usize = 3;
/// What a chat template adds: role, turn, and the head of the answer.
const TEMPLATE_TOKENS: u32 = 9;

/// How an answer's length comes about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ends {
    /// Where the workload says: the engine is told to go on (`ignore_eos`, of vLLM and SGLang)
    #[default]
    Asked,
    /// Where the model ends, the workload's length at most
    Natural,
}

/// The body of the `number`th call. Another `salt` is another text with the same structure, unknown to every cache.
pub fn body(call: &Call, number: usize, model: &str, salt: u64, ends: Ends) -> String {
    let ends = match ends {
        Ends::Asked => r#""ignore_eos":true,"#,
        Ends::Natural => "",
    };
    let model = serde_json::Value::from(model);
    format!(
        r#"{{"model":{model},"stream":true,"stream_options":{{"include_usage":true}},"max_tokens":{},{ends}"messages":[{{"role":"user","content":"{}"}}]}}"#,
        call.draft.output_tokens,
        text(call, number, salt),
    )
}

fn text(call: &Call, number: usize, salt: u64) -> String {
    let draft = &call.draft;
    let tokens = draft.prompt_tokens.saturating_sub(TEMPLATE_TOKENS).max(1);
    let whole = (tokens / ENGINE_BLOCK_TOKENS) as usize;
    let mut text = String::with_capacity(tokens as usize * (LETTERS + 1));
    let known = &draft.blocks[..draft.blocks.len().min(whole)];
    for block in known {
        words(&mut text, ENGINE_BLOCK_TOKENS, mix(salt, block.0));
    }
    let rest = tokens - known.len() as u32 * ENGINE_BLOCK_TOKENS;
    words(&mut text, rest, mix(mix(salt, u64::from(draft.output_tokens)), number as u64));
    text
}

fn words(text: &mut String, count: u32, seed: u64) {
    let mut rng = Rng::with_seed(seed);
    for _ in 0..count {
        text.push(' ');
        text.extend((0..LETTERS).map(|_| rng.lowercase()));
    }
}

#[cfg(test)]
mod tests {
    use engine::BlockHash;
    use pool::Moment;

    use super::*;
    use crate::world::call::{Answers, Draft};

    fn call(prompt_tokens: u32, blocks: &[u64]) -> Call {
        let blocks = blocks.iter().map(|block| BlockHash(*block)).collect();
        let draft = Draft { prompt_tokens, output_tokens: 7, prefix: Vec::new(), blocks, adapter: None };
        Call {
            at: Moment::ORIGIN,
            class: 0,
            flow: 0,
            priority: 0,
            draft,
            deadline: None,
            leaves: None,
            answers: Answers::Streamed,
            only: None,
        }
    }

    #[test]
    fn prompts_agree_where_their_blocks_do() {
        let one = text(&call(100, &[1, 2, 3]), 1, 0);
        let other = text(&call(200, &[1, 2, 9]), 2, 0);
        let alike = one.bytes().zip(other.bytes()).take_while(|(a, b)| a == b).count();
        assert!((2 * 16 * 4..2 * 16 * 4 + 4).contains(&alike), "{alike} bytes");
        assert_eq!(one.split_whitespace().count() as u32, 100 - TEMPLATE_TOKENS);
        assert_eq!(one, text(&call(100, &[1, 2, 3]), 1, 0));
        assert_ne!(one[..64], text(&call(100, &[1, 2, 3]), 1, 5)[..64], "a salt changes every block");
    }

    #[test]
    fn blocks_of_an_answer_are_not_in_the_prompt() {
        assert_eq!(text(&call(41, &[1, 2, 3, 4]), 1, 0).split_whitespace().count(), 32);
        assert_eq!(text(&call(1, &[]), 1, 0).split_whitespace().count(), 1);
    }

    #[test]
    fn a_body_asks_for_what_was_drawn() {
        let body: serde_json::Value =
            serde_json::from_str(&body(&call(100, &[]), 0, "a \"b\"", 0, Ends::Asked)).unwrap();
        assert_eq!(body["model"], "a \"b\"");
        assert_eq!((body["max_tokens"].as_u64(), body["ignore_eos"].as_bool()), (Some(7), Some(true)));
    }
}
