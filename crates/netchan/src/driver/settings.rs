//! TCP's settings of a running stack: which of them may be changed (see [`Tcp::configure`](crate::net::Tcp::configure)).

use std::io;

use proto::tcp::Config;

use crate::errno::invalid;

/// Whether a running stack may go from one to the other.
///
/// # Errors
/// `InvalidInput`: one differs that belongs to memory reserved at the start, or to an interface.
pub fn check_change(before: &Config, after: &Config) -> io::Result<()> {
    match changed_for_good(before, after) {
        None => Ok(()),
        Some(name) => Err(invalid(format!(
            "tcp.{name} cannot be changed while the stack runs"
        ))),
    }
}

/// The first setting that differs although it stays as it was at the start.
fn changed_for_good(before: &Config, after: &Config) -> Option<&'static str> {
    let of = |config: &Config| {
        [
            ("mss", u32::from(config.mss)),
            ("default_mss", config.default_mss.into()),
            ("receive_buffer", config.receive_buffer),
            ("receive_buffer_max", config.receive_buffer_max),
            ("max_segments", config.max_segments),
        ]
    };
    let pairs = of(before).into_iter().zip(of(after));
    pairs
        .filter(|(before, after)| before != after)
        .map(|(before, _)| before.0)
        .next()
}
