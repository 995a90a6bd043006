//! What translated code is given of a packet: the memory that its first register leads to.

use std::mem::offset_of;

/// A packet. Code reads these fields, and of `packet` no more than `there` bytes.
#[repr(C)]
pub(super) struct Context {
    pub packet: *const u8,
    /// How many bytes of it are there.
    pub there: u32,
    /// How many it has on the link.
    pub length: u32,
}

/// Where the fields lie.
pub(super) const PACKET: i16 = place(offset_of!(Context, packet));
pub(super) const THERE: i16 = place(offset_of!(Context, there));
pub(super) const LENGTH: i16 = place(offset_of!(Context, length));

/// Words of scratch memory end where the stack's pointer points.
pub(super) const SCRATCH_BYTES: i16 = place(4 * super::program::SCRATCH);

#[allow(clippy::cast_possible_truncation, clippy::cast_possible_wrap)] // of a struct of 16 bytes
const fn place(bytes: usize) -> i16 {
    assert!(bytes <= 64);
    bytes as i16
}
