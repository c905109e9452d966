//! One operation of the data port: what it asks for, what comes back, and how it can be refused.

use protocol::{Api, path::BodyShape};
use utoipa::openapi::{
    Content, Object, RefOr, Required, Response, Responses, SecurityRequirement, Type,
    path::{Operation, OperationBuilder, ParameterBuilder, ParameterIn},
    request_body::{RequestBody, RequestBodyBuilder},
    response::{ResponseBuilder, ResponsesBuilder},
};

use super::{
    BEARER,
    bodies::Body,
    headers::{RATE_LIMITS, of_every_answer, ref_of_answer, refs_of_requests},
    refusals,
    routes::{Method, ROUTES, Route},
};

const JSON: &str = "application/json";
const FORM: &str = "multipart/form-data";
const EVENTS: &str = "text/event-stream";

/// What is said of an API.
struct About {
    tag: &'static str,
    summary: &'static str,
    request: Body,
    answer: Answer,
}

/// What comes back when all is well.
#[derive(Clone, Copy)]
enum Answer {
    /// JSON.
    Json(Body),
    /// JSON, or an event stream when the request asks for one.
    JsonOrEvents(Body),
    /// An event stream.
    Events,
    /// Whatever the model server makes: sound, images, text.
    Opaque,
}

pub(super) fn operation(route: &Route) -> Operation {
    let about = about(route.api);
    let operation = OperationBuilder::new()
        .operation_id(Some(operation_id(route)))
        .tag(about.tag)
        .summary(Some(summary(route, about.summary)))
        .description(alias_of(route).map(|first| format!("The same as `{first}`.")))
        .request_body(request(route, about.request))
        .responses(responses(route.api, about.answer))
        .securities(Some([SecurityRequirement::default(), SecurityRequirement::new(BEARER, Vec::<String>::new())]));
    let operation = parameters_in(route.path).fold(operation, |operation, name| {
        let parameter = ParameterBuilder::new()
            .name(name)
            .parameter_in(ParameterIn::Path)
            .required(Required::True)
            .description(Some(parameter_words(route.api)))
            .schema(Some(Object::with_type(Type::String)));
        operation.parameter(parameter)
    });
    refs_of_requests().fold(operation, OperationBuilder::parameter_ref).build()
}

/// Says what tells apart the paths of one API that are more than spellings.
fn summary(route: &Route, of_the_api: &'static str) -> &'static str {
    match route.path.rsplit('/').next() {
        Some("cancel") => "Ends a stored response that is still being made",
        Some("input_items") => "What a stored response was asked",
        Some("batch") => "Several conversations in one request",
        Some(_) | None => of_the_api,
    }
}

/// `post_v1_chat_completions`: unique, since method and path are.
fn operation_id(Route { path, method, .. }: &Route) -> String {
    let method = match method {
        Method::Get => "get",
        Method::Post => "post",
    };
    let words = path.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    words.fold(method.to_owned(), |id, word| id + "_" + word)
}

/// The path to use instead, for a second spelling.
fn alias_of(route: &Route) -> Option<&'static str> {
    // Responses by id are several operations, and a batch is another question.
    let is_alias = route.api != Api::ResponseById && !route.path.ends_with("/batch");
    let first = ROUTES.iter().find(|other| other.api == route.api).expect("a route is one of the table");
    (is_alias && first.path != route.path).then_some(first.path)
}

fn parameters_in(path: &'static str) -> impl Iterator<Item = &'static str> {
    path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
}

fn parameter_words(api: Api) -> &'static str {
    if api == Api::Model {
        "A model or adapter. Slashes and colons in its name may be escaped, or not."
    } else {
        "The id of a stored response, as the model server made it: letters, digits, `_` and `-`."
    }
}

fn request(route: &Route, body: Body) -> Option<RequestBody> {
    let content = || Content::new(Some(body.reference()));
    let form = || Content::new(Some(Body::Form.reference()));
    let request = RequestBodyBuilder::new()
        .required(Some(Required::True))
        .description(Some("May be compressed with gzip, deflate, br or zstd; it is decoded for the endpoint."));
    match route.api.body() {
        BodyShape::Json => Some(request.content(JSON, content()).build()),
        BodyShape::Multipart => Some(request.content(FORM, form()).build()),
        BodyShape::JsonOrMultipart | BodyShape::Any => {
            Some(request.content(JSON, content()).content(FORM, form()).build())
        }
        BodyShape::None => None,
    }
}

fn responses(api: Api, answer: Answer) -> Responses {
    let responses = ResponsesBuilder::new().response("200", success(api, answer));
    let responses = refusals::of(api)
        .fold(responses, |responses, (status, refused)| responses.response(status, RefOr::<Response>::Ref(refused)));
    if matches!(api, Api::Models | Api::Model) {
        return responses.build();
    }
    let unchanged = ResponseBuilder::new().description(
        "Any other status, and any other body of the ones above, is the model server's own and passes unchanged.",
    );
    responses.response("default", with_headers(api, unchanged)).build()
}

