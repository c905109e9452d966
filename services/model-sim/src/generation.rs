//! One request to generate: planned, handed to the engine, followed to its end.

use std::{
    future::poll_fn,
    task::{Context, Poll},
};

use engine::{AdapterId, Request, RequestId, SubmitError};

use crate::{
    driver::{Ticket, Update},
    failure::Failure,
    kv_events::Text,
    options::{Face, Version},
    prompt::Prompt,
    sim::Sim,
    text::{Ending, Plan, PlanRequest, plan, token_id},
};

/// What a client asked to be generated.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ask {
    pub(crate) prompt: Prompt,
    pub(crate) adapter: Option<AdapterId>,
    /// Answers wanted, at least 1.
    pub(crate) choices: u32,
    /// Tokens per answer, at most; `None` = as many as fit.
    pub(crate) tokens_max: Option<u32>,
    pub(crate) tokens_min: u32,
    pub(crate) ending: Ending,
    pub(crate) stop: Vec<String>,
    /// The request's own seed.
    pub(crate) seed: u64,
    /// Lower is earlier.
    pub(crate) priority: i32,
    /// The data-parallel rank asked for.
    pub(crate) rank: Option<usize>,
}

/// A request in the engine. Dropping it gives it up.
#[derive(Debug)]
pub(crate) struct Generation {
    prompt_tokens: u32,
    choices: Vec<Choice>,
    cached_tokens: u32,
    generated: u32,
}

#[derive(Debug)]
struct Choice {
    plan: Plan,
    ticket: Ticket,
    sent: usize,
}

/// What one choice has more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Delta {
    pub(crate) choice: usize,
    pub(crate) text: String,
    /// Whether nothing came before.
    pub(crate) first: bool,
    /// Set with the last text.
    pub(crate) end: Option<End>,
}

/// Why a choice ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The model was done.
    Turn,
    /// This stop string came.
    StopString(String),
    /// The limit was reached.
    Limit,
}

/// Tokens of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    pub(crate) prompt: u32,
    pub(crate) cached: u32,
    pub(crate) completion: u32,
}

/// Answers to one request.
const CHOICES_MAX: u32 = 128;

impl Sim {
    /// Takes a request, or says why not.
    pub(crate) fn generate(&self, ask: &Ask) -> Result<Generation, Failure> {
        self.check_queue()?;
        let room = self.room(ask)?;
        let tokens_max = ask.tokens_max.unwrap_or(room).min(room);
        let block_tokens = self.options.profile.block_tokens as usize;
        let adapter = ask.adapter.map_or(0, |adapter| u64::from(adapter.0) + 1);
        let hash = ask.prompt.hash() ^ self.options.seed ^ ask.seed.rotate_left(17) ^ adapter.rotate_left(41);
        let mut choices = Vec::new();
        for number in 0..ask.choices {
            let plan = plan(&PlanRequest {
                seed: hash.wrapping_add(u64::from(number)),
                tokens_max,
                tokens_min: ask.tokens_min.min(tokens_max),
                ending: ask.ending,
                stop: &ask.stop,
            });
            let request = Request {
                id: RequestId(0),
                blocks: ask.prompt.blocks(plan.pieces.iter().map(|piece| token_id(piece)), block_tokens),
                prompt_tokens: ask.prompt.tokens.len() as u32,
                output_tokens: plan.tokens(),
                max_tokens: Some(tokens_max),
                adapter: ask.adapter,
                priority: ask.priority,
            };
            let text = || self.text(&ask.prompt, plan.pieces.iter().map(|piece| token_id(piece)), ask.adapter);
            let ticket = self.driver.submit(request, ask.rank, text).map_err(|error| self.refusal(error))?;
            choices.push(Choice { plan, ticket, sent: 0 });
        }
        Ok(Generation { prompt_tokens: ask.prompt.tokens.len() as u32, choices, cached_tokens: 0, generated: 0 })
    }

    /// Runs a prompt through the engine without generating, as embeddings and scores do. Returns its usage.
    pub(crate) async fn prefill(&self, prompt: &Prompt, adapter: Option<AdapterId>) -> Result<Usage, Failure> {
        self.check_queue()?;
        let ask = Ask { prompt: prompt.clone(), ..Ask::default() };
        self.room(&ask)?;
        let tokens = prompt.tokens.len() as u32;
        let request = Request {
            id: RequestId(0),
            blocks: prompt.blocks(std::iter::empty(), self.options.profile.block_tokens as usize),
            prompt_tokens: tokens,
            output_tokens: 0,
            max_tokens: None,
            adapter,
            priority: 0,
        };
        let text = || self.text(prompt, std::iter::empty(), adapter);
        let mut ticket = self.driver.submit(request, None, text).map_err(|error| self.refusal(error))?;
        let update = ticket.next().await;
        Ok(Usage { prompt: tokens, cached: update.cached_tokens, completion: 0 })
    }

    /// What a request consists of, for those who follow KV blocks.
    fn text(&self, prompt: &Prompt, answer: impl Iterator<Item = u32>, adapter: Option<AdapterId>) -> Text {
        Text {
            tokens: prompt.tokens.iter().copied().chain(answer).collect(),
            adapter: adapter.map(|id| (id, self.adapters.names(&[id]))),
            salt: prompt.salt.clone(),
        }
    }

