//! Paths, and which server has which.

use http::Method;

use crate::options::Face;

/// A path that is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Route {
    Health,
    Ping,
    Version,
    Load,
    KvEventSources,
    Metrics,
    Info,
    ServerInfo,
    Models,
    Model(String),
    Chat,
    Completions,
    Responses,
    Response(String),
    CancelResponse(String),
    Messages,
    CountTokens,
    Embeddings,
    Pooling,
    Classify,
    Score,
    Rerank,
    Tokenize,
    Detokenize,
    Audio,
    Images,
    Invocations,
    LoadAdapter,
    UnloadAdapter,
    Generate,
    GenerateStream,
}

/// Paths every server has.
const COMMON: &[(&str, Route)] = &[
    ("/health", Route::Health),
    ("/ping", Route::Ping),
    ("/metrics", Route::Metrics),
    ("/metrics/", Route::Metrics),
    ("/v1/models", Route::Models),
    ("/v1/chat/completions", Route::Chat),
    ("/v1/completions", Route::Completions),
    ("/tokenize", Route::Tokenize),
    ("/invocations", Route::Invocations),
];

/// Paths of vLLM and SGLang.
const OPENAI: &[(&str, Route)] = &[
    ("/v1/responses", Route::Responses),
    ("/v1/messages", Route::Messages),
    ("/v1/messages/count_tokens", Route::CountTokens),
    ("/v1/embeddings", Route::Embeddings),
    ("/v1/score", Route::Score),
    ("/v1/rerank", Route::Rerank),
    ("/v1/audio/transcriptions", Route::Audio),
    ("/v1/audio/translations", Route::Audio),
    ("/v1/images/generations", Route::Images),
    ("/detokenize", Route::Detokenize),
    ("/classify", Route::Classify),
];

const VLLM: &[(&str, Route)] = &[
    ("/version", Route::Version),
    ("/load", Route::Load),
    ("/kv_event_sources", Route::KvEventSources),
    ("/pooling", Route::Pooling),
    ("/score", Route::Score),
    ("/rerank", Route::Rerank),
    ("/v2/rerank", Route::Rerank),
    ("/v1/load_lora_adapter", Route::LoadAdapter),
    ("/v1/unload_lora_adapter", Route::UnloadAdapter),
];

const SGLANG: &[(&str, Route)] = &[
    ("/health_generate", Route::Health),
    ("/generate", Route::Generate),
    ("/server_info", Route::ServerInfo),
    ("/get_server_info", Route::ServerInfo),
    ("/load_lora_adapter", Route::LoadAdapter),
    ("/unload_lora_adapter", Route::UnloadAdapter),
];

const TGI: &[(&str, Route)] = &[
    ("/", Route::Generate),
    ("/generate", Route::Generate),
    ("/generate_stream", Route::GenerateStream),
    ("/info", Route::Info),
];

impl Route {
    /// What `path` is on a server of this kind.
    pub(super) fn find(face: Face, path: &str) -> Option<Self> {
        let tables: &[&[(&str, Self)]] = match face {
            Face::Vllm => &[COMMON, OPENAI, VLLM],
            Face::Sglang => &[COMMON, OPENAI, SGLANG],
            Face::Tgi => &[COMMON, TGI],
        };
        let fixed = tables.iter().flat_map(|table| table.iter()).find(|(known, _)| *known == path);
        fixed.map(|(_, route)| route.clone()).or_else(|| Self::with_id(face, path))
    }

    fn with_id(face: Face, path: &str) -> Option<Self> {
        if let Some(id) = path.strip_prefix("/v1/models/") {
            return Some(Self::Model(percent_decode(id)?));
        }
        let id = path.strip_prefix("/v1/responses/").filter(|_| face != Face::Tgi)?;
        Some(match id.strip_suffix("/cancel") {
            Some(id) => Self::CancelResponse(id.to_owned()),
            None => Self::Response(id.to_owned()),
        })
    }

    /// Whether the path takes this method.
    pub(super) fn takes(&self, method: &Method) -> bool {
        let get = *method == Method::GET;
        match self {
            Self::Health | Self::Version | Self::Load | Self::Metrics | Self::Info | Self::ServerInfo => get,
            Self::Models | Self::Model(_) | Self::Response(_) | Self::KvEventSources => get,
            Self::Ping => get || *method == Method::POST,
            Self::Chat
            | Self::Completions
            | Self::Responses
            | Self::CancelResponse(_)
            | Self::Messages
            | Self::CountTokens
            | Self::Embeddings
            | Self::Pooling
            | Self::Classify
            | Self::Score
            | Self::Rerank
            | Self::Tokenize
            | Self::Detokenize
            | Self::Audio
            | Self::Images
            | Self::Invocations
            | Self::LoadAdapter
            | Self::UnloadAdapter
            | Self::Generate
            | Self::GenerateStream => *method == Method::POST,
        }
    }

    /// The label of this path in HTTP metrics: the path itself, or its template.
    pub(super) fn handler(&self, path: &str) -> &'static str {
        if matches!(self, Self::Model(_)) {
            return "/v1/models/{model_id}";
        }
        if matches!(self, Self::Response(_)) {
            return "/v1/responses/{response_id}";
        }
        if matches!(self, Self::CancelResponse(_)) {
            return "/v1/responses/{response_id}/cancel";
        }
        let tables = [COMMON, OPENAI, VLLM, SGLANG, TGI];
        let all = tables.iter().flat_map(|table| table.iter());
        all.map(|(known, _)| *known).find(|known| *known == path).unwrap_or("none")
    }
}

/// `%2F` and the like; `None` when it is not text.
fn percent_decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digits = rest.get(..2).and_then(|digits| std::str::from_utf8(digits).ok())?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        rest = &rest[2..];
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_server_has_its_own_paths() {
        let find = |face, path| Route::find(face, path);
        assert_eq!(find(Face::Vllm, "/v1/messages"), Some(Route::Messages));
        assert_eq!(find(Face::Tgi, "/v1/messages"), None);
        assert_eq!(find(Face::Sglang, "/generate"), Some(Route::Generate));
        assert_eq!(find(Face::Vllm, "/generate"), None);
        assert_eq!(find(Face::Vllm, "/v1/chat/completions/"), None);
        assert_eq!(find(Face::Vllm, "/v1/models/a%2Fb"), Some(Route::Model("a/b".to_owned())));
        assert_eq!(find(Face::Vllm, "/v1/models/a/b"), Some(Route::Model("a/b".to_owned())));
        assert_eq!(find(Face::Vllm, "/v1/models/%zz"), None);
        assert_eq!(find(Face::Vllm, "/v1/responses/r1/cancel"), Some(Route::CancelResponse("r1".to_owned())));
    }

    #[test]
    fn handlers_are_paths_or_templates() {
        assert_eq!(Route::Chat.handler("/v1/chat/completions"), "/v1/chat/completions");
        assert_eq!(Route::Model("x".to_owned()).handler("/v1/models/x"), "/v1/models/{model_id}");
    }
}
