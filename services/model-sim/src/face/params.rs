//! The sampling members that OpenAI's APIs share, read into an [`Ask`].

use engine::AdapterId;

use super::Call;
use crate::{failure::Failure, fields::Fields, generation::Ask, prompt::Prompt, sim::Sim, text::Ending};

/// What a stream is to carry besides text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UsageReports {
    /// Nothing.
    None,
    /// One chunk at the end (`stream_options.include_usage`).
    AtEnd,
    /// Every chunk (`continuous_usage_stats`) and one at the end.
    Always,
}

/// Reads everything but the prompt. `limits` are the names the API has for the most tokens, first one first.
pub(super) fn ask(
    call: &Call<'_>,
    fields: Fields<'_>,
    prompt: Prompt,
    adapter: Option<AdapterId>,
    limits: &[&str],
) -> Result<Ask, Failure> {
    fields.check_number("temperature", 0.0..=2.0)?;
    fields.check_number("top_p", 0.0..=1.0)?;
    let mut tokens_max = None;
    for name in limits {
        tokens_max = tokens_max.or(fields.count(name, 1)?);
    }
    let salt = fields.string("cache_salt")?.map(str::to_owned);
    let header_priority = call.header("x-vllm-priority").and_then(|text| text.trim().parse::<i64>().ok());
    let priority = header_priority.or(fields.integer("priority")?).unwrap_or(0);
    let bounds = i64::from(i32::MIN)..=i64::from(i32::MAX);
    Ok(Ask {
        prompt: Prompt { salt, ..prompt },
        adapter,
        choices: fields.count("n", 1)?.unwrap_or(1),
        tokens_max,
        tokens_min: fields.count("min_tokens", 0)?.unwrap_or(0),
        ending: if fields.flag("ignore_eos")? { Ending::AtLimit } else { Ending::Natural },
        stop: fields.strings("stop")?,
        seed: fields.integer("seed")?.unwrap_or(0).cast_unsigned(),
        priority: priority.clamp(*bounds.start(), *bounds.end()) as i32,
        rank: call.header("x-data-parallel-rank").and_then(|text| text.parse().ok()),
    })
}

/// `stream_options`, refused where the API refuses them.
pub(super) fn usage_reports(fields: Fields<'_>, streams: bool) -> Result<UsageReports, Failure> {
    let Some(options) = fields.object("stream_options")? else { return Ok(UsageReports::None) };
    if !streams {
        let text = "Stream options can only be defined when `stream=True`.";
        return Err(Failure::invalid("stream_options", text.to_owned()));
    }
    Ok(match (options.flag("include_usage")?, options.flag("continuous_usage_stats")?) {
        (false, _) => UsageReports::None,
        (true, false) => UsageReports::AtEnd,
        (true, true) => UsageReports::Always,
    })
}

impl Sim {
    /// vLLM's fingerprint of a server.
    pub(super) fn fingerprint(&self) -> String {
        match self.options.face {
            crate::Face::Vllm => format!("vllm-{}-sim", self.options.version),
            crate::Face::Tgi => format!("{}-native", self.options.version),
            crate::Face::Sglang => String::new(),
        }
    }
}
