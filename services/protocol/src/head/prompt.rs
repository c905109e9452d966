//! The prompt as hashes of its blocks, in the order in which an engine's template renders it.
//!
//! An engine reuses what it computed for a prompt's beginning, so two requests belong to one endpoint as far as their
//! prompts begin alike. Without a tokenizer the nearest thing to the engine's blocks is blocks of bytes. Members are
//! hashed as they stand in the body, without the white space between tokens: text that a client writes the same way
//! twice hashes the same, and nothing has to be decoded. Each member is hashed on its own while it passes, and the
//! sections are put in the template's order (tools, system, messages) at the end, wherever they stood in the body.
//!
//! What makes a cache entry differ without being text (a salt, an adapter's path, a chat template) goes into the seed of
//! the chain, and so does the model. The end of a section that fills no block goes into the next section's first block;
//! the end of the last one is left out, as an engine leaves out its last, partial block.
//!
//! Files inside a prompt (images in base64) stand in it as one short digest: what they cost an engine has nothing to do
//! with their bytes, and their bytes would push the text out of the blocks that are looked at.

use std::fmt;

use xxhash_rust::xxh3::{Xxh3Default, xxh3_64, xxh3_64_with_seed};

/// Prompt bytes that make one block: 64 tokens of 4 bytes, the block and the estimate of the upstream picker.
pub const BLOCK_BYTES: usize = 256;

/// Blocks of a prompt that are hashed: 512 KiB, about 131,000 tokens. What follows is not looked at.
pub const BLOCKS_MAX: usize = 2048;

/// Bytes that a token id of a pre-tokenized prompt counts for.
const TOKEN_ID_BYTES: i64 = 4;

/// The prompt of a request.
#[derive(Clone, Debug, Default)]
pub struct Prompt {
    /// In the order of their ranks.
    sections: Vec<Section>,
    text_bytes: u64,
    images: u32,
}

/// What, apart from its own salts, a prompt's chain begins with. Chains of different seeds have nothing in common.
#[derive(Clone, Copy, Debug)]
pub struct Seed<'a> {
    /// The model or adapter as the client named it: engines cache by adapter.
    pub model: &'a str,
}

impl Prompt {
    /// Bytes of prompt text: 4 for each token id, 8 for each image or other file.
    pub fn bytes(&self) -> u64 {
        self.text_bytes
    }

    pub fn images(&self) -> u32 {
        self.images
    }

    /// Replaces what is in `out` by the chained hashes of the prompt's full blocks, at most [`BLOCKS_MAX`]: the nth
    /// stands for everything up to the end of the nth block. A prompt below [`BLOCK_BYTES`] has none.
    pub fn chain(&self, seed: Seed<'_>, out: &mut Vec<u64>) {
        out.clear();
        let mut hash = xxh3_64(seed.model.as_bytes());
        for section in &self.sections {
            for &block in &section.blocks {
                hash = mix(hash, block);
                if section.rank.is_text() {
                    out.push(hash);
                    if out.len() == BLOCKS_MAX {
                        return;
                    }
                }
            }
            hash = mix(mix(hash, section.tail), section.rank as u64);
        }
    }
}

fn mix(hash: u64, block: u64) -> u64 {
    xxh3_64_with_seed(&block.to_le_bytes(), hash)
}

/// The members that make a prompt, in the order in which they begin the engine's prompt. Where several are alternatives
/// of each other their order has no meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Rank {
    CacheSalt,
    ExtraKey,
    LoraPath,
    AdapterId,
    ChatTemplate,
    Tools,
    Functions,
    System,
    Instructions,
    Query,
    Documents,
    Messages,
    Prompt,
    Input,
    Inputs,
    Texts,
    Text,
    FirstText,
    SecondText,
    TokenIds,
    Media,
}

impl Rank {
    /// Whether its blocks are prompt text; a salt's are part of the seed alone.
    fn is_text(self) -> bool {
        self > Self::ChatTemplate
    }
}

