//! Turns one InferenceGatewayConfig into a running gateway, and says in statuses how that went.
