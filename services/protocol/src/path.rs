//! Which paths are forwarded, and what each of them is.
//!
//! Engines expose `/sleep`, `/pause`, adapter loading and weight updates on the port that serves inference, so the list
//! is closed and the comparison is on the path's own bytes: nothing is decoded, collapsed or resolved before it is
//! compared, because an endpoint may resolve it differently. A path with `%`, `//`, `..`, other letter case or a
//! trailing slash is simply not on the list. Identifiers inside a path are the one open part, and have an alphabet.

use http::Method;

/// Longest identifier of a stored response in a path. Engines make `resp_` and 32 hex digits.
pub const RESPONSE_ID_BYTES_MAX: usize = 256;

/// What a request asks for, as its method and path say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Api {
    ChatCompletions,
    Completions,
    Responses,
    /// Reading or cancelling a stored response: no body, hence no model.
    ResponseById,
    Embeddings,
    Pooling,
    Classify,
    Rerank,
    Score,
    Tokenize,
    Detokenize,
    ImagesGenerations,
    ImagesEdits,
    ImagesVariations,
    AudioTranscriptions,
    AudioTranslations,
    AudioSpeech,
    /// Anthropic's chat.
    Messages,
    CountTokens,
    /// The engines' own generation APIs: TGI's and SGLang's `/generate`, vLLM's token-in token-out.
    Generate,
    /// TGI's path that streams whatever the body says.
    GenerateStream,
    /// SageMaker's one path for everything: the body's members say what it is.
    Invocations,
    /// The list of models, answered by the gateway.
    Models,
    /// One model of that list: see [`crate::models::id_in_path`].
    Model,
    /// A path that the operator added.
    Extra,
    /// Whatever a route written by hand forwards and nobody here reads.
    Other,
}

/// What a request of an API carries as its body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyShape {
    /// JSON, whatever the content type says: engines read it so too, and a rule that looks at the label is no rule.
    Json,
    /// `multipart/form-data`.
    Multipart,
    /// `multipart/form-data` if the content type says so, else JSON.
    JsonOrMultipart,
    /// As [`BodyShape::JsonOrMultipart`], or no body at all, which then names no model.
    Any,
    /// None that is read.
    None,
}

/// Whose error objects and event streams a client of an API understands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    OpenAi,
    /// OpenAI's error objects, but event streams whose events have names.
    Responses,
    Anthropic,
}

/// Where a request of an API names its model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelIn {
    /// In the body, always.
    Body,
    /// In the body, if at all: these APIs were made for servers of one model.
    BodyIfGiven,
    /// Nowhere: such a request can only go to the only pool.
    Nowhere,
}

/// Why a path was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    #[error("this path is not served: use an inference path such as /v1/chat/completions")]
    Unknown,
    /// `allowed` is in the form of an `Allow` header.
    #[error("this path does not take this method: use {allowed}")]
    Method { allowed: &'static str },
}

impl Api {
    /// What a method and a path (without its query, as it came) are. `extra_paths` are the operator's additions,
    /// compared byte for byte and open to every method.
    pub fn classify(method: &Method, path: &str, extra_paths: &[String]) -> Result<Self, PathError> {
        let known = match PATHS.iter().find(|row| row.0 == path) {
            Some(row) => Some((row.1, row.2)),
            None => with_identifier(path),
        };
        match known {
            Some((methods, api)) if methods.allows(method) => Ok(api),
            _ if extra_paths.iter().any(|extra| extra == path) => Ok(Self::Extra),
            Some((methods, _)) => Err(PathError::Method { allowed: methods.allow() }),
            None => Err(PathError::Unknown),
        }
    }

    pub const fn body(self) -> BodyShape {
        match self {
            Self::ChatCompletions
            | Self::Completions
            | Self::Responses
            | Self::Embeddings
            | Self::Pooling
            | Self::Classify
            | Self::Rerank
            | Self::Score
            | Self::Tokenize
            | Self::Detokenize
            | Self::ImagesGenerations
            | Self::AudioSpeech
            | Self::Messages
            | Self::CountTokens
            | Self::Generate
            | Self::GenerateStream
            | Self::Invocations => BodyShape::Json,
            Self::AudioTranscriptions | Self::AudioTranslations | Self::ImagesVariations => BodyShape::Multipart,
            Self::ImagesEdits => BodyShape::JsonOrMultipart,
            Self::ResponseById | Self::Models | Self::Model | Self::Other => BodyShape::None,
            Self::Extra => BodyShape::Any,
        }
    }

    pub const fn dialect(self) -> Dialect {
        match self {
            Self::Messages | Self::CountTokens => Dialect::Anthropic,
            Self::Responses | Self::ResponseById => Dialect::Responses,
            Self::ChatCompletions
            | Self::Completions
            | Self::Embeddings
            | Self::Pooling
            | Self::Classify
            | Self::Rerank
            | Self::Score
            | Self::Tokenize
            | Self::Detokenize
            | Self::ImagesGenerations
            | Self::ImagesEdits
            | Self::ImagesVariations
            | Self::AudioTranscriptions
            | Self::AudioTranslations
            | Self::AudioSpeech
            | Self::Generate
            | Self::GenerateStream
            | Self::Invocations
            | Self::Models
            | Self::Model
            | Self::Extra
            | Self::Other => Dialect::OpenAi,
        }
    }

