//! `/v1/images/generations`: a fixed tiny picture, after the time its prompt takes.

use std::sync::Arc;

use http::Response;
use serde_json::{Value, json};

use super::{Call, pooling::base64};
use crate::{
    answer::{Body, ok_json},
    failure::Failure,
    fields::Fields,
    prompt::Prompt,
    sim::Sim,
};

/// One black pixel.
const PIXEL_PNG: &[u8] = &[
    0x89, b'P', b'N', b'G', 0x0d, 0x0a, 0x1a, 0x0a, 0, 0, 0, 13, b'I', b'H', b'D', b'R', 0, 0, 0, 1, 0, 0, 0, 1, 8, 0,
    0, 0, 0, 0x3a, 0x7e, 0x9b, 0x55, 0, 0, 0, 10, b'I', b'D', b'A', b'T', 0x78, 0x9c, 0x63, 0x60, 0, 0, 0, 2, 0, 1,
    0x48, 0xaf, 0xa4, 0x71, 0, 0, 0, 0, b'I', b'E', b'N', b'D', 0xae, 0x42, 0x60, 0x82,
];
/// The API's own bound.
const IMAGES_MAX: u32 = 10;

pub(super) async fn serve(sim: &Arc<Sim>, call: &Call<'_>) -> Result<Response<Body>, Failure> {
    let body = call.json()?;
    let fields = Fields(&body);
    let asked = sim.model(fields)?;
    let text = fields.required("prompt", fields.string("prompt")?)?;
    let images = fields.count("n", 1)?.unwrap_or(1);
    if images > IMAGES_MAX {
        return Err(Failure::invalid("n", format!("n must be at most {IMAGES_MAX}, got {images}.")));
    }
    let usage = sim.prefill(&Prompt::of_text(text), asked.adapter).await?;
    let image = json!({"b64_json": base64(PIXEL_PNG), "revised_prompt": null, "url": null});
    let data: Vec<Value> = (0..images).map(|_| image.clone()).collect();
    Ok(ok_json(&json!({
        "created": sim.clock.unix(), "data": data, "output_format": "png", "size": "1x1",
        "usage": {
            "input_tokens": usage.prompt, "output_tokens": 0, "total_tokens": usage.prompt,
            "input_tokens_details": {"image_tokens": 0, "text_tokens": usage.prompt},
        },
    })))
}
