//! Every row of the engine's table, run sped up as a server: its own clock gives the times that the formula gives.

use engine::{Batch, Profile};
use serde_json::json;

use crate::client::{get, post, sample, start};

#[tokio::test]
async fn every_configuration_answers_in_its_own_time() {
    for profile in Profile::ALL {
        let server = start(|options| {
            options.profile = profile.clone();
            options.time_scale = 0.01;
        })
        .await;
        let words = "boat river ".repeat(256);
        let body = json!({"model": "llama", "prompt": words, "max_tokens": 200, "ignore_eos": true});
        let usage = post(server.address(), "/v1/completions", &body).await.json()["usage"].clone();
        let prompt = usage["prompt_tokens"].as_f64().unwrap();
        let page = get(server.address(), "/metrics").await.text();
        let labels = "{engine=\"0\",model_name=\"llama\"}";
        let sum = |name: &str| sample(&page, &format!("vllm:{name}_seconds_sum{labels}")).unwrap() * 1e3;
        let prefill =
            Batch { prefill_tokens: prompt as u64, attention_pairs: prompt * prompt / 2.0, ..Batch::default() };
        let decode = Batch { decodes: 1, kv_tokens: prompt as u64 + 100, ..Batch::default() };
        // The API server takes 10 ms and a little, give or take a fifth; one step's jitter has a sigma of 6.5 %.
        let (first, formula) = (sum("time_to_first_token"), profile.step.mean_ms(&prefill));
        assert!(first > formula * 0.75 + 8.0 && first < formula * 1.3 + 14.0, "{}: {first} {formula}", profile.name);
        let (token, formula) = (sum("inter_token_latency") / 199.0, profile.step.mean_ms(&decode));
        assert!((token / formula - 1.0).abs() < 0.03, "{}: {token} {formula}", profile.name);
    }
}
