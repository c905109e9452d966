//! Our own layers, one per stage, in the order of the pipeline.

pub mod authenticate;
pub mod dispatch;
pub mod limit;
pub mod observe;
pub mod route;