    /// Tokens that fit behind the prompt.
    fn room(&self, ask: &Ask) -> Result<u32, Failure> {
        let (max, prompt) = (self.context_tokens_max(), ask.prompt.tokens.len());
        if ask.choices > CHOICES_MAX {
            return Err(Failure::invalid("n", format!("n must be at most {CHOICES_MAX}, got {}.", ask.choices)));
        }
        if prompt == 0 {
            return Err(Failure::invalid("prompt", "The decoder prompt cannot be empty".to_owned()));
        }
        if prompt >= max as usize {
            return Err(Failure::too_long(prompt, max));
        }
        let room = max - prompt as u32;
        let clamps = self.options.face != Face::Vllm || self.options.version >= Version(0, 33, 0);
        match ask.tokens_max {
            Some(wanted) if wanted > room && !clamps => Err(Failure::invalid(
                "max_tokens",
                format!(
                    "'max_tokens' or 'max_completion_tokens' is too large: {wanted}. This model's maximum context \
                     length is {max} tokens and your request has {prompt} input tokens ({wanted} > {max} - {prompt})."
                ),
            )),
            _ => Ok(room),
        }
    }

    fn check_queue(&self) -> Result<(), Failure> {
        let full = match self.options.face {
            Face::Vllm | Face::Sglang => {
                self.options.queued_requests_max.is_some_and(|max| self.driver.waiting() >= max)
            }
            Face::Tgi => self.driver.live() >= self.options.concurrent_requests_max,
        };
        if !full {
            return Ok(());
        }
        self.web.note_rejected_for_queue();
        Err(Failure::queue_full(self.options.face))
    }

    fn refusal(&self, error: SubmitError) -> Failure {
        match error {
            SubmitError::TooLong { tokens, max } => Failure::too_long(tokens as usize, max),
            SubmitError::EmptyPrompt => Failure::invalid("prompt", "The decoder prompt cannot be empty".to_owned()),
            SubmitError::IdInUse(_) | SubmitError::Full { .. } => Failure::queue_full(self.options.face),
        }
    }
}

impl Generation {
    /// The next piece of any choice; `None` when all have ended.
    pub(crate) async fn next(&mut self) -> Option<Delta> {
        if self.choices.iter().all(|choice| choice.ticket.ended()) {
            return None;
        }
        Some(poll_fn(|context| self.poll_next(context)).await)
    }

    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Delta> {
        for index in 0..self.choices.len() {
            let choice = &mut self.choices[index];
            if choice.ticket.ended() {
                continue;
            }
            if let Poll::Ready(update) = choice.ticket.poll_next(context) {
                let delta = choice.take(index, update);
                self.cached_tokens = self.cached_tokens.max(update.cached_tokens);
                self.generated += update.tokens;
                self.note_end();
                return Poll::Ready(delta);
            }
        }
        Poll::Pending
    }

    fn note_end(&self) {
        let longest = self.choices.iter().map(|choice| choice.sent as u32).max().unwrap_or(0);
        if let Some(first) = self.choices.first().filter(|_| self.choices.iter().all(|c| c.ticket.ended())) {
            first.ticket.note_parent(self.choices.len(), longest);
        }
    }

    /// Waits until all choices have ended; their texts and ends.
    pub(crate) async fn finish(&mut self) -> Vec<(String, End)> {
        let mut all = vec![(String::new(), End::Limit); self.choices.len()];
        while let Some(delta) = self.next().await {
            all[delta.choice].0.push_str(&delta.text);
            if let Some(end) = delta.end {
                all[delta.choice].1 = end;
            }
        }
        all
    }

    /// Tokens so far.
    pub(crate) fn usage(&self) -> Usage {
        Usage { prompt: self.prompt_tokens, cached: self.cached_tokens, completion: self.generated }
    }
}

impl Choice {
    fn take(&mut self, choice: usize, update: Update) -> Delta {
        let (from, to) = (self.sent, (self.sent + update.tokens as usize).min(self.plan.pieces.len()));
        self.sent = to;
        let end = update.finished.map(|_| match &self.plan {
            Plan { stopped_by: Some(stop), .. } => End::StopString(stop.clone()),
            Plan { at_limit: true, .. } => End::Limit,
            Plan { .. } => End::Turn,
        });
        Delta { choice, text: self.plan.text(from, to), first: from == 0, end }
    }
}

impl End {
    /// OpenAI's `finish_reason`.
    pub(crate) fn reason(&self) -> &'static str {
        match self {
            Self::Turn | Self::StopString(_) => "stop",
            Self::Limit => "length",
        }
    }

    /// The matched stop string as JSON.
    pub(crate) fn stop_json(&self) -> serde_json::Value {
        match self {
            Self::StopString(stop) => stop.clone().into(),
            Self::Turn | Self::Limit => serde_json::Value::Null,
        }
    }
}

impl Usage {
    /// As OpenAI answers have it.
    pub(crate) fn to_json(self) -> serde_json::Value {
        serde_json::json!({
            "prompt_tokens": self.prompt,
            "total_tokens": self.prompt + self.completion,
            "completion_tokens": self.completion,
            "prompt_tokens_details": {"cached_tokens": self.cached},
        })
    }

    /// The sum of two.
    pub(crate) fn plus(self, other: Self) -> Self {
        Self {
            prompt: self.prompt + other.prompt,
            cached: self.cached + other.cached,
            completion: self.completion + other.completion,
        }
    }
}
