//! What a link's driver or a module says of the threads that may call it (F3, F4).

use std::fmt;

/// Which threads may call at once (F3, F4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Concurrency {
    /// Any number of threads.
    #[default]
    Any,
    /// Only the thread that holds Giant, the one lock of a stack.
    Giant,
}

impl fmt::Display for Concurrency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Any => "any",
            Self::Giant => "giant",
        })
    }
}
