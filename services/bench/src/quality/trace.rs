//! Published traces, read by path: lengths that belong together, real times between arrivals, and which beginnings of
//! prompts were the same.
//!
//! Four forms are known by what stands in them: Azure's CSV (`TIMESTAMP,ContextTokens,GeneratedTokens`), Vidur's
//! (`arrived_at,num_prefill_tokens,num_decode_tokens`, or lengths alone), lengths of ShareGPT conversations
//! (`arrival_time_ns,input_tokens,output_tokens`), and Mooncake's JSON lines (`timestamp`, `input_length`,
//! `output_length`, `hash_ids` of 512 tokens each). Only Mooncake's says what prompts share. No trace is part of the
//! project.

use std::{fmt, path::Path};

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

use super::text::{Piece, draft};
use crate::world::call::{Draft, mix};

/// Tokens that one of Mooncake's hashes stands for.
const HASHED_TOKENS: u32 = 512;
/// Requests taken of one trace, at most.
const REQUESTS_MAX: usize = 2_000_000;

/// See the module's text.
#[derive(Clone, PartialEq)]
pub struct Trace {
    name: String,
    requests: Vec<Traced>,
    /// Whether it says when requests came.
    pub has_arrivals: bool,
}

/// One request.
#[derive(Clone, Debug, PartialEq)]
pub struct Traced {
    /// After the first one.
    pub at_s: f64,
    pub prompt_tokens: u32,
    pub output_tokens: u32,
    /// What the prompt consists of, where that is known.
    pub hashes: Vec<u64>,
}

#[derive(Deserialize)]
struct Mooncake {
    timestamp: f64,
    input_length: u32,
    output_length: u32,
    #[serde(default)]
    hash_ids: Vec<u64>,
}

impl Trace {
    /// # Errors
    /// The file cannot be read, or is in none of the known forms.
    pub fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Self::parse(name, &text).with_context(|| format!("{} is no trace that is known here", path.display()))
    }

    fn parse(name: String, text: &str) -> Result<Self> {
        let (mut requests, has_arrivals) =
            if text.trim_start().starts_with('{') { (mooncake(text)?, true) } else { csv(text)? };
        ensure!(!requests.is_empty(), "it is empty");
        requests.truncate(REQUESTS_MAX);
        requests.sort_by(|a, b| a.at_s.total_cmp(&b.at_s));
        let first = requests[0].at_s;
        requests.iter_mut().for_each(|request| request.at_s -= first);
        Ok(Self { name, requests, has_arrivals })
    }

    pub fn len(&self) -> usize {
        self.requests.len()
    }

    pub fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// Request number `number`, from the beginning again after the last.
    pub fn get(&self, number: usize) -> &Traced {
        &self.requests[number % self.requests.len()]
    }

    /// Time from request number `number` to the next as a multiple of the trace's mean.
    pub fn relative_gap(&self, number: usize) -> f64 {
        let number = number % self.requests.len();
        let mean = self.requests[self.requests.len() - 1].at_s / (self.requests.len() - 1).max(1) as f64;
        match self.requests.get(number + 1) {
            Some(next) if mean > 0.0 => (next.at_s - self.requests[number].at_s) / mean,
            Some(_) | None => 1.0,
        }
    }
}

impl Traced {
    /// As a request. What is not known to be shared is `serial`'s own text.
    pub fn draft(&self, serial: u64, longest: Option<(u32, u32)>) -> Draft {
        let (prompt_max, output_max) = longest.unwrap_or((u32::MAX, u32::MAX));
        let mut left = self.prompt_tokens.clamp(1, prompt_max);
        let mut prompt = Vec::with_capacity(self.hashes.len().max(1));
        for &hash in &self.hashes {
            let tokens = left.min(HASHED_TOKENS);
            prompt.push(Piece { text: mix(hash, 0x7261), tokens });
            left -= tokens;
        }
        let own = |part: u64| mix(serial, 0x006f_776e ^ part);
        prompt.push(Piece { text: own(0), tokens: left });
        prompt.retain(|piece| piece.tokens > 0);
        let shared = if self.hashes.is_empty() { 0 } else { u32::MAX };
        draft(&prompt, Piece { text: own(1), tokens: self.output_tokens.clamp(1, output_max) }, shared, None)
    }
}

/// All that a scenario's runs depend on, in a line: traces are long.
impl fmt::Debug for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fold = |hash, request: &Traced| {
            let lengths = u64::from(request.prompt_tokens) << 32 | u64::from(request.output_tokens);
            request.hashes.iter().fold(mix(hash, mix(lengths, request.at_s.to_bits())), |hash, &part| mix(hash, part))
        };
        let hash = self.requests.iter().fold(0, fold);
        write!(f, "{} with {} requests, {hash:016x}", self.name, self.requests.len())
    }
}

fn mooncake(text: &str) -> Result<Vec<Traced>> {
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let requests = lines.map(|(number, line)| {
        let Mooncake { timestamp, input_length, output_length, hash_ids } =
            serde_json::from_str(line).with_context(|| format!("line {}", number + 1))?;
        Ok(Traced {
            at_s: timestamp / 1e3,
            prompt_tokens: input_length,
            output_tokens: output_length,
            hashes: hash_ids,
        })
    });
    requests.collect()
}

