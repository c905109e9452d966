//! `inference-gateway-controller`.

fn main() {}