    pub const fn model_in(self) -> ModelIn {
        match self {
            Self::ChatCompletions
            | Self::Completions
            | Self::Responses
            | Self::Embeddings
            | Self::Pooling
            | Self::Classify
            | Self::Rerank
            | Self::Score
            | Self::ImagesGenerations
            | Self::ImagesEdits
            | Self::ImagesVariations
            | Self::AudioTranscriptions
            | Self::AudioTranslations
            | Self::AudioSpeech
            | Self::Messages
            | Self::CountTokens => ModelIn::Body,
            Self::Tokenize
            | Self::Detokenize
            | Self::Generate
            | Self::GenerateStream
            | Self::Invocations
            | Self::Extra => ModelIn::BodyIfGiven,
            Self::ResponseById | Self::Models | Self::Model | Self::Other => ModelIn::Nowhere,
        }
    }

    /// A word of a closed list, for metrics and logs.
    pub const fn label(self) -> &'static str {
        match self {
            Self::ChatCompletions => "chat_completions",
            Self::Completions => "completions",
            Self::Responses => "responses",
            Self::ResponseById => "response_by_id",
            Self::Embeddings => "embeddings",
            Self::Pooling => "pooling",
            Self::Classify => "classify",
            Self::Rerank => "rerank",
            Self::Score => "score",
            Self::Tokenize => "tokenize",
            Self::Detokenize => "detokenize",
            Self::ImagesGenerations => "images_generations",
            Self::ImagesEdits => "images_edits",
            Self::ImagesVariations => "images_variations",
            Self::AudioTranscriptions => "audio_transcriptions",
            Self::AudioTranslations => "audio_translations",
            Self::AudioSpeech => "audio_speech",
            Self::Messages => "messages",
            Self::CountTokens => "count_tokens",
            Self::Generate => "generate",
            Self::GenerateStream => "generate_stream",
            Self::Invocations => "invocations",
            Self::Models => "models",
            Self::Model => "model",
            Self::Extra => "extra",
            Self::Other => "other",
        }
    }
}

/// The methods of a row of the table. `HEAD` goes wherever `GET` does.
#[derive(Clone, Copy)]
enum Methods {
    Get,
    Post,
}

impl Methods {
    fn allows(self, method: &Method) -> bool {
        match self {
            Self::Get => method == Method::GET || method == Method::HEAD,
            Self::Post => method == Method::POST,
        }
    }

    const fn allow(self) -> &'static str {
        match self {
            Self::Get => "GET, HEAD",
            Self::Post => "POST",
        }
    }
}

/// Paths without an identifier, the frequent first. Two spellings stand here where engines themselves have two:
/// vLLM for scoring, SGLang for tokenizing, llama.cpp for OpenAI's main paths.
const PATHS: &[(&str, Methods, Api)] = &[
    ("/v1/chat/completions", Methods::Post, Api::ChatCompletions),
    ("/v1/completions", Methods::Post, Api::Completions),
    ("/v1/embeddings", Methods::Post, Api::Embeddings),
    ("/v1/messages", Methods::Post, Api::Messages),
    ("/v1/responses", Methods::Post, Api::Responses),
    ("/v1/models", Methods::Get, Api::Models),
    ("/v1/messages/count_tokens", Methods::Post, Api::CountTokens),
    ("/v1/chat/completions/batch", Methods::Post, Api::ChatCompletions),
    ("/chat/completions", Methods::Post, Api::ChatCompletions),
    ("/completions", Methods::Post, Api::Completions),
    ("/embeddings", Methods::Post, Api::Embeddings),
    ("/v2/embed", Methods::Post, Api::Embeddings),
    ("/pooling", Methods::Post, Api::Pooling),
    ("/classify", Methods::Post, Api::Classify),
    ("/v1/classify", Methods::Post, Api::Classify),
    ("/rerank", Methods::Post, Api::Rerank),
    ("/v1/rerank", Methods::Post, Api::Rerank),
    ("/v2/rerank", Methods::Post, Api::Rerank),
    ("/score", Methods::Post, Api::Score),
    ("/v1/score", Methods::Post, Api::Score),
    ("/tokenize", Methods::Post, Api::Tokenize),
    ("/v1/tokenize", Methods::Post, Api::Tokenize),
    ("/chat_tokenize", Methods::Post, Api::Tokenize),
    ("/detokenize", Methods::Post, Api::Detokenize),
    ("/v1/detokenize", Methods::Post, Api::Detokenize),
    ("/v1/images/generations", Methods::Post, Api::ImagesGenerations),
    ("/v1/images/edits", Methods::Post, Api::ImagesEdits),
    ("/v1/images/variations", Methods::Post, Api::ImagesVariations),
    ("/v1/audio/transcriptions", Methods::Post, Api::AudioTranscriptions),
    ("/v1/audio/translations", Methods::Post, Api::AudioTranslations),
    ("/v1/audio/speech", Methods::Post, Api::AudioSpeech),
    ("/generate", Methods::Post, Api::Generate),
    ("/inference/v1/generate", Methods::Post, Api::Generate),
    ("/generate_stream", Methods::Post, Api::GenerateStream),
    ("/invocations", Methods::Post, Api::Invocations),
];

fn with_identifier(path: &str) -> Option<(Methods, Api)> {
    // Models' names hold slashes, colons and escapes. The gateway answers these itself, so nothing of them is sent on.
    if let Some(model) = path.strip_prefix("/v1/models/") {
        return (!model.is_empty()).then_some((Methods::Get, Api::Model));
    }
    let rest = path.strip_prefix("/v1/responses/")?;
    let (id, methods) = match rest.split_once('/') {
        None => (rest, Methods::Get),
        Some((id, "cancel")) => (id, Methods::Post),
        Some((id, "input_items")) => (id, Methods::Get),
        Some(_) => return None,
    };
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    let is_id = !id.is_empty() && id.len() <= RESPONSE_ID_BYTES_MAX && id.bytes().all(plain);
    is_id.then_some((methods, Api::ResponseById))
}

#[cfg(test)]
mod tests;
