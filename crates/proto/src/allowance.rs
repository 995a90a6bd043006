//! Memory that many queues hold together, and how much they may hold: two plain numbers. The owner of memory that
//! several threads share sets the second.

/// What is held, and what may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowance {
    held: u64,
    allowed: u64,
}

impl Default for Allowance {
    /// Nothing held, everything allowed.
    fn default() -> Self {
        Self {
            held: 0,
            allowed: u64::MAX,
        }
    }
}

impl Allowance {
    /// Bytes held.
    #[inline]
    pub const fn held(&self) -> u64 {
        self.held
    }

    /// Bytes that may be held.
    #[inline]
    pub const fn allowed(&self) -> u64 {
        self.allowed
    }

    /// Bytes that may still be added.
    #[inline]
    pub const fn spare(&self) -> u64 {
        self.allowed.saturating_sub(self.held)
    }

    /// Whether `bytes` more would be too much.
    #[inline]
    pub const fn lacks(&self, bytes: usize) -> bool {
        self.held + bytes as u64 > self.allowed
    }

    /// From now on so much may be held. What is held already stays, also if it is more.
    pub const fn allow(&mut self, bytes: u64) {
        self.allowed = bytes;
    }

    /// So many bytes more are held, whether they were allowed or not.
    #[inline]
    pub const fn add(&mut self, bytes: usize) {
        self.held += bytes as u64;
    }

    /// Of what was added `before` bytes are now `after`.
    #[inline]
    pub const fn change(&mut self, before: u64, after: u64) {
        self.held = self.held - before + after;
    }

    /// So many bytes, added before, are free again.
    #[inline]
    pub const fn remove(&mut self, bytes: usize) {
        self.held -= bytes as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allowance_without_limit_allows_everything() {
        let mut memory = Allowance::default();
        memory.add(1 << 40);
        assert!(!memory.lacks(usize::MAX >> 2));
        memory.remove(1 << 40);
        assert_eq!(memory.held(), 0);
    }

    #[test]
    fn a_limit_below_what_is_held_takes_nothing_away() {
        let mut memory = Allowance::default();
        memory.add(100);
        memory.allow(60);
        assert_eq!((memory.held(), memory.spare()), (100, 0));
        assert!(memory.lacks(0) && memory.lacks(1));
        memory.remove(50);
        assert_eq!(memory.spare(), 10);
        assert!(!memory.lacks(10) && memory.lacks(11));
    }
}
