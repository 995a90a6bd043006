//! What a socket is ready for.

/// What a socket is ready for, level-triggered; the bits are poll(2)'s.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Readiness(pub u16);

#[allow(missing_docs)]
impl Readiness {
    pub const NONE: Self = Self(0);
    pub const READABLE: Self = Self(0x001);
    pub const PRIORITY: Self = Self(0x002);
    pub const WRITABLE: Self = Self(0x004);
    pub const ERROR: Self = Self(0x008);
    pub const HANGUP: Self = Self(0x010);
    pub const READ_HANGUP: Self = Self(0x2000);
    /// No state, but a moment, for [`Socket::register`](crate::socket::Socket::register) only: something new can be read or accepted, whether or not what came before it was.
    /// What [`Socket::readiness`](crate::socket::Socket::readiness) says never has it.
    pub const ARRIVAL: Self = Self(0x8000);
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
    pub const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

impl std::ops::BitOr for Readiness {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}
