//! Taking what a capture of a running stack brings, until it is enough.

use std::{io, time::Duration};

use netchan::control::capture::{Capture, Entry};

use crate::{
    failure::{Outcome, failed},
    units::now_ns,
};

/// Between two looks at what ends a capture.
const LOOK: Duration = Duration::from_millis(50);
/// How long the next frame of what was taken may take to come once the end was asked for.
const LAST: Duration = Duration::from_secs(5);

/// When `after` has passed.
pub fn deadline(after: Duration) -> u64 {
    now_ns().saturating_add(u64::try_from(after.as_nanos()).unwrap_or(u64::MAX))
}

/// Gives `take` what `capture`, of the stack `id`, brings, until `is_enough`; then what the stack had taken before it heard of that. `None`: nothing came for
/// a while.
///
/// # Errors
/// What `take` says, and the stack's.
pub fn follow<T>(
    id: &str,
    capture: &mut Capture,
    taking: &mut T,
    is_enough: impl Fn(&T) -> bool,
    take: impl Fn(&mut T, &Capture, Option<Entry>) -> Outcome,
) -> Outcome {
    let wrong = |e: io::Error| failed(format!("stack {id}: {e}"));
    let mut ending = None;
    loop {
        if ending.is_none() && is_enough(taking) {
            capture.finish().map_err(wrong)?;
            ending = Some(deadline(LAST));
        }
        if ending.is_some_and(|at| now_ns() >= at) {
            return Ok(()); // the stack hangs
        }
        match capture.next(LOOK) {
            Ok(None) => return Ok(()),
            Ok(entry) => {
                let is_frame = matches!(entry, Some(Entry::Frame(_)));
                take(taking, capture, entry)?;
                // What was taken may be gigabytes, and a disk slow: a stack hangs that sends no more of it.
                ending = ending.map(|at| if is_frame { deadline(LAST) } else { at });
            }
            Err(e)
                if matches!(
                    e.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
                ) =>
            {
                take(taking, capture, None)?;
            }
            Err(e) => return Err(wrong(e)),
        }
    }
}
