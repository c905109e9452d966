//! Bodies, as far as the gateway reads or makes them.
//!
//! Only members are named that change what the gateway does: where a request goes, what it may cost, what is counted.
//! All others pass through, known or not, so every schema but those of the gateway's own answers is open.

use utoipa::openapi::{
    Array, Ref, RefOr, Schema, Type,
    schema::{AdditionalProperties, ObjectBuilder, SchemaType},
};

/// Names of the schemas, for those who refer to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Body {
    /// OpenAI's chat.
    Chat,
    /// OpenAI's Responses.
    Responses,
    /// Anthropic's chat.
    Messages,
    /// A prompt to be continued.
    Completion,
    /// Texts to make vectors of.
    Embedding,
    /// Anything that names its model.
    WithModel,
    /// Anything that may name its model.
    MayNameModel,
    /// A form with a file and a model.
    Form,
    /// An answer with OpenAI's usage.
    Counted,
    /// An answer with the Responses API's or Anthropic's usage.
    CountedInOut,
    /// Any JSON.
    Open,
    /// What can be asked for now.
    ModelList,
    /// One of them.
    Model,
}

impl Body {
    const ALL: [Self; 13] = [
        Self::Chat,
        Self::Responses,
        Self::Messages,
        Self::Completion,
        Self::Embedding,
        Self::WithModel,
        Self::MayNameModel,
        Self::Form,
        Self::Counted,
        Self::CountedInOut,
        Self::Open,
        Self::ModelList,
        Self::Model,
    ];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Chat => "ChatRequest",
            Self::Responses => "ResponsesRequest",
            Self::Messages => "MessagesRequest",
            Self::Completion => "CompletionRequest",
            Self::Embedding => "EmbeddingRequest",
            Self::WithModel => "ModelRequest",
            Self::MayNameModel => "OpenRequest",
            Self::Form => "FormRequest",
            Self::Counted => "CountedAnswer",
            Self::CountedInOut => "InOutCountedAnswer",
            Self::Open => "Answer",
            Self::ModelList => "ModelList",
            Self::Model => "Model",
        }
    }

    pub(super) fn reference(self) -> Ref {
        Ref::from_schema_name(self.name())
    }

    fn schema(self) -> ObjectBuilder {
        match self {
            Self::Chat => chat(),
            Self::Responses => responses(),
            Self::Messages => messages(),
            Self::Completion => completion(),
            Self::Embedding => with_model("Texts to make vectors of.").property("input", any("One text or several.")),
            Self::WithModel => with_model("A request that names its model. The rest is the model server's."),
            Self::MayNameModel => {
                open("A request that may name its model. Without one it can go to the only pool alone.")
                    .property("model", model())
                    .property("stream", stream())
            }
            Self::Form => with_model("A form. Its field `model` decides, wherever in the form it stands."),
            Self::Counted => {
                open("A model server's answer, unchanged. Its usage is counted.").property("usage", usage())
            }
            Self::CountedInOut => {
                open("A model server's answer, unchanged. Its usage is counted.").property("usage", in_out_usage())
            }
            Self::Open => open("A model server's answer, unchanged."),
            Self::ModelList => model_list(),
            Self::Model => model_card(),
        }
    }
}

/// Components for all of them.
pub(super) fn schemas() -> Vec<(String, RefOr<Schema>)> {
    Body::ALL.map(|body| (body.name().to_owned(), body.schema().into())).into()
}

fn chat() -> ObjectBuilder {
    prompted("A conversation to be continued.")
        .property("messages", list("The conversation. Its beginning decides which endpoint has it cached."))
        .required("messages")
        .property("tools", list("Part of the prompt, hence of what is cached."))
        .property("stream_options", stream_options())
        .property("max_completion_tokens", count("The most tokens to generate."))
        .property("max_tokens", count("The same, in its older name."))
}

fn completion() -> ObjectBuilder {
    prompted("A text to be continued.")
        .property("prompt", any("One prompt or several, as text or as tokens."))
        .property("stream_options", stream_options())
        .property("max_tokens", count("The most tokens to generate."))
}

