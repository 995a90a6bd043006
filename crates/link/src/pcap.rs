//! Links and capture files: what passes any link written down as pcapng, and a file played back as a link.

mod capture;
mod replay;
#[cfg(test)]
mod tests;

pub use capture::Capture;
pub use replay::{Options, Pace, Replay};
