//! For tests: a flag that ends other threads also where an assertion fails, since the scope that they run in waits for them.

use std::sync::atomic::{AtomicBool, Ordering};

/// Sets its flag when it is dropped.
pub struct SetOnDrop<'a>(pub &'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