#[derive(Clone, Debug)]
struct Section {
    rank: Rank,
    blocks: Vec<u64>,
    /// Hash of the bytes after the last full block; 0 if there are none.
    tail: u64,
    text_bytes: i64,
    images: u32,
}

/// Hashes a prompt while it passes.
pub(super) struct Builder {
    sections: Vec<Section>,
    /// Index of the section that is open.
    open: usize,
    block: [u8; BLOCK_BYTES],
    filled: usize,
    /// The digest of the file that is passing, or of none yet. Made when the first file comes: it is large.
    file: Option<Box<Xxh3Default>>,
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder").field("sections", &self.sections).finish_non_exhaustive()
    }
}

impl Builder {
    pub(super) fn new() -> Self {
        Self { sections: Vec::new(), open: 0, block: [0; BLOCK_BYTES], filled: 0, file: None }
    }

    /// A section begins. One that was there before is forgotten: engines take the last of repeated members.
    pub(super) fn begin(&mut self, rank: Rank) {
        self.filled = 0;
        match self.sections.iter().position(|section| section.rank == rank) {
            Some(index) => {
                let section = &mut self.sections[index];
                section.blocks.clear();
                (section.tail, section.text_bytes, section.images) = (0, 0, 0);
                self.open = index;
            }
            None => {
                self.open = self.sections.len();
                self.sections.push(Section { rank, blocks: Vec::new(), tail: 0, text_bytes: 0, images: 0 });
            }
        }
    }

    /// More of the open section.
    pub(super) fn write(&mut self, mut bytes: &[u8]) {
        let section = &mut self.sections[self.open];
        section.text_bytes += bytes.len() as i64;
        if section.blocks.len() >= BLOCKS_MAX {
            return;
        }
        if self.filled > 0 {
            let (head, rest) = bytes.split_at(bytes.len().min(BLOCK_BYTES - self.filled));
            self.block[self.filled..self.filled + head.len()].copy_from_slice(head);
            self.filled += head.len();
            bytes = rest;
            if self.filled < BLOCK_BYTES {
                return;
            }
            section.blocks.push(xxh3_64(&self.block));
            self.filled = 0;
        }
        let (blocks, rest) = bytes.as_chunks::<BLOCK_BYTES>();
        let room = BLOCKS_MAX - section.blocks.len();
        section.blocks.extend(blocks.iter().take(room).map(|block| xxh3_64(block)));
        if section.blocks.len() < BLOCKS_MAX {
            self.block[..rest.len()].copy_from_slice(rest);
            self.filled = rest.len();
        }
    }

    /// More of a file in the open section.
    pub(super) fn write_file(&mut self, bytes: &[u8]) {
        self.file.get_or_insert_default().update(bytes);
    }

    /// The file is over.
    pub(super) fn end_file(&mut self) {
        if let Some(file) = &mut self.file {
            let digest = file.digest();
            file.reset();
            self.write(&digest.to_le_bytes());
        }
    }

    pub(super) fn count_image(&mut self) {
        let section = &mut self.sections[self.open];
        section.images = section.images.saturating_add(1);
    }

    /// A number of so many digits, and the comma after it, were written: one token id.
    pub(super) fn count_token_id(&mut self, digits: u64) {
        let section = &mut self.sections[self.open];
        section.text_bytes += TOKEN_ID_BYTES - 1 - i64::try_from(digits).unwrap_or(i64::MAX / 2);
    }

    /// The open section is over.
    pub(super) fn end(&mut self) {
        if self.filled > 0 {
            self.sections[self.open].tail = xxh3_64(&self.block[..self.filled]);
        }
        self.filled = 0;
    }

    pub(super) fn finish(mut self) -> Prompt {
        self.sections.sort_unstable_by_key(|section| section.rank);
        let text = self.sections.iter().filter(|section| section.rank.is_text());
        let text_bytes = text.map(|section| u64::try_from(section.text_bytes).unwrap_or(0)).sum();
        let images = self.sections.iter().fold(0_u32, |sum, section| sum.saturating_add(section.images));
        Prompt { sections: self.sections, text_bytes, images }
    }
}
