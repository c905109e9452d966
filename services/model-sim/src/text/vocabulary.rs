//! Which piece of text a token id stands for, as far as this server was told.

use std::collections::HashMap;

use parking_lot::Mutex;

use super::{VOCABULARY, WORDS, pieces, token_id};

/// Pieces by id. Bounded by the number of ids.
#[derive(Debug)]
pub(crate) struct Vocabulary(Mutex<HashMap<u32, Box<str>>>);

impl Default for Vocabulary {
    fn default() -> Self {
        let words = WORDS.iter().flat_map(|word| [*word, word.trim_start()]);
        Self(Mutex::new(words.chain(["."]).map(|piece| (token_id(piece), piece.into())).collect()))
    }
}

impl Vocabulary {
    /// Learns the pieces of a text; the first piece of an id stays.
    pub(crate) fn learn(&self, text: &str) {
        let mut known = self.0.lock();
        for piece in pieces(text) {
            known.entry(token_id(piece)).or_insert_with(|| piece.into());
        }
        debug_assert!(known.len() <= VOCABULARY as usize, "ids are bounded");
    }

    /// The piece of an id; a word made of the id when nobody told.
    pub(crate) fn text(&self, id: u32) -> String {
        self.0.lock().get(&id).map_or_else(|| format!(" token{id}"), |piece| piece.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_tokenised_comes_back() {
        let vocabulary = Vocabulary::default();
        let text = "Numbers 12345, größe\n\n{\"a\": [1]}";
        vocabulary.learn(text);
        assert_eq!(pieces(text).map(|piece| vocabulary.text(token_id(piece))).collect::<String>(), text);
        assert_eq!(vocabulary.text(token_id(" never seen")), format!(" token{}", token_id(" never seen")));
    }
}
