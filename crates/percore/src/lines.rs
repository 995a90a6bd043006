//! An array of cache lines, for tables whose every entry shall cost one cache miss: zero at first, aligned to lines, in huge pages
//! where the system has them, touched only where used. One owner; no synchronisation.

use std::{io, mem::size_of, ptr::NonNull};

use crate::region::Region;

/// One cache line, as words.
pub type Line = [u64; 8];

/// The array. Its length is fixed.
#[derive(Debug)]
pub struct Lines {
    region: Region,
    len: usize,
}

impl Lines {
    /// `len` lines of zeros.
    ///
    /// # Errors
    /// When the machine has no address space for them.
    pub fn new(len: usize) -> io::Result<Self> {
        let bytes = len
            .checked_mul(size_of::<Line>())
            .ok_or(io::ErrorKind::OutOfMemory)?;
        let region = Region::new(bytes, 0)?;
        Ok(Self { region, len })
    }

    /// Number of lines.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    fn base(&self) -> NonNull<Line> {
        self.region.base().cast()
    }

    /// All of them, to read.
    #[inline]
    pub fn as_slice(&self) -> &[Line] {
        // SAFETY: the mapping has `len` lines, is aligned to a page, was zeroed, and lives as long as `self`; a writer needs `&mut self`.
        unsafe { std::slice::from_raw_parts(self.base().as_ptr(), self.len) }
    }

    /// All of them, to write.
    #[inline]
    pub fn as_mut_slice(&mut self) -> &mut [Line] {
        // SAFETY: as for `as_slice`; `&mut self` says that no other thread looks.
        unsafe { std::slice::from_raw_parts_mut(self.base().as_ptr(), self.len) }
    }

    /// Asks the processor to fetch line `at` while other work goes on; nothing happens for a line that is not there.
    #[inline]
    pub fn prefetch(&self, at: usize) {
        if let Some(line) = self.as_slice().get(at) {
            fetch(line);
        }
    }
}

#[inline]
#[cfg_attr(not(target_arch = "x86_64"), allow(clippy::missing_const_for_fn))]
fn fetch(line: &Line) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: SSE belongs to x86-64; a prefetch reads nothing that the program could see.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = line;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_aligned_and_kept() {
        let mut lines = Lines::new(70_000).expect("address space");
        assert_eq!(lines.len(), 70_000);
        assert!(!lines.is_empty());
        assert_eq!(lines.as_slice().as_ptr().addr() % 64, 0);
        assert!(lines.as_slice().iter().all(|line| *line == [0; 8]));
        for (n, line) in (0_u64..).zip(lines.as_mut_slice()) {
            line[(n % 8) as usize] = n;
        }
        lines.prefetch(69_999);
        lines.prefetch(usize::MAX);
        assert!(
            (0_u64..)
                .zip(lines.as_slice())
                .all(|(n, line)| line[(n % 8) as usize] == n)
        );
    }

    #[test]
    fn none_and_too_many() {
        assert!(Lines::new(0).expect("nothing").is_empty());
        assert!(Lines::new(usize::MAX / 8).is_err());
    }
}
