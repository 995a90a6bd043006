//! Cookies of TCP Fast Open (RFC 7413 §4.1.2): a keyed hash of both addresses, as Linux makes it, so that servers behind one address may
//! share a key whatever stack they run.

use core::net::IpAddr;

use super::isn::Purpose;
use crate::siphash::{Key, halves};
use crate::time::Duration;
use crate::wire::tcp::FastOpen as Cookie;

/// What of Fast Open is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools)] // Linux's `tcp_fastopen` has them as bits
pub struct FastOpenMode {
    /// Clients that ask for it may send text in their SYN.
    pub client: bool,
    /// Listeners that ask for it take such text.
    pub server: bool,
    /// Clients send it without a cookie.
    pub client_without_cookie: bool,
    /// Listeners take it without a cookie: only where no address can be forged (RFC 7413 §6.3.3).
    pub server_without_cookie: bool,
    /// Listeners need not ask for it.
    pub every_listener: bool,
    /// What cookies are made with; `None`: a key that the stack chose.
    pub keys: Option<FastOpenKeys>,
    /// How long clients do without it once it seems that the path swallows such connections; zero: they go on trying.
    pub black_hole: Duration,
}

impl Default for FastOpenMode {
    fn default() -> Self {
        Self {
            client: true,
            server: true,
            client_without_cookie: false,
            server_without_cookie: false,
            every_listener: false,
            keys: None,
            black_hole: Duration::from_secs(3600),
        }
    }
}

impl FastOpenMode {
    /// Its names in configurations.
    pub const NAMES: [&str; 4] = ["off", "client", "server", "both"];

    /// Its name in configurations.
    pub const fn name(&self) -> &'static str {
        match (self.client, self.server) {
            (false, false) => "off",
            (true, false) => "client",
            (false, true) => "server",
            (true, true) => "both",
        }
    }

    /// The one with this name.
    pub fn called(name: &str) -> Option<Self> {
        let (client, server) = match name {
            "off" => (false, false),
            "client" => (true, false),
            "server" => (false, true),
            "both" => (true, true),
            _ => return None,
        };
        Some(Self {
            client,
            server,
            ..Self::default()
        })
    }
}

/// What cookies are made with, and what older ones were made with: those stay good while the key is changed (RFC 7413 §4.1.2).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct FastOpenKeys {
    /// Makes cookies.
    pub current: [u8; 16],
    /// Made cookies that are still good.
    pub previous: Option<[u8; 16]>,
}

impl core::fmt::Debug for FastOpenKeys {
    /// Without the keys.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("FastOpenKeys").finish_non_exhaustive()
    }
}

/// Which key a cookie was made with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CookieMatch {
    /// The one that makes cookies now.
    Current,
    /// The one before.
    Previous,
}

impl FastOpenKeys {
    /// A key of the stack's own, from what only it knows.
    pub fn of_secret(secret: &[u8; 16]) -> Self {
        let key = Key::new(secret);
        let half = |n: u64| {
            let last = Purpose::FastOpenKey as u64 | n << 8 | 15 << 56;
            key.hash::<2, 4>(&[0, last]).to_le_bytes()
        };
        let mut current = [0; 16];
        current[..8].copy_from_slice(&half(0));
        current[8..].copy_from_slice(&half(1));
        Self {
            current,
            previous: None,
        }
    }

    /// The cookie of a client.
    pub fn cookie(&self, client: IpAddr, server: IpAddr, experimental: bool) -> Option<Cookie> {
        Cookie::new(&hash(&self.current, client, server), experimental)
    }

    /// Whether a client's cookie is one of ours.
    pub fn check(&self, client: IpAddr, server: IpAddr, cookie: &Cookie) -> Option<CookieMatch> {
        let made_with = |key| hash(key, client, server) == *cookie.cookie();
        if made_with(&self.current) {
            return Some(CookieMatch::Current);
        }
        let previous = self.previous.as_ref()?;
        made_with(previous).then_some(CookieMatch::Previous)
    }
}

/// SipHash-2-4 of the two addresses.
fn hash(key: &[u8; 16], client: IpAddr, server: IpAddr) -> [u8; 8] {
    let key = Key::new(key);
    let hash = match (client, server) {
        (IpAddr::V4(client), IpAddr::V4(server)) => {
            let [client, server] =
                [client, server].map(|ip| u64::from(u32::from_le_bytes(ip.octets())));
            key.hash::<2, 4>(&[client | server << 32, 8 << 56])
        }
        (client, server) => {
            let ([a, b], [c, d]) = (words(client), words(server));
            key.hash::<2, 4>(&[a, b, c, d, 32 << 56])
        }
    };
    hash.to_le_bytes()
}

