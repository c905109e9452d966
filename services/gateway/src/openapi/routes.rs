//! Every path of the data port, in the form of a description: with its parameters named.
//!
//! The gateway itself compares bytes (`protocol::path`); a test holds the two lists together, both ways.

use protocol::Api;

/// How a path is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Method {
    /// And by `HEAD`.
    Get,
    Post,
}

/// One path.
#[derive(Clone, Copy, Debug)]
pub(super) struct Route {
    pub(super) path: &'static str,
    pub(super) method: Method,
    pub(super) api: Api,
}

const fn get(path: &'static str, api: Api) -> Route {
    Route { path, method: Method::Get, api }
}

const fn post(path: &'static str, api: Api) -> Route {
    Route { path, method: Method::Post, api }
}

/// Every path that is forwarded or answered. Of several with one meaning the first is the one to use.
pub(super) const ROUTES: &[Route] = &[
    post("/v1/chat/completions", Api::ChatCompletions),
    post("/chat/completions", Api::ChatCompletions),
    post("/v1/chat/completions/batch", Api::ChatCompletions),
    post("/v1/responses", Api::Responses),
    get("/v1/responses/{response_id}", Api::ResponseById),
    post("/v1/responses/{response_id}/cancel", Api::ResponseById),
    get("/v1/responses/{response_id}/input_items", Api::ResponseById),
    post("/v1/messages", Api::Messages),
    post("/v1/messages/count_tokens", Api::CountTokens),
    post("/v1/completions", Api::Completions),
    post("/completions", Api::Completions),
    post("/generate", Api::Generate),
    post("/inference/v1/generate", Api::Generate),
    post("/generate_stream", Api::GenerateStream),
    post("/invocations", Api::Invocations),
    post("/v1/embeddings", Api::Embeddings),
    post("/embeddings", Api::Embeddings),
    post("/v2/embed", Api::Embeddings),
    post("/pooling", Api::Pooling),
    post("/v1/classify", Api::Classify),
    post("/classify", Api::Classify),
    post("/v1/rerank", Api::Rerank),
    post("/rerank", Api::Rerank),
    post("/v2/rerank", Api::Rerank),
    post("/v1/score", Api::Score),
    post("/score", Api::Score),
    post("/tokenize", Api::Tokenize),
    post("/v1/tokenize", Api::Tokenize),
    post("/chat_tokenize", Api::Tokenize),
    post("/detokenize", Api::Detokenize),
    post("/v1/detokenize", Api::Detokenize),
    post("/v1/images/generations", Api::ImagesGenerations),
    post("/v1/images/edits", Api::ImagesEdits),
    post("/v1/images/variations", Api::ImagesVariations),
    post("/v1/audio/transcriptions", Api::AudioTranscriptions),
    post("/v1/audio/translations", Api::AudioTranslations),
    post("/v1/audio/speech", Api::AudioSpeech),
    get("/v1/models", Api::Models),
    get("/v1/models/{model}", Api::Model),
];
