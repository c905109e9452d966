//! What the members of a request's body mean to us.
//!
//! One table for all APIs: a member that an engine does not know it ignores, so hashing a stray one costs a little
//! sharing at most, while a table per API would have to follow every engine's releases. The exceptions are names that
//! mean something else in an API.

use super::prompt::Rank;
use crate::path::Api;

/// A member at the top level, or inside one of [`Member::Nested`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Member {
    Model,
    Stream,
    StreamOptions,
    IncludeUsage,
    OutputTokens(Limit),
    /// `parameters` of TGI and `sampling_params` of SGLang and vLLM, which hold limits of their own.
    Nested,
    Prompt(Rank),
    Other,
}

/// The names of the limit of generated tokens, the one that counts first where a body has several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Limit {
    CompletionTokens,
    OutputTokens,
    NewTokens,
    Tokens,
}

pub(super) const LIMITS: usize = 4;

impl Member {
    pub(super) fn at_top(name: &[u8], api: Api) -> Self {
        match name {
            b"model" => Self::Model,
            b"stream" => Self::Stream,
            b"stream_options" => Self::StreamOptions,
            b"parameters" | b"sampling_params" => Self::Nested,
            b"cache_salt" => Self::Prompt(Rank::CacheSalt),
            b"extra_key" => Self::Prompt(Rank::ExtraKey),
            b"lora_path" => Self::Prompt(Rank::LoraPath),
            b"chat_template" => Self::Prompt(Rank::ChatTemplate),
            b"tools" => Self::Prompt(Rank::Tools),
            b"functions" => Self::Prompt(Rank::Functions),
            b"system" => Self::Prompt(Rank::System),
            b"instructions" => Self::Prompt(Rank::Instructions),
            b"query" | b"queries" => Self::Prompt(Rank::Query),
            b"documents" | b"items" => Self::Prompt(Rank::Documents),
            b"messages" => Self::Prompt(Rank::Messages),
            b"prompt" => Self::Prompt(Rank::Prompt),
            b"input" => Self::Prompt(Rank::Input),
            b"inputs" => Self::Prompt(Rank::Inputs),
            b"texts" => Self::Prompt(Rank::Texts),
            // In the Responses API this member says how the answer's text is to be formed.
            b"text" if api == Api::Responses => Self::Other,
            b"text" => Self::Prompt(Rank::Text),
            b"text_1" | b"data_1" => Self::Prompt(Rank::FirstText),
            b"text_2" | b"data_2" => Self::Prompt(Rank::SecondText),
            b"input_ids" | b"prompt_token_ids" | b"token_ids" | b"tokens" => Self::Prompt(Rank::TokenIds),
            b"image_data" | b"video_data" | b"audio_data" | b"multi_modal_data" => Self::Prompt(Rank::Media),
            _ => Self::limit(name),
        }
    }

    pub(super) fn nested(name: &[u8]) -> Self {
        match name {
            b"adapter_id" => Self::Prompt(Rank::AdapterId),
            _ => Self::limit(name),
        }
    }

    pub(super) fn of_stream_options(name: &[u8]) -> Self {
        if name == b"include_usage" { Self::IncludeUsage } else { Self::Other }
    }

    fn limit(name: &[u8]) -> Self {
        match name {
            b"max_completion_tokens" => Self::OutputTokens(Limit::CompletionTokens),
            b"max_output_tokens" => Self::OutputTokens(Limit::OutputTokens),
            b"max_new_tokens" => Self::OutputTokens(Limit::NewTokens),
            b"max_tokens" => Self::OutputTokens(Limit::Tokens),
            _ => Self::Other,
        }
    }
}

/// What the name last read inside a prompt says about the text that follows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hint {
    None,
    /// `type`: the text says what kind of part this is.
    PartKind,
    /// The text is a file, in base64 or by its address.
    File,
}

impl Hint {
    pub(super) fn of(name: &[u8]) -> Self {
        match name {
            b"type" => Self::PartKind,
            b"data" | b"url" | b"image_url" | b"image" | b"audio" | b"video" => Self::File,
            b"file_data" | b"image_data" | b"audio_data" | b"video_data" => Self::File,
            _ => Self::None,
        }
    }
}
