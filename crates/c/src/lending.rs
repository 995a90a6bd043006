//! The zero-copy calls: received text is shown where it lies, and text to be sent is written where it will lie.
//!
//! What was shown stays where it is until it is taken, or the stream is no more ([`Socket::peek_segments`](netchan::socket::Socket::peek_segments)): C has
//! pointers to it, and nothing here reads by them. Room to be written to is the handle's own until it is committed, another is asked for, or the socket goes.

use std::{io, mem::offset_of};

use libc::iovec;
use netchan::socket::Readiness;

use crate::{edge::fail, socket::Handle, wait};

/// A `struct iovec` as two words, which may be filled in where the stack lives.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Vector {
    /// Its address.
    pub base: usize,
    /// Bytes.
    pub len: usize,
}

const _: () = assert!(
    size_of::<Vector>() == size_of::<iovec>()
        && align_of::<Vector>() == align_of::<iovec>()
        && offset_of!(Vector, base) == offset_of!(iovec, iov_base)
        && offset_of!(Vector, len) == offset_of!(iovec, iov_len)
);

/// Shows what a stream has received, in at most as many pieces as `shown` has room for: how many. 0 is the end of the stream.
pub fn peek_segments(handle: &Handle, shown: &mut [Vector]) -> io::Result<usize> {
    if shown.is_empty() {
        return fail(libc::EINVAL);
    }
    let (never_waits, timeout) = (handle.never_waits(0), handle.receive_timeout());
    wait::until(handle, Readiness::READABLE, never_waits, timeout, || {
        let mut count = 0;
        let look = |bytes: &[u8]| {
            if let Some(place) = shown.get_mut(count).filter(|_| !bytes.is_empty()) {
                let base = bytes.as_ptr().expose_provenance();
                *place = Vector {
                    base,
                    len: bytes.len(),
                };
                count += 1;
            }
        };
        handle.socket.peek_segments(look, None)?;
        Ok(count)
    })
}

/// Takes received bytes, and copies none.
pub fn consume(handle: &Handle, n: usize) -> io::Result<usize> {
    handle.socket.consume(n)
}

/// Room for what is to be sent next, in at most as many pieces as `shown` has room for: how many.
pub fn reserve(handle: &Handle, wanted: usize, shown: &mut [Vector]) -> io::Result<usize> {
    if shown.is_empty() || wanted == 0 {
        return fail(libc::EINVAL);
    }
    let (never_waits, timeout) = (handle.never_waits(0), handle.send_timeout());
    let lease = wait::until(handle, Readiness::WRITABLE, never_waits, timeout, || {
        handle.socket.reserve(wanted, None)
    })?;
    let mut place = handle.reserved.lock();
    // Where it stays until it is committed: pointers are taken from there.
    let (lease, total) = place.insert((lease, 0));
    let mut count = 0;
    for (room, entry) in lease.slices_mut().zip(shown) {
        *total += room.len();
        *entry = Vector {
            base: room.as_mut_ptr().expose_provenance(),
            len: room.len(),
        };
        count += 1;
    }
    Ok(count)
}

/// Sends the first `n` bytes of what was written there; 0 gives the room back. EINVAL: there is none, or not so much, and it stays.
pub fn commit(handle: &Handle, n: usize) -> io::Result<usize> {
    let mut place = handle.reserved.lock();
    let Some((lease, _)) = place.take_if(|(_, total)| n <= *total) else {
        return fail(libc::EINVAL);
    };
    drop(place);
    match n {
        0 => Ok(0),
        n => handle.socket.commit(lease, n),
    }
}
