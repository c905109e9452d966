//! Another endpoint picker in our place: an InferencePool may name one, and then it is asked over `ext_proc`, as the
//! endpoint picker protocol has it, which endpoint each request goes to.
//!
//! One gRPC stream per request, over few HTTP/2 connections. The picker gets the head and the whole body, in pieces, and
//! names endpoints by address; only those of the pool itself count, whatever it says. What it changes of the request is
//! applied; it learns which endpoint served, and may change the answer's head. The stream stays open until the answer has
//! ended, since that is how a picker counts what runs. Answers' bodies are not sent to it, and it is told so: no token
//! waits for a second process.
//!
//! It refuses to let a picker set what belongs to the connection (length, host, framing), and to believe that an answer
//! is worthless because the picker failed after it had been given.

mod call;
mod conversation;
mod edits;
mod grpc;
mod link;
mod message;
mod place;

pub use self::{
    conversation::Conversation,
    link::Link,
    place::{Directed, Guided, direct},
};

#[cfg(test)]
mod tests;
