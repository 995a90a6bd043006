//! Wire formats: parse checks everything it returns, emit writes everything it owns.

pub mod checksum;
pub mod ethernet;
pub mod arp;
pub mod icmpv4;
pub mod icmpv6;
pub mod ipv4;
pub mod ipv6;
pub mod ndp;
pub mod tcp;
pub mod udp;

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
