//! Writing to standard output without a panic when its reader is gone, and to a terminal without its being taken over.

use std::io::{self, Write};

use serde::Serialize;

use crate::failure::{Failure, Outcome, at, failed};

/// Prints `text` as it is.
pub fn print(text: &str) -> Outcome {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Err(Failure::Unread),
        other => other.map_err(at("standard output")),
    }
}

/// Prints `facts` as JSON, indented, with a line feed.
pub fn print_json(facts: &impl Serialize) -> Outcome {
    let mut text = serde_json::to_string_pretty(facts).map_err(failed)?;
    text.push('\n');
    print(&text)
}

/// Text from elsewhere, fit for a terminal: control characters become visible.
pub fn printable(text: &str) -> String {
    if text.chars().any(char::is_control) {
        text.chars()
            .map(|c| if c.is_control() { '\u{fffd}' } else { c })
            .collect()
    } else {
        text.to_owned()
    }
}
