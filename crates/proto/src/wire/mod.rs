//! Wire formats: parse checks everything it returns, emit writes everything it owns.
//!
//! * `parse` takes bytes from anywhere. It never panics, reads nothing outside the slice, and
//!   returns values that later code may trust as far as the field's documentation goes.
//! * `emit` writes a header into the front of a buffer and returns how many bytes it wrote; 0 means
//!   that the buffer (or a length field) is too small, and then the contents are unspecified.
//! * What needs more than the bytes (our addresses, a cache, the clock) is the caller's check.

pub mod arp;
pub mod checksum;
pub mod ethernet;
pub mod icmpv4;
pub mod icmpv6;
pub mod igmp;
pub mod ipv4;
pub mod ipv6;
pub mod membership;
pub mod mld;
pub mod ndp;
mod protocol;
pub mod quote;
pub mod tcp;
pub mod udp;

pub use protocol::Protocol;

/// Why bytes are not the packet they were taken for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Error {
    /// Ends before its own fixed header does.
    Truncated,
    /// A version, type or code that is not this protocol's.
    Version,
    /// A length field that contradicts the bytes or itself.
    Length,
    /// The checksum does not match.
    Checksum,
    /// An option with an impossible length or place.
    Option,
    /// A field value the standard forbids.
    Value,
}