fn words(ip: IpAddr) -> [u64; 2] {
    let octets = match ip {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    };
    halves(&octets)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cookies_are_those_of_linux() {
        // Linux with net.ipv4.tcp_fastopen_key = a0bf63f7-ed803d81-cd641d30-cebc4a90.
        let keys = FastOpenKeys {
            current: *b"\xf7\x63\xbf\xa0\x81\x3d\x80\xed\x30\x1d\x64\xcd\x90\x4a\xbc\xce",
            previous: None,
        };
        let cookie = |client: [u8; 4], server: [u8; 4]| {
            let cookie = keys.cookie(client.into(), server.into(), false).unwrap();
            u64::from_be_bytes(*cookie.cookie().first_chunk::<8>().unwrap())
        };
        assert_eq!(
            cookie([10, 248, 0, 2], [192, 168, 0, 2]),
            0x00ab_aaab_e8e9_54c2
        );
        assert_eq!(
            cookie([10, 248, 0, 3], [192, 168, 0, 3]),
            0x76d2_c1c5_30f5_1f79
        );
    }

    #[test]
    fn the_key_before_stays_good() {
        // RFC 7413 §4.1.2: the server changes its key from time to time.
        let (client, server) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
        let old = FastOpenKeys::of_secret(&[1; 16]);
        let new = FastOpenKeys {
            previous: Some(old.current),
            ..FastOpenKeys::of_secret(&[2; 16])
        };
        let [was, is] = [old, new].map(|keys| keys.cookie(client, server, false).unwrap());
        assert_ne!(was, is);
        assert_eq!(new.check(client, server, &is), Some(CookieMatch::Current));
        assert_eq!(new.check(client, server, &was), Some(CookieMatch::Previous));
        assert_eq!(old.check(client, server, &is), None);
        assert_eq!(new.check(server, client, &is), None, "of another address");
        assert_eq!(new.check(client, server, &Cookie::request(false)), None);
    }

    #[test]
    fn modes_have_names() {
        for (name, client, server) in [
            ("off", false, false),
            ("client", true, false),
            ("server", false, true),
            ("both", true, true),
        ] {
            let mode = FastOpenMode::called(name).expect("a mode");
            assert_eq!(
                (mode.client, mode.server, mode.name()),
                (client, server, name)
            );
            let others = FastOpenMode {
                client,
                server,
                ..FastOpenMode::default()
            };
            assert_eq!(mode, others);
            assert!(FastOpenMode::NAMES.contains(&name));
        }
        assert_eq!(FastOpenMode::called("on"), None);
        let hour = FastOpenMode::default().black_hole.as_secs();
        assert_eq!(
            hour,
            60 * 60,
            "RFC 7413 has no number; Linux's first is an hour"
        );
    }

    /// RFC 7413 §4.1.2: a cookie is SipHash-2-4 of the addresses alone, as they stand in headers.
    #[test]
    fn cookies_are_siphash_of_the_addresses() {
        use siphasher::sip::SipHasher24;
        let key = [7; 16];
        let keys = FastOpenKeys {
            current: key,
            previous: None,
        };
        let six = |n: u8| {
            let mut octets = [n; 16];
            (n..)
                .zip(&mut octets)
                .for_each(|(value, octet)| *octet = value);
            IpAddr::from(octets)
        };
        let four = |n: u8| IpAddr::from([10, n, 3, 4]);
        for (client, server) in [(four(1), four(9)), (six(1), six(90)), (six(90), six(1))] {
            let mut bytes = alloc::vec::Vec::new();
            for ip in [client, server] {
                match ip {
                    IpAddr::V4(ip) => bytes.extend(ip.octets()),
                    IpAddr::V6(ip) => bytes.extend(ip.octets()),
                }
            }
            let hash = SipHasher24::new_with_key(&key).hash(&bytes).to_le_bytes();
            let cookie = keys.cookie(client, server, false).unwrap();
            assert_eq!(*cookie.cookie(), hash);
        }
        // Of two families, where one of them is mapped: not the same as two of the larger.
        assert_ne!(
            keys.cookie(four(1), six(1), false),
            keys.cookie(four(2), six(1), false)
        );
    }

    /// The stack's own key has two halves that tell nothing of each other, and differs with each secret.
    #[test]
    fn keys_of_secrets_differ() {
        let keys = [1, 2].map(|n| FastOpenKeys::of_secret(&[n; 16]).current);
        assert_ne!(keys[0], keys[1]);
        // SipHash-2-4 of 15 bytes: eight zeros, what it is for, which half, and five zeros.
        use siphasher::sip::SipHasher24;
        for (n, key) in (1..).zip(keys) {
            for (half, bytes) in (0..).zip(key.chunks(8)) {
                let mut text = [0; 15];
                (text[8], text[9]) = (Purpose::FastOpenKey as u8, half);
                let hash = SipHasher24::new_with_key(&[n; 16]).hash(&text);
                assert_eq!(bytes, hash.to_le_bytes());
            }
        }
    }
}