fn responses() -> ObjectBuilder {
    prompted("A conversation to be continued, in the words of the Responses API.")
        .property("input", any("The conversation, or its last turn."))
        .property("instructions", text("What the model is told first."))
        .property("tools", list("Part of the prompt, hence of what is cached."))
        .property("max_output_tokens", count("The most tokens to generate."))
}

fn messages() -> ObjectBuilder {
    prompted("A conversation to be continued, in Anthropic's words.")
        .property("messages", list("The conversation. Its beginning decides which endpoint has it cached."))
        .required("messages")
        .property("system", any("What the model is told first."))
        .property("tools", list("Part of the prompt, hence of what is cached."))
        .property("max_tokens", count("The most tokens to generate."))
}

fn prompted(words: &str) -> ObjectBuilder {
    with_model(words)
        .property("stream", stream())
        .property("cache_salt", text("Keeps this prompt's cache entries apart from those with another salt."))
}

fn with_model(words: &str) -> ObjectBuilder {
    open(words).property("model", model()).required("model")
}

fn model() -> ObjectBuilder {
    text("A model or LoRA adapter of `/v1/models`. Given twice, the request is refused.")
}

fn stream() -> ObjectBuilder {
    ObjectBuilder::new().schema_type(Type::Boolean).description(Some("Whether to answer as an event stream."))
}

fn stream_options() -> ObjectBuilder {
    let words = "Whether the stream's last event says how many tokens it took. Without it they cannot be counted.";
    let include_usage = ObjectBuilder::new().schema_type(Type::Boolean).description(Some(words));
    open("How to stream.").property("include_usage", include_usage)
}

fn usage() -> ObjectBuilder {
    let details = open("Parts of the prompt.").property("cached_tokens", count("Found in the prefix cache."));
    open("Tokens, as the model server counted them.")
        .property("prompt_tokens", count("Of the prompt, cached ones included."))
        .property("completion_tokens", count("Generated."))
        .property("total_tokens", count("Both."))
        .property("prompt_tokens_details", details)
}

fn in_out_usage() -> ObjectBuilder {
    let details = open("Parts of the prompt.").property("cached_tokens", count("Found in the prefix cache."));
    open("Tokens, as the model server counted them.")
        .property("input_tokens", count("Of the prompt; in Anthropic's answers without those read from the cache."))
        .property("output_tokens", count("Generated."))
        .property("cache_read_input_tokens", count("Anthropic: found in the prefix cache."))
        .property("input_tokens_details", details)
}

fn model_list() -> ObjectBuilder {
    ObjectBuilder::new()
        .description(Some("Models and adapters of pools with at least one usable endpoint."))
        .property("object", text("Always `list`."))
        .required("object")
        .property("data", Array::new(Body::Model.reference()))
        .required("data")
}

fn model_card() -> ObjectBuilder {
    let parent = ObjectBuilder::new()
        .schema_type(SchemaType::from_iter([Type::String, Type::Null]))
        .description(Some("The base model of an adapter."));
    let members: [(&str, ObjectBuilder); 6] = [
        ("id", text("What to send as `model`.")),
        ("object", text("Always `model`.")),
        ("created", count("When the configuration that serves it was put in force, in seconds since 1970.")),
        ("owned_by", text("Always `inference-gateway`.")),
        ("root", text("The same as `id`.")),
        ("parent", parent),
    ];
    let card = ObjectBuilder::new().description(Some("One model or adapter."));
    members.into_iter().fold(card, |card, (name, schema)| card.property(name, schema).required(name))
}

fn open(words: &str) -> ObjectBuilder {
    ObjectBuilder::new().description(Some(words)).additional_properties(Some(AdditionalProperties::FreeForm(true)))
}

fn text(words: &str) -> ObjectBuilder {
    ObjectBuilder::new().schema_type(Type::String).description(Some(words))
}

fn count(words: &str) -> ObjectBuilder {
    ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(0)).description(Some(words))
}

fn any(words: &str) -> ObjectBuilder {
    ObjectBuilder::new().schema_type(SchemaType::AnyValue).description(Some(words))
}

fn list(words: &str) -> Array {
    let mut list = Array::new(any_item());
    list.description = Some(words.to_owned());
    list
}

fn any_item() -> ObjectBuilder {
    ObjectBuilder::new().additional_properties(Some(AdditionalProperties::FreeForm(true)))
}
