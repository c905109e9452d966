//! How long prompts and answers are: quantiles of published traces, between which lengths are drawn evenly.
//!
//! A lognormal would be shorter to write and wrong: real lengths have steps (a shared system prompt, a limit that many
//! answers reach). Prompt and answer are drawn apart from each other; a trace read with `--trace` keeps them together.

use fastrand::Rng;
use serde::Deserialize;

/// Shares of all requests whose lengths the tables name.
const SHARES: [f64; 19] =
    [0.0, 0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.97, 0.98, 0.99, 0.995, 0.999, 1.0];

/// A built-in workload's lengths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Lengths {
    /// Azure LLM inference trace 2023, conversations (19,366 requests).
    AzureConversation,
    /// The same, code completion (8,819 requests).
    AzureCode,
    /// Mooncake, FAST'25, conversation trace (12,031 requests).
    MooncakeConversation,
    /// ShareGPT conversations as replayed against Llama-3.1-8B (300 requests).
    ShareGpt,
    /// arXiv summaries, as Vidur ships them (28,257 requests; lengths only).
    Summaries,
}

/// Tokens at each of [`SHARES`].
type Quantiles = [u32; SHARES.len()];

impl Lengths {
    /// Tokens of a prompt and of its answer.
    pub fn draw(self, rng: &mut Rng) -> (u32, u32) {
        (at(self.prompts(), rng.f64()), at(self.outputs(), rng.f64()))
    }

    const fn prompts(self) -> &'static Quantiles {
        match self {
            Self::AzureConversation => &[
                2, 29, 181, 207, 387, 403, 703, 1020, 1071, 1130, 1315, 2735, 4083, 4090, 4098, 4142, 4831, 6212, 14050,
            ],
            Self::AzureCode => &[
                3, 17, 75, 147, 386, 770, 1075, 1469, 1909, 2433, 3192, 5186, 7302, 7435, 7436, 7436, 7436, 7437, 7437,
            ],
            Self::MooncakeConversation => &[
                891, 894, 901, 964, 1662, 3263, 4993, 6909, 9570, 13196, 17869, 27367, 39552, 52215, 66425, 85401,
                100_886, 121_301, 126_195,
            ],
            Self::ShareGpt => &[
                262, 264, 308, 363, 436, 522, 621, 733, 833, 1017, 1213, 1458, 1747, 2082, 2357, 2764, 3452, 3998, 3998,
            ],
            Self::Summaries => &[
                1, 73, 749, 1242, 1802, 2150, 2453, 2730, 2996, 3249, 3490, 3702, 3813, 3863, 3892, 3933, 3963, 4012,
                4054,
            ],
        }
    }

    const fn outputs(self) -> &'static Quantiles {
        match self {
            Self::AzureConversation => {
                &[7, 16, 41, 54, 77, 91, 103, 129, 177, 384, 400, 424, 451, 509, 540, 601, 643, 954, 1000]
            }
            Self::AzureCode => &[6, 6, 6, 7, 8, 9, 11, 13, 16, 20, 29, 55, 90, 128, 172, 252, 361, 824, 1899],
            Self::MooncakeConversation => {
                &[1, 3, 10, 24, 100, 213, 291, 350, 399, 447, 504, 597, 698, 800, 891, 1120, 1570, 2000, 2000]
            }
            Self::ShareGpt => {
                &[512, 516, 524, 531, 550, 574, 592, 633, 698, 751, 768, 770, 773, 774, 777, 784, 822, 1021, 1021]
            }
            Self::Summaries => {
                &[5, 36, 60, 78, 104, 125, 145, 167, 192, 222, 268, 372, 736, 2197, 2775, 3270, 3583, 3845, 4056]
            }
        }
    }
}

/// The length that `share` of all do not exceed.
fn at(quantiles: &Quantiles, share: f64) -> u32 {
    let above = SHARES.iter().position(|&known| known >= share).unwrap_or(SHARES.len() - 1).max(1);
    let (from, to) = (SHARES[above - 1], SHARES[above]);
    let (low, high) = (f64::from(quantiles[above - 1]), f64::from(quantiles[above]));
    (low + (high - low) * ((share - from) / (to - from))).round().max(1.0) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Mean, median, P90 and P99 as published (`traces/README.md` of the sources named at each table), prompts and
    /// answers.
    #[test]
    fn drawn_lengths_have_the_published_statistics() {
        let published = [
            (Lengths::AzureConversation, [1155, 1020, 2735, 4142], [211, 129, 424, 601]),
            (Lengths::AzureCode, [2048, 1469, 5194, 7436], [28, 13, 55, 252]),
            (Lengths::MooncakeConversation, [12_035, 6909, 27_367, 85_401], [343, 350, 597, 1120]),
            (Lengths::ShareGpt, [857, 733, 1458, 2764], [653, 633, 770, 784]),
            (Lengths::Summaries, [2588, 2730, 3702, 3933], [291, 167, 372, 3270]),
        ];
        for (lengths, prompts, outputs) in published {
            let mut rng = Rng::with_seed(3);
            let drawn: Vec<(u32, u32)> = (0..40_000).map(|_| lengths.draw(&mut rng)).collect();
            check(drawn.iter().map(|d| d.0).collect(), prompts, lengths);
            check(drawn.iter().map(|d| d.1).collect(), outputs, lengths);
        }
    }

    fn check(mut drawn: Vec<u32>, [mean, p50, p90, p99]: [u32; 4], lengths: Lengths) {
        drawn.sort_unstable();
        let seen_mean = drawn.iter().map(|&d| f64::from(d)).sum::<f64>() / drawn.len() as f64;
        assert!((seen_mean / f64::from(mean) - 1.0).abs() < 0.05, "{lengths:?}: mean {seen_mean} for {mean}");
        for (share, expected) in [(0.5, p50), (0.9, p90), (0.99, p99)] {
            let seen = f64::from(drawn[(drawn.len() as f64 * share) as usize]);
            assert!((seen / f64::from(expected) - 1.0).abs() < 0.06, "{lengths:?} {share}: {seen} for {expected}");
        }
    }
}
