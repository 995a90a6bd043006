//! The program's buffers: pointers and lengths from C, checked as far as they can be, as slices.
//!
//! NULL with a length is EFAULT, and so is all that no program can have: the first page, and the kernel's half. Other addresses that are
//! not mapped fault, where the kernel would answer EFAULT.

use std::{
    io::{self, IoSlice, IoSliceMut},
    slice,
};

use libc::{c_int, c_void, iovec, size_t};

use crate::errno::fail;

/// Linux's MAX_RW_COUNT: what one call moves at most.
const MOST: usize = 0x7fff_f000;
/// Linux's UIO_MAXIOV.
pub const VECTORS_MAX: usize = 1024;

/// What stands at the end of memory that no program has: a NULL pointer's fields are there (vm.mmap_min_addr).
const FIRST_PAGE: usize = 4096;

/// Whether no program has memory there: NULL and what is near it, and the kernel's half of all addresses.
#[inline]
pub fn is_bad<T>(pointer: *const T) -> bool {
    pointer.addr().wrapping_sub(FIRST_PAGE) > isize::MAX.unsigned_abs() - FIRST_PAGE
}

/// A buffer to receive into.
///
/// # Safety
/// `pointer` must be writable for `len` bytes as long as the slice is used, or NULL.
pub unsafe fn writable<'a>(pointer: *mut c_void, len: size_t) -> io::Result<&'a mut [u8]> {
    if len == 0 {
        return Ok(&mut []);
    }
    if is_bad(pointer) || isize::try_from(len).is_err() {
        return fail(libc::EFAULT);
    }
    // SAFETY: not NULL, not longer than a slice may be; the caller vouches for the rest.
    Ok(unsafe { slice::from_raw_parts_mut(pointer.cast(), len.min(MOST)) })
}

/// A buffer to send from.
///
/// # Safety
/// `pointer` must be readable for `len` bytes as long as the slice is used, or NULL.
pub unsafe fn readable<'a>(pointer: *const c_void, len: size_t) -> io::Result<&'a [u8]> {
    // SAFETY: the caller's; the slice is only read.
    unsafe { writable(pointer.cast_mut(), len) }.map(|buffer| &*buffer)
}

/// Checks an array of vectors as Linux does: EINVAL for a negative count or too long a sum, EMSGSIZE beyond 1024 for the
/// msg calls (`too_many`), EFAULT for NULL.
///
/// # Safety
/// `vectors` must be readable for `count` entries, or NULL.
unsafe fn vectors<'a>(
    vectors: *const iovec,
    count: usize,
    too_many: c_int,
) -> io::Result<&'a [iovec]> {
    if count > VECTORS_MAX {
        return fail(too_many);
    }
    if count == 0 {
        return Ok(&[]);
    }
    if is_bad(vectors) {
        return fail(libc::EFAULT);
    }
    // SAFETY: not NULL, at most 1024 entries; the caller vouches for the rest.
    let vectors = unsafe { slice::from_raw_parts(vectors, count) };
    let mut sum = 0_usize;
    for vector in vectors {
        if isize::try_from(vector.iov_len).is_err() {
            return fail(libc::EINVAL);
        }
        if vector.iov_len > 0 && is_bad(vector.iov_base) {
            return fail(libc::EFAULT);
        }
        sum = sum.saturating_add(vector.iov_len);
    }
    if isize::try_from(sum).is_err() {
        return fail(libc::EINVAL);
    }
    Ok(vectors)
}

/// How many vectors are turned into slices without an allocation.
const INLINE: usize = 16;

/// Runs `call` on the vectors as slices to receive into.
///
/// # Safety
/// `pointer` must be readable for `count` entries, each writable for its length; or NULL.
pub unsafe fn with_writable<T>(
    pointer: *const iovec,
    count: usize,
    too_many: c_int,
    call: impl FnOnce(&mut [IoSliceMut<'_>]) -> io::Result<T>,
) -> io::Result<T> {
    // SAFETY: the caller's.
    let vectors = unsafe { vectors(pointer, count, too_many) }?;
    if vectors.len() <= INLINE {
        let mut inline = std::array::from_fn::<_, INLINE, _>(|_| IoSliceMut::new(&mut []));
        for (slot, vector) in inline.iter_mut().zip(vectors) {
            // SAFETY: the caller's.
            *slot = IoSliceMut::new(unsafe { writable(vector.iov_base, vector.iov_len) }?);
        }
        return call(&mut inline[..vectors.len()]);
    }
    let mut many = Vec::with_capacity(vectors.len());
    for vector in vectors {
        // SAFETY: the caller's.
        many.push(IoSliceMut::new(unsafe {
            writable(vector.iov_base, vector.iov_len)
        }?));
    }
    call(&mut many)
}

/// Runs `call` on the vectors as slices to send from.
///
/// # Safety
/// `pointer` must be readable for `count` entries, each readable for its length; or NULL.
pub unsafe fn with_readable<T>(
    pointer: *const iovec,
    count: usize,
    too_many: c_int,
    call: impl FnOnce(&mut [IoSlice<'_>]) -> io::Result<T>,
) -> io::Result<T> {
    // SAFETY: the caller's.
    let vectors = unsafe { vectors(pointer, count, too_many) }?;
    if vectors.len() <= INLINE {
        let mut inline = [IoSlice::new(&[]); INLINE];
        for (slot, vector) in inline.iter_mut().zip(vectors) {
            // SAFETY: the caller's.
            *slot = IoSlice::new(unsafe { readable(vector.iov_base, vector.iov_len) }?);
        }
        return call(&mut inline[..vectors.len()]);
    }
    let mut many = Vec::with_capacity(vectors.len());
    for vector in vectors {
        // SAFETY: the caller's.
        many.push(IoSlice::new(unsafe {
            readable(vector.iov_base, vector.iov_len)
        }?));
    }
    call(&mut many)
}

#[cfg(test)]
#[path = "buffers_tests.rs"]
mod tests;
