//! The OpenAPI description of both ports, made from the tables that the gateway runs on.
//!
//! Paths are checked against those that are forwarded, refusals come from the reason table, and the admin API is
//! described on its handlers, so the description changes with what it describes. Bodies are described as far as the
//! gateway reads or makes them: everything else in them belongs to the model server and passes unchanged, so a schema
//! that lists more would promise what the gateway cannot keep.

mod bodies;
mod headers;
mod operation;
mod refusals;
mod routes;
#[cfg(test)]
mod tests;

use utoipa::{
    OpenApi as _,
    openapi::{
        ComponentsBuilder, HttpMethod, InfoBuilder, LicenseBuilder, OpenApi, OpenApiBuilder, Paths, Server, Tag,
        security::{HttpAuthScheme, HttpBuilder, SecurityScheme},
        server::ServerBuilder,
        tag::TagBuilder,
    },
};

use self::{operation::operation, routes::ROUTES};
use crate::admin::AdminApi;

/// Name of the security scheme.
const BEARER: &str = "bearer";

const ABOUT: &str = "\
The gateway answers on two ports. On the **data port** it takes the requests of OpenAI, Anthropic and the model servers' \
own APIs, sends each to the endpoint that will answer it first, and passes the answer on as it comes; bodies reach the \
endpoint byte for byte, but for their decoding. On the **admin port** it tells people and Prometheus what it sees and why \
it decided as it did.

The body's `model` decides which pool a request goes to. The endpoint is told it in `x-gateway-model-name`, and the model \
behind an adapter in `x-gateway-base-model-name`; a client's copy of these, and of every other header by which a request \
could be steered, is dropped.

An error of the gateway is an OpenAI error object (Anthropic's on \
`/v1/messages`) whose `code` is from a closed list; errors of an endpoint pass unchanged. `HEAD` is answered wherever `GET` \
is. Paths that are not listed are not forwarded, unless the configuration adds them.";

/// The description of both ports.
pub fn document() -> OpenApi {
    let mut document = AdminApi::openapi();
    for (path, item) in &mut document.paths.paths {
        // Load balancers know the data port alone, so health is answered there too.
        let both = matches!(path.as_str(), "/healthz" | "/readyz");
        item.servers = Some(if both { vec![data_port(), admin_port()] } else { vec![admin_port()] });
    }
    document.merge(data_api());
    // Merging leaves these kinds of components behind.
    let components = document.components.get_or_insert_default();
    components.parameters = headers::of_requests();
    components.headers = headers::of_answers();
    document.info = InfoBuilder::new()
        .title("Inference Gateway")
        .version(env!("CARGO_PKG_VERSION"))
        .description(Some(ABOUT))
        .license(Some(LicenseBuilder::new().name("Apache-2.0").identifier(Some("Apache-2.0")).build()))
        .build();
    document
}

/// The description as `docs/openapi.yaml` holds it: the same text for the same program.
pub fn yaml() -> String {
    document().to_yaml().expect("a description of strings, numbers and maps with string keys always serialises")
}

fn data_api() -> OpenApi {
    let mut paths = Paths::new();
    for route in ROUTES {
        paths.add_path_operation(route.path, vec![http_method(route.method)], operation(route));
    }
    let bearer = HttpBuilder::new()
        .scheme(HttpAuthScheme::Bearer)
        .description(Some("Goes on to the endpoint as it came, unless the endpoint has a key of its own."))
        .build();
    let components = ComponentsBuilder::new()
        .schemas_from_iter(bodies::schemas())
        .schemas_from_iter(refusals::schemas())
        .responses_from_iter(refusals::responses())
        .security_scheme(BEARER, SecurityScheme::Http(bearer))
        .build();
    let mut api = OpenApiBuilder::new().paths(paths).components(Some(components)).tags(Some(tags())).build();
    api.servers = Some(vec![data_port()]);
    api
}

/// Methods of the table, which has two.
const fn http_method(method: routes::Method) -> HttpMethod {
    match method {
        routes::Method::Get => HttpMethod::Get,
        routes::Method::Post => HttpMethod::Post,
    }
}

fn data_port() -> Server {
    ServerBuilder::new().url("http://127.0.0.1:8080").description(Some("Data port: `--listen`")).build()
}

fn admin_port() -> Server {
    ServerBuilder::new().url("http://127.0.0.1:9090").description(Some("Admin port: `--admin`")).build()
}

/// Sections, in the order in which a reader meets them.
fn tags() -> Vec<Tag> {
    let tag = |(name, words): (&str, &str)| TagBuilder::new().name(name).description(Some(words)).build();
    [
        ("chat", "Conversations, in OpenAI's and in Anthropic's words"),
        ("completions", "Text that goes on where a prompt ends"),
        ("embeddings and scoring", "Vectors, classes, scores and rankings"),
        ("tokens", "What a model makes of a text before it reads it"),
        ("images and audio", "Models that see, draw, hear and speak"),
        ("models", "What can be asked for now; answered by the gateway"),
        ("health", "For load balancers and probes, on both ports"),
        ("operation", "What the gateway sees, and why it decided as it did"),
        ("reference", "This description"),
    ]
    .map(tag)
    .into()
}
