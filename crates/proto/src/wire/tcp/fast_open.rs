//! The Fast Open option (RFC 7413 §4.1.1), in its own form and in the experimental one that came before it (RFC 6994).

use super::options::kind;

/// What a SYN or SYN-ACK says of Fast Open: a cookie, or that one is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FastOpen {
    /// As experiment 0xF989 under kind 254, not under kind 34.
    pub experimental: bool,
    len: u8,
    bytes: [u8; Self::COOKIE_MAX],
}

impl FastOpen {
    /// Bytes of the shortest cookie (RFC 7413 §4.1.1).
    pub const COOKIE_MIN: usize = 4;
    /// Bytes of the longest.
    pub const COOKIE_MAX: usize = 16;
    /// The experiment's number.
    pub(super) const EXPERIMENT: [u8; 2] = [0xf9, 0x89];

    /// Asks for a cookie.
    pub const fn request(experimental: bool) -> Self {
        Self {
            experimental,
            len: 0,
            bytes: [0; Self::COOKIE_MAX],
        }
    }

    /// Carries `cookie`: 4 to 16 bytes, an even number. `None` for another.
    pub fn new(cookie: &[u8], experimental: bool) -> Option<Self> {
        let is_valid = cookie.len() >= Self::COOKIE_MIN && cookie.len().is_multiple_of(2);
        let mut option = Self::request(experimental);
        let place = option.bytes.get_mut(..cookie.len()).filter(|_| is_valid)?;
        place.copy_from_slice(cookie);
        option.len = u8::try_from(cookie.len()).ok()?;
        Some(option)
    }

    /// What an option says whose data are `cookie`; one that is no cookie says nothing.
    pub(super) fn read(cookie: &[u8], experimental: bool) -> Option<Self> {
        match cookie {
            [] => Some(Self::request(experimental)),
            _ => Self::new(cookie, experimental),
        }
    }

    /// Whether it asks for a cookie.
    pub const fn is_request(&self) -> bool {
        self.len == 0
    }

    /// The cookie; empty: it asks for one.
    pub fn cookie(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.len)).unwrap_or_default()
    }

    /// Bytes of the option.
    const fn len(self) -> usize {
        let head = if self.experimental { 4 } else { 2 };
        head + self.len as usize
    }

    /// Length, padding included.
    pub(super) const fn padded(self) -> usize {
        self.len().next_multiple_of(4)
    }

    /// Writes it, and NOPs behind it up to a multiple of four.
    pub(super) fn emit(self, mut put: impl FnMut(&[u8])) {
        let len = u8::try_from(self.len()).unwrap_or(u8::MAX);
        if self.experimental {
            let [high, low] = Self::EXPERIMENT;
            put(&[kind::EXPERIMENT, len, high, low]);
        } else {
            put(&[kind::FAST_OPEN, len]);
        }
        put(self.cookie());
        for _ in self.len()..self.padded() {
            put(&[kind::NOP]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::tcp::{Flags, Header, Options, Timestamps};

    fn round_trip(options: Options, flags: Flags) -> (usize, Option<FastOpen>) {
        let header = Header {
            flags,
            options,
            ..Header::default()
        };
        let mut bytes = [0xaa; 60];
        let len = header.emit(&mut bytes);
        let (read, at) = Header::parse(&bytes[..len]).unwrap();
        assert_eq!(at, len);
        (len, read.options.fast_open)
    }

    #[test]
    fn both_forms_are_written_and_read() {
        for experimental in [false, true] {
            for len in [0, 4, 6, 8, 14, 16] {
                let cookie: std::vec::Vec<u8> = (1..=len).collect();
                let option = FastOpen::read(&cookie, experimental);
                let options = Options {
                    fast_open: option,
                    ..Options::default()
                };
                let (size, read) = round_trip(options, Flags::SYN);
                assert_eq!(read, option);
                let head = if experimental { 4 } else { 2 };
                assert_eq!(size, 20 + (head + usize::from(len)).next_multiple_of(4));
                // RFC 7413 §4.1.1: only in segments with SYN.
                assert_eq!(round_trip(options, Flags::ACK), (20, None));
            }
        }
    }

    #[test]
    fn a_cookie_has_4_to_16_bytes_and_an_even_number() {
        // RFC 7413 §4.1.1.
        for len in 0..30_usize {
            let valid = (4..=16).contains(&len) && len % 2 == 0;
            assert_eq!(
                FastOpen::new(&[7; 30][..len], false).is_some(),
                valid,
                "{len}"
            );
        }
        let mut bytes = [0; 28];
        bytes[12] = 7 << 4;
        bytes[13] = 2;
        bytes[20..28].copy_from_slice(&[34, 7, 1, 2, 3, 4, 5, 0]);
        let (header, _) = Header::parse(&bytes).unwrap();
        assert_eq!(header.options.fast_open, None, "five bytes");
    }

    #[test]
    fn a_full_syn_has_room_for_the_longest_cookie() {
        let options = Options {
            mss: Some(1460),
            window_scale: Some(7),
            sack_permitted: true,
            timestamps: Some(Timestamps { value: 1, echo: 2 }),
            fast_open: FastOpen::new(&[9; 16], false),
            ..Options::default()
        };
        assert_eq!(round_trip(options, Flags::SYN), (60, options.fast_open));
        let signed = Options {
            free: 20,
            ..options
        };
        assert_eq!(round_trip(signed, Flags::SYN), (60, None), "gives way");
    }
}
