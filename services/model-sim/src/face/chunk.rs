//! Chunks of streamed chat answers and completions, member for member as each server writes them.
//!
//! Written as text, not through a tree: the order of members and the presence of nulls are part of what a client sees,
//! and a stream has thousands of chunks.

use serde_json::json;

use super::params::UsageReports;
use crate::{
    generation::{Delta, Usage},
    options::{Face, Options, Version},
};

/// What all chunks of one stream share.
#[derive(Clone, Debug)]
pub(super) struct Shape {
    pub(super) id: String,
    pub(super) created: u64,
    pub(super) model: String,
    pub(super) face: Face,
    pub(super) version: Version,
    pub(super) fingerprint: String,
    pub(super) reports: UsageReports,
}

/// Which API's chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Chat,
    Completion,
}

impl Shape {
    pub(super) fn new(
        options: &Options,
        id: String,
        created: u64,
        model: String,
        reports: UsageReports,
        fingerprint: String,
    ) -> Self {
        Self { id, created, model, face: options.face, version: options.version, fingerprint, reports }
    }

    /// The chat chunk that names the role; vLLM and SGLang send it with the first token.
    pub(super) fn role(&self, choice: usize, usage: Usage) -> String {
        let delta = match self.face {
            Face::Sglang => r#"{"reasoning_content":null,"role":"assistant","content":""}"#,
            Face::Vllm | Face::Tgi => r#"{"role":"assistant","content":""}"#,
        };
        let tail = match self.face {
            Face::Sglang => r#","matched_stop":null"#,
            Face::Vllm | Face::Tgi => "",
        };
        let choice = format!(r#"{{"index":{choice},"delta":{delta},"logprobs":null,"finish_reason":null{tail}}}"#);
        let mut after = String::new();
        if self.is_vllm(Version(0, 10, 2)) {
            after.push_str(r#","prompt_token_ids":null"#);
        }
        if self.is_vllm(Version(0, 25, 0)) {
            after.push_str(r#","prompt_text":null"#);
        }
        self.chunk(Kind::Chat, &choice, Some(usage).filter(|_| self.reports == UsageReports::Always), "", &after)
    }

    /// A chunk with text, and with the end where it is there.
    pub(super) fn text(&self, kind: Kind, delta: &Delta, usage: Usage) -> String {
        let text = json!(delta.text);
        let reason = delta.end.as_ref().map_or("null".to_owned(), |end| format!("\"{}\"", end.reason()));
        let stop = delta.end.as_ref().map_or(serde_json::Value::Null, crate::generation::End::stop_json);
        let index = delta.choice;
        let choice = match (kind, self.face) {
            (Kind::Chat, Face::Vllm) => {
                let ids = if self.is_vllm(Version(0, 10, 2)) { r#","token_ids":null"# } else { "" };
                let versions = if self.is_vllm(Version(0, 33, 0)) { r#","weight_versions":null"# } else { "" };
                let end = if delta.end.is_some() {
                    format!(r#","stop_reason":{stop}{ids}{versions}"#)
                } else {
                    ids.to_owned()
                };
                format!(
                    r#"{{"index":{index},"delta":{{"content":{text}}},"logprobs":null,"finish_reason":{reason}{end}}}"#
                )
            }
            (Kind::Chat, Face::Sglang) => format!(
                r#"{{"index":{index},"delta":{{"reasoning_content":null,"content":{text}}},"logprobs":null,"finish_reason":{reason},"matched_stop":{stop}}}"#
            ),
            (Kind::Chat, Face::Tgi) => format!(
                r#"{{"index":{index},"delta":{{"role":"assistant","content":{text}}},"logprobs":null,"finish_reason":{reason}}}"#
            ),
            (Kind::Completion, Face::Vllm) => {
                let ids =
                    if self.is_vllm(Version(0, 10, 2)) { r#","prompt_token_ids":null,"token_ids":null"# } else { "" };
                format!(
                    r#"{{"index":{index},"text":{text},"logprobs":null,"finish_reason":{reason},"stop_reason":{stop}{ids}}}"#
                )
            }
            (Kind::Completion, Face::Sglang) => {
                format!(
                    r#"{{"index":{index},"text":{text},"logprobs":null,"finish_reason":{reason},"matched_stop":{stop}}}"#
                )
            }
            (Kind::Completion, Face::Tgi) => {
                format!(r#"{{"index":{index},"text":{text},"logprobs":null,"finish_reason":{reason}}}"#)
            }
        };
        let last = delta.end.is_some() && self.reports == UsageReports::None;
        let fingerprint =
            if last && self.is_vllm(Version(0, 24, 0)) { self.fingerprint_member() } else { String::new() };
        let after = if self.is_vllm(Version(0, 33, 0)) { r#","kv_transfer_params":null"# } else { "" };
        self.chunk(kind, &choice, Some(usage).filter(|_| self.reports == UsageReports::Always), &fingerprint, after)
    }

    /// SGLang's separate end of a chat choice.
    pub(super) fn sglang_end(&self, delta: &Delta, usage: Usage) -> String {
        let end = delta.end.as_ref();
        let reason = end.map_or("stop", crate::generation::End::reason);
        let stop = end.map_or(serde_json::Value::Null, crate::generation::End::stop_json);
        let choice = format!(
            r#"{{"index":{},"delta":{{"reasoning_content":null}},"logprobs":null,"finish_reason":"{reason}","matched_stop":{stop}}}"#,
            delta.choice
        );
        self.chunk(Kind::Chat, &choice, Some(usage).filter(|_| self.reports == UsageReports::Always), "", "")
    }

    /// The usage chunk without choices.
    pub(super) fn usage(&self, kind: Kind, usage: Usage) -> String {
        let fingerprint = if self.is_vllm(Version(0, 24, 0)) { self.fingerprint_member() } else { String::new() };
        self.chunk(kind, "", Some(usage), &fingerprint, "")
    }

    fn chunk(&self, kind: Kind, choice: &str, usage: Option<Usage>, fingerprint: &str, after: &str) -> String {
        let (id, created, model) = (json!(self.id), self.created, json!(self.model));
        let object = match kind {
            Kind::Chat => "chat.completion.chunk",
            Kind::Completion => "text_completion",
        };
        let usage_member = match usage {
            Some(usage) => format!(r#","usage":{}"#, usage_json(usage)),
            None if self.face == Face::Tgi || self.has_null_usage(kind) => r#","usage":null"#.to_owned(),
            None => String::new(),
        };
        match self.face {
            Face::Tgi => format!(
                r#"{{"object":"{object}","id":"","created":{created},"model":{model},"system_fingerprint":"{}","choices":[{choice}]{usage_member}}}"#,
                self.fingerprint
            ),
            Face::Vllm | Face::Sglang => format!(
                r#"{{"id":{id},"object":"{object}","created":{created},"model":{model},"choices":[{choice}]{usage_member}{fingerprint}{after}}}"#
            ),
        }
    }

    /// vLLM 0.9 wrote a null usage on every chunk of a completion.
    fn has_null_usage(&self, kind: Kind) -> bool {
        kind == Kind::Completion && self.face == Face::Vllm && self.version < Version(0, 10, 0)
    }

    fn is_vllm(&self, since: Version) -> bool {
        self.face == Face::Vllm && self.version >= since
    }

    fn fingerprint_member(&self) -> String {
        format!(r#","system_fingerprint":"{}""#, self.fingerprint)
    }
}

/// Usage with the members in the order servers write them.
fn usage_json(usage: Usage) -> String {
    format!(
        r#"{{"prompt_tokens":{},"total_tokens":{},"completion_tokens":{},"prompt_tokens_details":{{"cached_tokens":{}}}}}"#,
        usage.prompt,
        usage.prompt + usage.completion,
        usage.completion,
        usage.cached
    )
}
