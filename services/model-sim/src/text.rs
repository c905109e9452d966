//! Texts and tokens: a small reversible-enough tokeniser, and answers made of words.
//!
//! A token is a piece of text: up to six letters with the space before them, up to three digits, a run of the same other
//! byte, one character of another script. That is about four bytes of English, as with real vocabularies, and it depends
//! only on the text around: an answer sent back in the next turn gives the tokens it was generated as, so its blocks are
//! found in the prefix cache. Ids are hashes of pieces within a vocabulary of Llama 3's size.

use xxhash_rust::xxh3::xxh3_64;

mod plan;
mod vocabulary;
mod words;

pub(crate) use plan::{END_OF_TURN, Ending, Plan, PlanRequest, plan};
pub(crate) use vocabulary::Vocabulary;
use words::WORDS;

/// Size of the vocabulary, Llama 3's.
pub(crate) const VOCABULARY: u32 = 128_256;
/// Letters in one token.
const LETTERS_MAX: usize = 6;
/// Digits in one token.
const DIGITS_MAX: usize = 3;
/// Equal other bytes (spaces, dashes) in one token.
const RUN_MAX: usize = 8;

/// Id of a piece of text.
pub(crate) fn token_id(piece: &str) -> u32 {
    (xxh3_64(piece.as_bytes()) % u64::from(VOCABULARY)) as u32
}

/// Pieces of a text, in order; together they are the text.
pub(crate) fn pieces(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let (piece, after) = rest.split_at(piece_length(rest));
        rest = after;
        Some(piece)
    })
}

/// Appends the token ids of a text.
pub(crate) fn tokenize_into(tokens: &mut Vec<u32>, text: &str) {
    tokens.extend(pieces(text).map(token_id));
}

/// Bytes of the first piece of a text that is not empty.
fn piece_length(text: &str) -> usize {
    let bytes = text.as_bytes();
    let space = usize::from(bytes[0] == b' ' && bytes.get(1).is_some_and(u8::is_ascii_alphabetic));
    let letters = run(&bytes[space..], LETTERS_MAX, |b| b.is_ascii_alphabetic());
    if letters > 0 {
        return space + letters;
    }
    let digits = run(bytes, DIGITS_MAX, |b| b.is_ascii_digit());
    if digits > 0 {
        return digits;
    }
    if !bytes[0].is_ascii() {
        return text.chars().next().map_or(1, char::len_utf8);
    }
    let same = run(bytes, RUN_MAX, |b| b == bytes[0]);
    // The space before a word belongs to the word.
    let before_word = bytes[0] == b' ' && same > 1 && bytes.get(same).is_some_and(u8::is_ascii_alphabetic);
    same - usize::from(before_word)
}

fn run(bytes: &[u8], max: usize, belongs: impl Fn(u8) -> bool) -> usize {
    bytes.iter().take(max).take_while(|b| belongs(**b)).count()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn english_has_about_four_bytes_per_token() {
        let text = "The gateway sends each request to the endpoint that will answer it first, because the prompt's \
                    beginning is already in its cache or because nobody else is waiting there at the moment.";
        let bytes_per_token = text.len() as f64 / pieces(text).count() as f64;
        assert!((3.5..5.5).contains(&bytes_per_token), "{bytes_per_token}");
    }

    #[test]
    fn every_word_is_one_token_with_and_without_its_space() {
        assert!(WORDS.len() >= 128);
        for word in WORDS {
            assert_eq!(pieces(word).collect::<Vec<_>>(), [*word]);
            assert_eq!(pieces(&word[1..]).collect::<Vec<_>>(), [&word[1..]]);
        }
    }

    proptest! {
        #[test]
        fn pieces_are_the_text(text in any::<String>()) {
            prop_assert_eq!(pieces(&text).collect::<String>(), text.as_str());
            prop_assert!(pieces(&text).all(|p| !p.is_empty()));
        }

        #[test]
        fn ascii_pieces_are_the_text(text in "[ a-zA-Z0-9\n.,{}\"]{0,200}") {
            prop_assert_eq!(pieces(&text).collect::<String>(), text.as_str());
        }
    }
}
