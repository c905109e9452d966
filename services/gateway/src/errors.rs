//! An error with its causes in one line, for logs. What a client reads is written elsewhere, by hand.

use std::{error::Error, fmt::Write as _};

/// `error: cause: its cause`. A cause that its effect has quoted already is not said twice.
pub fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let words = error.to_string();
        if !text.ends_with(&words) {
            // Writing to a string cannot fail.
            let _ = write!(text, ": {words}");
        }
        cause = error.source();
    }
    text
}
