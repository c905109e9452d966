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
    0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a, 0x00, 0x00, 0x00, 0x0d, 0x49, 0x48, 0x44, 0x52, 0x00, 0x00, 0x00,
    0x01, 0x00, 0x00, 0x00, 0x01, 0x08, 0x00, 0x00, 0x00, 0x00, 0x3a, 0x7e, 0x9b, 0x55, 0x00, 0x00, 0x00, 0x0a, 0x49,
    0x44, 0x41, 0x54, 0x78, 0xda, 0x63, 0x60, 0x00, 0x00, 0x00, 0x02, 0x00, 0x01, 0xe5, 0x27, 0xde, 0xfc, 0x00, 0x00,
    0x00, 0x00, 0x49, 0x45, 0x4e, 0x44, 0xae, 0x42, 0x60, 0x82,
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
