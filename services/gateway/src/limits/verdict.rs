//! What a request takes of its caller's tokens: an estimate when it comes, and what is known when it ends.
//!
//! A caller pays for what was produced, and for nothing that others are to blame for. What no one can know is left as it
//! was estimated: an answer that is no stream and says nothing of its tokens, or is compressed so that nobody here can
//! read it, must not be a way around a quota.

use flow_control::quota::{End, Tokens};
use protocol::{Api, Reason, Usage};

use crate::metrics::Outcome;

/// Tokens of an answer whose request names no bound.
const OUTPUT_TOKENS_UNBOUNDED: u64 = 512;

/// What will be charged when a request comes.
pub fn estimate(api: Api, prompt_tokens: u32, output_tokens_max: Option<u32>) -> Tokens {
    let input = u64::from(prompt_tokens);
    let output = output_tokens_max.map_or(OUTPUT_TOKENS_UNBOUNDED, u64::from);
    match api {
        Api::ChatCompletions
        | Api::Completions
        | Api::Responses
        | Api::Messages
        | Api::Generate
        | Api::GenerateStream
        | Api::Invocations
        | Api::Extra
        | Api::Other => Tokens { input, output },
        Api::Embeddings | Api::Pooling | Api::Classify | Api::Rerank | Api::Score => Tokens { input, output: 0 },
        // No model computes tokens for them, or nobody says how many.
        Api::Models
        | Api::Model
        | Api::ResponseById
        | Api::Tokenize
        | Api::Detokenize
        | Api::CountTokens
        | Api::ImagesGenerations
        | Api::ImagesEdits
        | Api::ImagesVariations
        | Api::AudioTranscriptions
        | Api::AudioTranslations
        | Api::AudioSpeech => Tokens::default(),
    }
}

/// What was seen of a request until its end.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    /// What it was charged at first.
    pub estimate: Tokens,
    /// How it ended.
    pub outcome: Outcome,
    /// The status that was passed on; `None` before there was one.
    pub status: Option<u16>,
    /// What the answer said of its tokens.
    pub usage: Option<Usage>,
    /// The answer is an event stream that can be read.
    pub is_stream: bool,
    /// Content events that passed.
    pub events: u64,
    /// An endpoint was chosen for it.
    pub dispatched: bool,
}

impl Seen {
    /// How its charge ends.
    pub fn end(&self) -> End {
        if let Some(usage) = self.usage {
            return End::Took(Tokens { input: usage.prompt_tokens, output: usage.completion_tokens });
        }
        if self.events > 0 {
            return End::Took(Tokens { output: self.events, ..self.estimate });
        }
        let is_success = self.status.is_some_and(|status| (200..300).contains(&status));
        match self.outcome {
            Outcome::Refused(reason) if is_ours(reason) => End::NotServed,
            // Its prompt was perhaps computed, for a client that did not wait.
            Outcome::Refused(Reason::ClientGone) if self.dispatched && self.status.is_none() => {
                End::Took(Tokens { output: 0, ..self.estimate })
            }
            Outcome::Refused(Reason::EndpointBroke | Reason::EndpointTimeout) => End::Took(Tokens::default()),
            // A stream without content produced nothing; any other answer is whole in the engine before it begins.
            _ if is_success && self.is_stream => End::Took(Tokens { output: 0, ..self.estimate }),
            _ if is_success => End::Took(self.estimate),
            Outcome::Ok | Outcome::Redirect | Outcome::Upstream4xx | Outcome::Upstream5xx | Outcome::Refused(_) => {
                End::Took(Tokens::default())
            }
        }
    }
}