fn csv(text: &str) -> Result<(Vec<Traced>, bool)> {
    let mut lines = text.lines();
    let header: Vec<&str> = lines.next().unwrap_or_default().split(',').map(str::trim).collect();
    let column = |names: &[&str]| header.iter().position(|title| names.contains(title));
    let (Some(prompt), Some(output)) = (
        column(&["ContextTokens", "num_prefill_tokens", "input_tokens"]),
        column(&["GeneratedTokens", "num_decode_tokens", "output_tokens"]),
    ) else {
        bail!("the first line names no columns of lengths");
    };
    let arrival = column(&["TIMESTAMP", "arrived_at", "arrival_time_ns"]);
    let unit_s = if arrival.is_some_and(|column| header[column] == "arrival_time_ns") { 1e-9 } else { 1.0 };
    let read = |(number, line): (usize, &str)| -> Result<Traced> {
        let fields: Vec<&str> = line.split(',').map(str::trim).collect();
        let field = |column: usize| fields.get(column).with_context(|| format!("line {} is short", number + 2));
        let tokens = |column: usize| -> Result<u32> {
            Ok(field(column)?.parse::<f64>().with_context(|| format!("line {}", number + 2))?.max(1.0) as u32)
        };
        let at_s = arrival.map(|column| seconds(field(column)?)).transpose()?.unwrap_or(0.0) * unit_s;
        Ok(Traced { at_s, prompt_tokens: tokens(prompt)?, output_tokens: tokens(output)?, hashes: Vec::new() })
    };
    let rows = lines.enumerate().filter(|(_, line)| !line.trim().is_empty()).map(read);
    Ok((rows.collect::<Result<_>>()?, arrival.is_some()))
}

/// A number, or the time of day of `2023-11-16 18:15:46.6805900`; traces of several days count from their first one's month.
fn seconds(text: &str) -> Result<f64> {
    if let Ok(number) = text.parse() {
        return Ok(number);
    }
    let (date, time) = text.split_once([' ', 'T']).with_context(|| format!("`{text}` is no time"))?;
    let day: f64 =
        date.rsplit('-').next().unwrap_or_default().parse().with_context(|| format!("`{text}` is no date"))?;
    let mut parts = time.trim_end_matches('Z').split(':').map(str::parse::<f64>);
    let mut part = || parts.next().and_then(Result::ok).with_context(|| format!("`{text}` is no time"));
    Ok(((day * 24.0 + part()?) * 60.0 + part()?) * 60.0 + part()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Trace {
        Trace::parse("t".into(), text).unwrap()
    }

    #[test]
    fn every_form_is_read() {
        let azure = parse(
            "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n2023-11-16 18:15:50.9951690,396,109\n",
        );
        let vidur = parse("arrived_at,num_prefill_tokens,num_decode_tokens\n0.0,374,44\n4.314579,396,109\n");
        let sharegpt = parse(
            "arrival_time_ns,input_tokens,output_tokens,shared_prefix_tokens_with_earlier\n0,374,44,0\n4314579000,396,109,3\n",
        );
        for trace in [azure, vidur, sharegpt] {
            assert!(trace.has_arrivals);
            assert_eq!((trace.len(), trace.get(1).prompt_tokens, trace.get(1).output_tokens), (2, 396, 109));
            assert!((trace.get(1).at_s - 4.314_579).abs() < 1e-6, "{}", trace.get(1).at_s);
        }
        let lengths = parse("num_prefill_tokens,num_decode_tokens,num_total_tokens,pd_ratio\n10,20,30,0.5\n");
        assert!(!lengths.has_arrivals);
        for unknown in ["", "a,b\n1,2\n", "arrived_at,num_prefill_tokens,num_decode_tokens\n1,x,2\n", "{\"a\": 1}\n"] {
            assert!(Trace::parse("t".into(), unknown).is_err(), "{unknown}");
        }
    }

    #[test]
    fn prompts_share_what_the_trace_says() {
        let trace = parse(
            "{\"timestamp\": 0, \"input_length\": 1200, \"output_length\": 52, \"hash_ids\": [1, 2, 3]}\n\
             {\"timestamp\": 1500, \"input_length\": 1536, \"output_length\": 26, \"hash_ids\": [1, 2, 9]}\n",
        );
        let (one, other) = (trace.get(0).draft(0, None), trace.get(1).draft(1, None));
        let alike = one.blocks.iter().zip(&other.blocks).take_while(|(a, b)| a == b).count();
        assert_eq!((one.prompt_tokens, other.prompt_tokens, alike), (1200, 1536, 64));
        assert_eq!(one.prefix.iter().zip(&other.prefix).take_while(|(a, b)| a == b).count(), 16);
        assert_eq!(trace.get(1).draft(1, Some((600, 5))).prompt_tokens, 600);
        assert!((trace.relative_gap(0) - 1.0).abs() < 1e-9);
    }
}
