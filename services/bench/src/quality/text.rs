//! Prompts as what they are made of: pieces of text, of which some are shared with other prompts.
//!
//! A block's hash is that of the pieces it covers, so two prompts share exactly the leading blocks in which they agree,
//! as the gateway sees them (64 tokens, chained) and as an engine does (16 tokens).

use engine::BlockHash;

use crate::world::call::{Draft, ENGINE_BLOCK_TOKENS, mix};

/// A piece of text: the same number is the same text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    pub text: u64,
    pub tokens: u32,
}

/// A request with this prompt. Of the prompt and the answer, `shared_tokens` may be met again in other prompts: an engine
/// is told what they contain.
pub fn draft(prompt: &[Piece], answer: Piece, shared_tokens: u32, adapter: Option<u32>) -> Draft {
    let prompt_tokens = prompt.iter().map(|piece| piece.tokens).sum::<u32>().max(1);
    let mut chain = adapter.map_or(0, |adapter| u64::from(adapter) + 1);
    let prefix = blocks(prompt.iter().copied(), dispatch::BLOCK_TOKENS, prompt_tokens).map(|content| {
        chain = mix(chain, content);
        chain
    });
    let known = shared_tokens.min(prompt_tokens + answer.tokens);
    let whole = prompt.iter().copied().chain([answer]);
    Draft {
        prompt_tokens,
        output_tokens: answer.tokens.max(1),
        prefix: prefix.collect(),
        blocks: blocks(whole, ENGINE_BLOCK_TOKENS, known).map(BlockHash).collect(),
        adapter,
    }
}

/// Hashes of the full blocks of the first so many tokens, by what they contain.
fn blocks(pieces: impl Iterator<Item = Piece>, block_tokens: u32, tokens: u32) -> impl Iterator<Item = u64> {
    let mut pieces = pieces;
    // The piece that the next block begins in, and how much of it is behind.
    let (mut piece, mut behind) = (pieces.next(), 0);
    (0..tokens / block_tokens).map(move |_| {
        let (mut left, mut hash) = (block_tokens, 0);
        while let Some(Piece { text, tokens }) = piece.filter(|_| left > 0) {
            let taken = left.min(tokens - behind);
            if taken > 0 {
                hash = mix(hash, mix(text, u64::from(behind) << 32 | u64::from(block_tokens - left)));
            }
            (left, behind) = (left - taken, behind + taken);
            if behind == tokens {
                (piece, behind) = (pieces.next(), 0);
            }
        }
        hash
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prompts_share_the_blocks_in_which_they_agree() {
        let system = Piece { text: 1, tokens: 200 };
        let answer = |text| Piece { text, tokens: 50 };
        let one = draft(&[system, Piece { text: 2, tokens: 300 }], answer(3), 200, None);
        let other = draft(&[system, Piece { text: 4, tokens: 900 }], answer(5), 200, None);
        let alike = |a: &[u64], b: &[u64]| a.iter().zip(b).take_while(|(a, b)| a == b).count();
        assert_eq!((one.prefix.len(), alike(&one.prefix, &other.prefix)), (7, 3));
        assert_eq!((one.blocks.len(), one.blocks == other.blocks), (12, true));
    }

    #[test]
    fn the_next_turn_begins_with_the_one_before_and_its_answer() {
        let (question, answer) = (Piece { text: 1, tokens: 100 }, Piece { text: 2, tokens: 92 });
        let first = draft(&[question], answer, u32::MAX, None);
        let next =
            draft(&[question, answer, Piece { text: 3, tokens: 64 }], Piece { text: 4, tokens: 10 }, u32::MAX, None);
        assert_eq!(first.blocks.len(), 12);
        assert_eq!(first.blocks, next.blocks[..12]);
        assert_eq!(first.prefix, next.prefix[..1]);
    }

    #[test]
    fn another_adapter_is_another_prefix() {
        let prompt = [Piece { text: 1, tokens: 640 }];
        let with = |adapter| draft(&prompt, Piece { text: 2, tokens: 1 }, 640, adapter).prefix;
        assert_ne!(with(None)[0], with(Some(0))[0]);
        assert_ne!(with(Some(1))[9], with(Some(0))[9]);
    }
}