/// Whether a request refused for this was never served: its caller gets everything back, the request itself, too.
const fn is_ours(reason: Reason) -> bool {
    match reason {
        Reason::InvalidRequest
        | Reason::ModelRequired
        | Reason::UnsupportedEncoding
        | Reason::Unauthenticated
        | Reason::Forbidden
        | Reason::ModelNotFound
        | Reason::PathNotFound
        | Reason::BodyTooLarge
        | Reason::HeadTooLarge
        | Reason::RequestTimeout
        | Reason::RouteInvalid
        | Reason::QuotaExceeded
        | Reason::QueueFull
        | Reason::ExpiredInQueue
        | Reason::Shed
        | Reason::Evicted
        | Reason::NoEndpoint
        | Reason::EndpointUnreachable
        | Reason::BodyMemory
        | Reason::Draining
        | Reason::Internal => true,
        Reason::EndpointBroke | Reason::EndpointTimeout | Reason::ClientGone => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ESTIMATE: Tokens = Tokens { input: 100, output: 512 };
    const NOTHING: End = End::Took(Tokens { input: 0, output: 0 });

    const fn took(input: u64, output: u64) -> End {
        End::Took(Tokens { input, output })
    }

    fn seen(outcome: Outcome, status: Option<u16>) -> Seen {
        Seen { estimate: ESTIMATE, outcome, status, usage: None, is_stream: false, events: 0, dispatched: true }
    }

    #[test]
    fn every_way_out_has_its_price() {
        let stream = |outcome, events| Seen { is_stream: true, events, ..seen(outcome, Some(200)) };
        let usage = Some(Usage { prompt_tokens: 90, cached_tokens: 40, completion_tokens: 7 });
        let gone = Outcome::Refused(Reason::ClientGone);
        let broke = Outcome::Refused(Reason::EndpointBroke);
        for (seen, end) in [
            // An answer that says what it took.
            (Seen { usage, ..seen(Outcome::Ok, Some(200)) }, took(90, 7)),
            (Seen { usage, ..stream(Outcome::Ok, 5) }, took(90, 7)),
            (Seen { usage, ..stream(gone, 5) }, took(90, 7)),
            // A stream that does not, whole or cut by whomever.
            (stream(Outcome::Ok, 5), took(100, 5)),
            (stream(gone, 5), took(100, 5)),
            (stream(broke, 5), took(100, 5)),
            (stream(Outcome::Ok, 0), took(100, 0)),
            // An answer nobody can read.
            (seen(Outcome::Ok, Some(200)), took(100, 512)),
            (seen(gone, Some(200)), took(100, 512)),
            // Endpoints that fail or refuse.
            (seen(Outcome::Upstream4xx, Some(400)), NOTHING),
            (seen(Outcome::Upstream5xx, Some(500)), NOTHING),
            (seen(broke, None), NOTHING),
            (seen(broke, Some(200)), NOTHING),
            (stream(broke, 0), NOTHING),
            (seen(gone, Some(500)), NOTHING),
            (seen(Outcome::Refused(Reason::EndpointTimeout), None), NOTHING),
            // Clients that leave before anything came: in the queue, and at an endpoint.
            (Seen { dispatched: false, ..seen(gone, None) }, NOTHING),
            (seen(gone, None), took(100, 0)),
            // Refusals of ours.
            (seen(Outcome::Refused(Reason::QueueFull), None), End::NotServed),
            (seen(Outcome::Refused(Reason::ExpiredInQueue), None), End::NotServed),
            (seen(Outcome::Refused(Reason::EndpointUnreachable), None), End::NotServed),
            (seen(Outcome::Refused(Reason::Evicted), None), End::NotServed),
            (seen(Outcome::Refused(Reason::Internal), None), End::NotServed),
        ] {
            assert_eq!(seen.end(), end, "{seen:?}");
        }
    }

    #[test]
    fn only_what_generates_is_charged_for_an_answer() {
        assert_eq!(estimate(Api::ChatCompletions, 10, None), Tokens { input: 10, output: 512 });
        assert_eq!(estimate(Api::Messages, 10, Some(3)), Tokens { input: 10, output: 3 });
        assert_eq!(estimate(Api::Embeddings, 10, Some(3)), Tokens { input: 10, output: 0 });
        assert_eq!(estimate(Api::Tokenize, 10, None), Tokens::default());
    }
}
