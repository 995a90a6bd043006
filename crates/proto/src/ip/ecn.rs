//! The two bits by which routers say that they are congested (RFC 3168 §5).

/// The ECN field of an IP header: the low two bits of the type of service or traffic class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Ecn {
    /// The transport does not understand the field.
    #[default]
    NotEct = 0b00,
    /// ECN-capable, codepoint ECT(1).
    Ect1 = 0b01,
    /// ECN-capable, codepoint ECT(0).
    Ect0 = 0b10,
    /// Congestion experienced.
    Ce = 0b11,
}

impl Ecn {
    /// Of the type of service or traffic class.
    #[inline]
    pub const fn of(tos: u8) -> Self {
        match tos & 0b11 {
            0b00 => Self::NotEct,
            0b01 => Self::Ect1,
            0b10 => Self::Ect0,
            _ => Self::Ce,
        }
    }

    /// Of a packet that begins with its IP header.
    #[inline]
    pub fn of_packet(packet: &[u8]) -> Self {
        match *packet {
            // The traffic class begins in the middle of the first octet.
            [first, second, ..] if first >> 4 == 6 => Self::of(second >> 4),
            [_, second, ..] => Self::of(second),
            _ => Self::NotEct,
        }
    }

    /// The type of service or traffic class `tos` with this in its low two bits.
    #[inline]
    pub const fn in_tos(self, tos: u8) -> u8 {
        tos & !0b11 | self as u8
    }
}
