//! Copies out of and into memory that another process may be reading or writing.

use std::{
    ptr::NonNull,
    sync::atomic::{AtomicU8, AtomicU64, Ordering},
};

const WORD: usize = size_of::<u64>();

/// Bytes from `at` to the next whole word, of `bytes` bytes at most.
fn before_word(at: NonNull<u8>, bytes: usize) -> usize {
    (at.addr().get().wrapping_neg() % WORD).min(bytes)
}

/// The atomic at `base + offset`.
///
/// # Safety
/// As [`copy_out`]: inside the memory, for as long as the answer is used.
unsafe fn byte<'a>(base: NonNull<u8>, offset: usize) -> &'a AtomicU8 {
    // SAFETY: the caller's.
    let at = unsafe { base.add(offset) };
    // SAFETY: as above; a byte is always aligned.
    unsafe { AtomicU8::from_ptr(at.as_ptr()) }
}

/// The atomic at `base + offset`, which is aligned.
///
/// # Safety
/// As [`byte`], and aligned to 8 bytes.
unsafe fn word<'a>(base: NonNull<u8>, offset: usize) -> &'a AtomicU64 {
    // SAFETY: the caller's.
    let at = unsafe { base.add(offset) };
    // SAFETY: as above.
    unsafe { AtomicU64::from_ptr(at.as_ptr().cast()) }
}

/// From so many bytes on, the processor's own instruction for it copies faster than word by word: about twice, in the cache.
const STRING: usize = 1024;

/// Copies `bytes` bytes by one instruction; false: this processor has none. No race is undefined here, either: to the compiler it is not a read or a write of
/// memory that it knows, and to the processor it is one of single bytes.
///
/// # Safety
/// `from` is valid for reads and `to` for writes of so many bytes, and they do not overlap.
#[inline]
unsafe fn copy_string(from: *const u8, to: *mut u8, bytes: usize) -> bool {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the caller's. The direction flag is clear, as the ABI has it; registers and memory are named.
    unsafe {
        std::arch::asm!(
            "rep movsb",
            inout("rcx") bytes => _,
            inout("rsi") from => _,
            inout("rdi") to => _,
            options(nostack, preserves_flags),
        );
    }
    cfg!(target_arch = "x86_64")
}

/// Copies out of memory that another process may be writing: each byte is some byte that was there. Relaxed atomics, word by word where they are
/// whole, so that no race is undefined; what orders the copy after the other side's writes is the ring that told of them.
///
/// # Safety
/// `from` is valid for reads of `into.len()` bytes and `into` is elsewhere. In this process no thread writes there meanwhile.
pub(crate) unsafe fn copy_out(from: NonNull<u8>, into: &mut [u8]) {
    // SAFETY: the caller's.
    if into.len() >= STRING && unsafe { copy_string(from.as_ptr(), into.as_mut_ptr(), into.len()) }
    {
        return;
    }
    let (head, rest) = into.split_at_mut(before_word(from, into.len()));
    let mut at = 0;
    for place in head {
        // SAFETY: `at` is below the length.
        *place = unsafe { byte(from, at) }.load(Ordering::Relaxed);
        at += 1;
    }
    let (words, tail) = rest.as_chunks_mut::<WORD>();
    for place in words {
        // SAFETY: a whole word below the length; aligned after the head.
        *place = unsafe { word(from, at) }
            .load(Ordering::Relaxed)
            .to_ne_bytes();
        at += WORD;
    }
    for place in tail {
        // SAFETY: `at` is below the length.
        *place = unsafe { byte(from, at) }.load(Ordering::Relaxed);
        at += 1;
    }
}

/// Copies into memory that another process may be reading or writing. As [`copy_out`].
///
/// # Safety
/// `to` is valid for writes of `from.len()` bytes and `from` is elsewhere. In this process no other thread touches them meanwhile.
pub(crate) unsafe fn copy_in(to: NonNull<u8>, from: &[u8]) {
    // SAFETY: the caller's.
    if from.len() >= STRING && unsafe { copy_string(from.as_ptr(), to.as_ptr(), from.len()) } {
        return;
    }
    let (head, rest) = from.split_at(before_word(to, from.len()));
    let mut at = 0;
    for &value in head {
        // SAFETY: `at` is below the length.
        unsafe { byte(to, at) }.store(value, Ordering::Relaxed);
        at += 1;
    }
    let (words, tail) = rest.as_chunks::<WORD>();
    for &value in words {
        // SAFETY: a whole word below the length; aligned after the head.
        unsafe { word(to, at) }.store(u64::from_ne_bytes(value), Ordering::Relaxed);
        at += WORD;
    }
    for &value in tail {
        // SAFETY: `at` is below the length.
        unsafe { byte(to, at) }.store(value, Ordering::Relaxed);
        at += 1;
    }
}