fn with_headers(api: Api, response: ResponseBuilder) -> Response {
    // The list of models is made here, and no limit counts for it.
    let limited: &[&str] = if matches!(api, Api::Models | Api::Model) { &[] } else { &RATE_LIMITS };
    let names = of_every_answer(api.dialect()).iter().chain(limited).copied();
    names.fold(response, |response, name| response.header_ref(name, ref_of_answer(name))).build()
}

fn success(api: Api, answer: Answer) -> Response {
    let json = |body: Body| Content::new(Some(body.reference()));
    let events = || Content::new(Some(Object::with_type(Type::String)));
    let response = match answer {
        Answer::Json(body) => ResponseBuilder::new().description("The answer").content(JSON, json(body)),
        Answer::JsonOrEvents(body) => ResponseBuilder::new()
            .description(
                "The answer. As an event stream when the request asks for one; it then ends with an error event, never \
                 silently, when the endpoint breaks off.",
            )
            .content(JSON, json(body))
            .content(EVENTS, events()),
        Answer::Events => ResponseBuilder::new().description("An event stream").content(EVENTS, events()),
        Answer::Opaque => ResponseBuilder::new()
            .description("The answer, in the form that the request asks for")
            .content("*/*", Content::default()),
    };
    with_headers(api, response)
}

fn about(api: Api) -> About {
    use Answer::{Events, Json, JsonOrEvents, Opaque};
    let say = |tag, summary, request, answer| About { tag, summary, request, answer };
    match api {
        Api::ChatCompletions => say("chat", "OpenAI's chat", Body::Chat, JsonOrEvents(Body::Counted)),
        Api::Responses => say("chat", "OpenAI's Responses", Body::Responses, JsonOrEvents(Body::CountedInOut)),
        Api::ResponseById => say("chat", "A stored response", Body::Open, JsonOrEvents(Body::CountedInOut)),
        Api::Messages => say("chat", "Anthropic's chat", Body::Messages, JsonOrEvents(Body::CountedInOut)),
        Api::CountTokens => say("tokens", "Tokens of an Anthropic conversation", Body::Messages, Json(Body::Open)),
        Api::Completions => say("completions", "A prompt is continued", Body::Completion, JsonOrEvents(Body::Counted)),
        Api::Generate => {
            say("completions", "The engines' own generation", Body::MayNameModel, JsonOrEvents(Body::Open))
        }
        Api::GenerateStream => {
            say("completions", "The engines' own generation, always streamed", Body::MayNameModel, Events)
        }
        Api::Invocations => {
            say("completions", "SageMaker's one path for everything", Body::MayNameModel, JsonOrEvents(Body::Counted))
        }
        Api::Embeddings => say(SCORING, "Vectors of texts", Body::Embedding, Json(Body::Counted)),
        Api::Pooling => say(SCORING, "What a pooling model makes of a text", Body::WithModel, Json(Body::Counted)),
        Api::Classify => say(SCORING, "Classes of texts", Body::WithModel, Json(Body::Counted)),
        Api::Rerank => say(SCORING, "Documents by how well they answer", Body::WithModel, Json(Body::Counted)),
        Api::Score => say(SCORING, "How well texts fit each other", Body::WithModel, Json(Body::Counted)),
        Api::Tokenize => say("tokens", "A text as tokens", Body::MayNameModel, Json(Body::Open)),
        Api::Detokenize => say("tokens", "Tokens as a text", Body::MayNameModel, Json(Body::Open)),
        Api::ImagesGenerations => say(MEDIA, "An image by its description", Body::WithModel, JsonOrEvents(Body::Open)),
        Api::ImagesEdits => say(MEDIA, "An image changed", Body::WithModel, JsonOrEvents(Body::Open)),
        Api::ImagesVariations => say(MEDIA, "An image varied", Body::Form, Json(Body::Open)),
        Api::AudioTranscriptions => say(MEDIA, "Speech as text", Body::Form, Opaque),
        Api::AudioTranslations => say(MEDIA, "Speech as English text", Body::Form, Opaque),
        Api::AudioSpeech => say(MEDIA, "Text as speech", Body::WithModel, Opaque),
        Api::Models => say("models", "What can be asked for now", Body::Open, Json(Body::ModelList)),
        Api::Model => say("models", "One model or adapter", Body::Open, Json(Body::Model)),
        Api::Extra => say("completions", "A path that the configuration adds", Body::MayNameModel, Opaque),
        Api::Other => say("routes", "A path of a route written by hand", Body::Open, Opaque),
    }
}

const SCORING: &str = "embeddings and scoring";
const MEDIA: &str = "images and audio";
