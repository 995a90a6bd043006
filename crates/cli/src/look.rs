//! Looking at a running stack again and again: what one look gives, what two say together, and how long to rest between them.
//!
//! `netchan top` and `netchan web` are two pictures of the same model.

use std::time::Duration;

pub mod model;
pub mod order;
pub mod sample;
pub mod walk;

/// The pause is at least this many times what the answers took: the stack spends a fifth of its time on them at most.
const REST: u32 = 4;

/// How long to rest after a look that `took` so long, where one is wanted at each `pace`.
pub fn pause(pace: Duration, took: Duration) -> Duration {
    pace.saturating_sub(took).max(took.saturating_mul(REST))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_answer_makes_the_pause_longer() {
        let (ms, s) = (Duration::from_millis, Duration::from_secs);
        assert_eq!(pause(s(1), ms(10)), ms(990));
        assert_eq!(pause(s(1), ms(500)), s(2));
        assert_eq!(pause(ms(200), s(5)), s(20));
    }
}
