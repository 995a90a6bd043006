//! What comes from C as buffers.

use std::ptr;

use libc::{EFAULT, EINVAL, EMSGSIZE, iovec};

use super::{readable, with_readable, with_writable, writable};
use crate::errno;

fn code<T>(result: std::io::Result<T>) -> i32 {
    result.err().map_or(0, |error| errno::code(&error))
}

#[test]
fn null_is_a_fault_only_with_a_length() {
    // SAFETY: NULL is allowed.
    let ask = |len| unsafe { writable(ptr::null_mut(), len) };
    assert_eq!(ask(0).map(|buffer| buffer.len()).ok(), Some(0));
    assert_eq!(code(ask(1)), EFAULT);
    // SAFETY: NULL is allowed.
    let endless = unsafe { readable(ptr::null(), usize::MAX) };
    assert_eq!(code(endless), EFAULT);
}

#[test]
fn lengths_that_no_buffer_has_are_refused() {
    let mut byte = 0_u8;
    // SAFETY: refused before it is touched.
    let endless = unsafe { writable((&raw mut byte).cast(), usize::MAX) };
    assert_eq!(code(endless), EFAULT);
}

#[test]
fn vectors_are_checked_as_linux_does() {
    let mut data = [0_u8; 4];
    let good = iovec {
        iov_base: data.as_mut_ptr().cast(),
        iov_len: 4,
    };
    let null = iovec {
        iov_base: ptr::null_mut(),
        iov_len: 4,
    };
    let empty = iovec {
        iov_base: ptr::null_mut(),
        iov_len: 0,
    };
    let endless = iovec {
        iov_base: data.as_mut_ptr().cast(),
        iov_len: usize::MAX,
    };
    let sum = |vectors: &[iovec], count: usize| {
        // SAFETY: valid, or refused before it is touched.
        unsafe {
            with_readable(vectors.as_ptr(), count, EMSGSIZE, |buffers| {
                Ok(buffers.iter().map(|buffer| buffer.len()).sum::<usize>())
            })
        }
    };
    assert_eq!(sum(&[good, empty, good], 3).ok(), Some(8));
    assert_eq!(sum(&[], 0).ok(), Some(0));
    assert_eq!(code(sum(&[good, null], 2)), EFAULT);
    assert_eq!(code(sum(&[good, endless], 2)), EINVAL);
    assert_eq!(sum(&vec![good; 1024], 1024).ok(), Some(4096));
    assert_eq!(code(sum(&vec![good; 1025], 1025)), EMSGSIZE);
    // SAFETY: NULL is allowed.
    let none = unsafe { with_writable(ptr::null(), 1, EINVAL, |_| Ok(())) };
    assert_eq!(code(none), EFAULT);
}

#[test]
fn writable_vectors_reach_the_memory_behind_them() {
    let mut data = [0_u8; 40];
    let base = data.as_mut_ptr();
    let vectors: Vec<_> = (0..20)
        .map(|i| iovec {
            iov_base: base.wrapping_add(i * 2).cast(),
            iov_len: 2,
        })
        .collect();
    // SAFETY: disjoint pieces of `data`.
    let result = unsafe {
        with_writable(vectors.as_ptr(), vectors.len(), EINVAL, |buffers| {
            for (i, buffer) in buffers.iter_mut().enumerate() {
                buffer.fill(u8::try_from(i).unwrap());
            }
            Ok(buffers.len())
        })
    };
    assert_eq!(result.ok(), Some(20));
    assert_eq!(data[38], 19);
}
