//! Two connections off the fast path: what header prediction and `output_text` leave to the RFC's eight checks and to the whole of
//! `output`, each kind of segment timed by itself.

use proto::time::Instant;

use super::fast_path::{FastPath, Frame, Steps};

/// Segments of a round, of which the first is lost: three behind it tell that (RFC 6675 §2, DupThresh).
pub(crate) const ROUND: usize = 4;
/// Segments between two rounds, which let the window grow again.
const BETWEEN: usize = 32;
/// Exchanges after which what was written must have arrived.
const PATIENCE: usize = 100;

/// Cycles a segment, the median of each kind.
#[derive(Clone, Copy, Debug)]
pub struct Cycles {
    /// To take a full segment behind a hole: headers read, text queued in its run, SACK blocks made.
    pub hole_in: f64,
    /// To make the acknowledgment with SACK blocks that it asks for.
    pub sack_out: f64,
    /// To take that acknowledgment; the third of a round finds the loss.
    pub sack_in: f64,
    /// To send the lost segment again.
    pub lost_out: f64,
}

impl FastPath {
    /// The segments of a round, and when they were made.
    ///
    /// # Panics
    /// If the window does not hold them.
    pub(crate) fn round(&mut self) -> ([Frame; ROUND], Instant) {
        let mut frames = [Frame::EMPTY; ROUND];
        let now = self.write(frames.len());
        for frame in &mut frames {
            assert!(self.sender.make(frame, now), "the window holds a round");
        }
        (frames, now)
    }

    /// What was lost has been sent again: it arrives, and after it so much that the next round finds a window as wide.
    ///
    /// # Panics
    /// If something does not arrive.
    pub(crate) fn recover(&mut self, again: &Frame, now: Instant) {
        self.receiver.take(again, now);
        self.exchange();
        let wanted = self.received() + FastPath::bytes(BETWEEN);
        self.write(BETWEEN);
        for _ in 0..PATIENCE {
            if self.received() == wanted {
                return;
            }
            self.exchange();
        }
        panic!("what was written does not arrive");
    }

    /// Cycles of `rounds` rounds, one step at a time.
    ///
    /// # Panics
    /// If a step does not lead where it should: then something else would be timed.
    pub fn measure_slow(&mut self, rounds: usize) -> Cycles {
        let [mut hole_in, mut sack_out] = [(); 2].map(|()| Steps::default());
        let [mut sack_in, mut lost_out] = [(); 2].map(|()| Steps::default());
        let (mut answer, mut again) = (Frame::EMPTY, Frame::EMPTY);
        for _ in 0..rounds {
            let ([lost, behind @ ..], now) = self.round();
            for frame in &behind {
                hole_in.time(|| self.receiver.take(frame, now));
                let asked = sack_out.time(|| self.receiver.make(&mut answer, now));
                assert!(asked, "RFC 5681 §4.2: at once");
                sack_in.time(|| self.sender.take(&answer, now));
            }
            let made = lost_out.time(|| self.sender.make(&mut again, now));
            assert!(made && again.repeats(&lost), "the lost segment again");
            self.recover(&again, now);
        }
        Cycles {
            hole_in: hole_in.median(),
            sack_out: sack_out.median(),
            sack_in: sack_in.median(),
            lost_out: lost_out.median(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_round_is_one_loss_found_by_sack_and_repaired() {
        let mut path = FastPath::new();
        let cycles = path.measure_slow(40);
        let counts = path.sender.info();
        assert_eq!(counts.retransmits, 40, "one each, none by a timeout");
        let all = [
            cycles.hole_in,
            cycles.sack_out,
            cycles.sack_in,
            cycles.lost_out,
        ];
        assert!(all.iter().all(|&cycles| cycles > 0.0), "{cycles:?}");
    }
}
