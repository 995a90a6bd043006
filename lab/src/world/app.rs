//! What an application does with its connection: bulk, request and response, on and off, slow or no reading, ways to end.

use proto::time::Duration;

/// Bytes written in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Burst {
    /// How many.
    pub bytes: u64,
    /// Not before so many bytes were read.
    pub needs: u64,
    /// And this long after that.
    pub pause: Duration,
}

/// How it reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// At once, everything.
    Eager,
    /// Some bytes at a time.
    Slow {
        /// So many.
        bytes: u32,
        /// After so long.
        every: Duration,
    },
    /// Not at all for a while: the window closes.
    Stall {
        /// After so many bytes.
        from: u64,
        /// For so long.
        lasts: Duration,
    },
}

/// How it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// No more is written after the last burst; reading goes on.
    Shut,
    /// Shut, but not before the peer has ended.
    ShutAfterPeer,
    /// Nothing is written or read after the last burst and the peer's `needs` bytes.
    Close {
        /// Bytes read before.
        needs: u64,
    },
    /// Given up after so many written bytes.
    Abort {
        /// So many.
        after: u64,
    },
    /// Stays open.
    Stay,
}

/// An application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct App {
    /// What it writes.
    pub bursts: Vec<Burst>,
    /// Most bytes written and not acknowledged.
    pub send_buffer: u64,
    /// How it reads.
    pub reading: Reading,
    /// How it ends.
    pub ending: Ending,
}

impl App {
    /// Writes nothing, reads everything, ends when the peer does.
    #[must_use]
    pub const fn sink() -> Self {
        Self {
            bursts: Vec::new(),
            send_buffer: 1 << 16,
            reading: Reading::Eager,
            ending: Ending::ShutAfterPeer,
        }
    }

    /// Writes `bytes` as fast as it may, then ends.
    #[must_use]
    pub fn bulk(bytes: u64, send_buffer: u64) -> Self {
        Self {
            bursts: vec![Burst {
                bytes,
                needs: 0,
                pause: Duration::ZERO,
            }],
            send_buffer,
            reading: Reading::Eager,
            ending: Ending::Shut,
        }
    }

    /// Bytes that it writes in all.
    #[must_use]
    pub fn writes(&self) -> u64 {
        let all: u64 = self.bursts.iter().map(|b| b.bytes).sum();
        match self.ending {
            Ending::Abort { after } => all.min(after),
            _ => all,
        }
    }

    /// Whether its end may cut off what the peer has to say.
    #[must_use]
    pub const fn is_rude(&self) -> bool {
        matches!(self.ending, Ending::Close { .. } | Ending::Abort { .. })
    }
}
