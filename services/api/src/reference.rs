//! x
pub fn config_reference_markdown() -> String {
    String::new()
}
/// s
pub fn config_json_schema() -> serde_json::Value {
    crate::schema::json::<crate::document::InferenceGatewayConfig>()
}
