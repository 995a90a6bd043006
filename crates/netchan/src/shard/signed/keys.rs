//! The keys of a socket: whose peers they are for, and which of them a connection takes.

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use proto::tcp::{AoIds, AoKey, AoSession, CAN_SIGN, Md5Key};

use super::Auth;

/// Keys of each kind that one socket may have.
const KEYS_MAX: usize = 256;

/// A network, by an address in it and its prefix's length.
pub type Network = (IpAddr, u8);

/// The keys of a socket, each for the peers of a network: RFC 2385's, one for each, and RFC 5925's.
#[derive(Clone, Debug, Default)]
pub struct Keys {
    md5: Vec<(Network, Arc<Md5Key>)>,
    ao: Vec<(Network, Arc<AoKey>)>,
    /// What connections begin with.
    pub settings: AoSettings,
}

/// TCP_AO_INFO, but for what is counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AoSettings {
    /// Send id of the key to sign with.
    pub current: Option<u8>,
    /// Receive id of the key that the peer is asked for.
    pub next: Option<u8>,
    /// A listener takes no peer without a key.
    pub required: bool,
    /// ICMP errors count as without TCP-AO (RFC 5925 §7.8).
    pub accepts_icmp: bool,
}

impl Keys {
    /// Sets the key of a network, or takes it away.
    ///
    /// # Errors
    /// An errno: EINVAL (no such prefix), ENOENT (nothing to take away), ENOMEM (too many), EKEYREJECTED (a peer has a key of RFC 5925),
    /// ENOPROTOOPT (a build without the feature `tcp-auth`).
    pub fn set(&mut self, network: Network, key: Option<Md5Key>) -> Result<(), i32> {
        check(network)?;
        // Without it no key is a key, and none to be set would look like one to be taken away.
        if !CAN_SIGN {
            return Err(libc::ENOPROTOOPT);
        }
        let at = self.md5.iter().position(|(n, _)| is_same(*n, network));
        if key.is_some() && self.ao.iter().any(|(n, _)| overlaps(*n, network)) {
            return Err(libc::EKEYREJECTED);
        }
        match (key, at) {
            (Some(key), Some(at)) => self.md5[at].1 = Arc::new(key),
            (Some(_), None) if self.md5.len() >= KEYS_MAX => return Err(libc::ENOMEM),
            (Some(key), None) => self.md5.push((network, Arc::new(key))),
            (None, Some(at)) => drop(self.md5.swap_remove(at)),
            (None, None) => return Err(libc::ENOENT),
        }
        Ok(())
    }

    /// Adds a key of RFC 5925.
    ///
    /// # Errors
    /// An errno: EINVAL (no such prefix), EEXIST (a peer has a key with one of its ids), ENOMEM (too many), EKEYREJECTED (a peer has a key of
    /// RFC 2385).
    pub fn add(&mut self, network: Network, key: AoKey) -> Result<Arc<AoKey>, i32> {
        check(network)?;
        if self.md5.iter().any(|(n, _)| overlaps(*n, network)) {
            return Err(libc::EKEYREJECTED);
        }
        let clashes =
            |(n, other): &(Network, Arc<AoKey>)| overlaps(*n, network) && other.shares_id(&key);
        if self.ao.iter().any(clashes) {
            return Err(libc::EEXIST);
        }
        if self.ao.len() >= KEYS_MAX {
            return Err(libc::ENOMEM);
        }
        let key = Arc::new(key);
        self.ao.push((network, key.clone()));
        Ok(key)
    }

    /// Takes one away; false: there is none with these ids.
    pub fn remove(&mut self, network: Network, send_id: u8, receive_id: u8) -> bool {
        let at = self.ao.iter().position(|(n, key)| {
            is_same(*n, network) && (key.send_id(), key.receive_id()) == (send_id, receive_id)
        });
        at.map(|at| self.ao.remove(at)).is_some()
    }

    /// All of RFC 5925's.
    pub fn ao(&self) -> impl Iterator<Item = (Network, &Arc<AoKey>)> {
        self.ao.iter().map(|(network, key)| (*network, key))
    }

    /// The key of RFC 2385 for a peer: that of the smallest network.
    pub fn md5_of(&self, peer: IpAddr) -> Option<Arc<Md5Key>> {
        let matching = self.md5.iter().filter(|(n, _)| covers(*n, peer));
        let nearest = matching.max_by_key(|((_, len), _)| *len)?;
        Some(nearest.1.clone())
    }

    /// What signs a connection's segments; `asked`: the ids of its peer's SYN. With keys of both kinds RFC 5925's goes before.
    pub fn auth(
        &self,
        local: SocketAddr,
        remote: SocketAddr,
        asked: Option<AoIds>,
    ) -> Option<Box<Auth>> {
        let keys = self.ao.iter().filter(|(n, _)| covers(*n, remote.ip()));
        let keys = keys.map(|(_, key)| key.clone());
        let AoSettings { current, next, .. } = self.settings;
        let Some(mut session) = AoSession::new(local, remote, keys, (current, next)) else {
            return self.md5_of(remote.ip()).map(|key| Box::new(Auth::Md5(key)));
        };
        session.accepts_icmp = self.settings.accepts_icmp;
        if let Some(ids) = asked {
            // RFC 5925 §7.4: the key that the SYN is signed with, and to answer the one it asks for, if there is such a one.
            let same = session
                .keys()
                .find(|state| state.key.receive_id() == ids.key);
            if let Some(state) = same {
                session.set_next(ids.key);
                session.set_current(state.key.send_id());
            }
            session.set_current(ids.next);
        }
        Some(Box::new(Auth::Ao(session)))
    }
}

const fn check((ip, prefix): Network) -> Result<(), i32> {
    let most = if ip.is_ipv4() { 32 } else { 128 };
    if prefix > most {
        Err(libc::EINVAL)
    } else {
        Ok(())
    }
}

fn is_same(a: Network, b: Network) -> bool {
    a.1 == b.1 && covers(a, b.0)
}

/// Whether a peer may be in both.
fn overlaps(a: Network, b: Network) -> bool {
    covers((a.0, a.1.min(b.1)), b.0)
}

/// Whether `ip` is in a network.
fn covers((network, prefix): Network, ip: IpAddr) -> bool {
    let prefix = u32::from(prefix);
    match (network, ip) {
        (IpAddr::V4(a), IpAddr::V4(b)) => {
            let differs = a.to_bits() ^ b.to_bits();
            differs.leading_zeros() >= prefix
        }
        (IpAddr::V6(a), IpAddr::V6(b)) => {
            let differs = a.to_bits() ^ b.to_bits();
            differs.leading_zeros() >= prefix
        }
        _ => false,
    }
}

#[cfg(all(test, feature = "tcp-auth"))]
mod tests {
    use super::*;
    use proto::tcp::AoAlgorithm;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn the_smallest_network_s_key_counts() {
        let key = |text: &[u8]| Md5Key::new(text);
        let mut keys = Keys::default();
        keys.set((ip("10.0.0.0"), 8), key(b"wide")).unwrap();
        keys.set((ip("10.1.2.3"), 32), key(b"one")).unwrap();
        keys.set((ip("fd00::"), 16), key(b"six")).unwrap();
        let of = |keys: &Keys, text: &str| keys.md5_of(ip(text)).map(|key| *key);
        assert_eq!(of(&keys, "10.9.9.9"), key(b"wide"));
        assert_eq!(of(&keys, "10.1.2.3"), key(b"one"));
        assert_eq!(of(&keys, "11.1.2.3"), None);
        assert_eq!(of(&keys, "fd00:1::1"), key(b"six"));
        assert_eq!(of(&keys, "fd01::1"), None);
        keys.set((ip("10.77.0.0"), 8), key(b"other")).unwrap();
        assert_eq!(of(&keys, "10.9.9.9"), key(b"other"), "the same network");
        keys.set((ip("10.1.2.3"), 32), None).unwrap();
        assert_eq!(of(&keys, "10.1.2.3"), key(b"other"));
        assert_eq!(keys.set((ip("10.1.2.3"), 32), None), Err(libc::ENOENT));
        assert_eq!(keys.set((ip("10.1.2.3"), 33), None), Err(libc::EINVAL));
        for n in 0..300_u32 {
            let network = (IpAddr::V4((n << 8).into()), 32);
            let result = keys.set(network, key(b"many"));
            assert_eq!(result.is_ok(), n < 254, "{n}");
        }
    }

    /// RFC 5925 §3.1: two keys of one peer share no id; beside one of RFC 2385 there is none.
    #[test]
    fn keys_that_clash() {
        let key = |send, receive| AoKey::new(AoAlgorithm::HmacSha1, b"k", send, receive).unwrap();
        let mut keys = Keys::default();
        keys.set((ip("11.0.0.0"), 8), Md5Key::new(b"m")).unwrap();
        let wide = (ip("10.0.0.0"), 8);
        keys.add(wide, key(1, 2)).unwrap();
        let add = |keys: &mut Keys, net: &str, len, key| keys.add((ip(net), len), key).map(|_| ());
        assert_eq!(add(&mut keys, "10.1.0.0", 16, key(1, 3)), Err(libc::EEXIST));
        assert_eq!(
            add(&mut keys, "0.0.0.0", 0, key(3, 2)),
            Err(libc::EKEYREJECTED)
        );
        assert_eq!(
            add(&mut keys, "11.1.1.1", 32, key(1, 2)),
            Err(libc::EKEYREJECTED)
        );
        assert_eq!(add(&mut keys, "12.0.0.0", 33, key(1, 2)), Err(libc::EINVAL));
        add(&mut keys, "12.0.0.0", 8, key(1, 2)).unwrap();
        add(&mut keys, "10.1.0.0", 16, key(3, 4)).unwrap();
        let md5 = keys.set((ip("10.0.0.0"), 7), Md5Key::new(b"m"));
        assert_eq!(md5, Err(libc::EKEYREJECTED));
        let held = |keys: &Keys, peer: &str, asked| {
            let auth = keys.auth((ip("9.9.9.9"), 1).into(), (ip(peer), 2).into(), asked);
            match auth.map(|auth| *auth) {
                Some(Auth::Ao(session)) => (session.keys().count(), session.ids()),
                Some(Auth::Md5(_)) => (0, AoIds::default()),
                None => (9, AoIds::default()),
            }
        };
        let ids = |key, next| AoIds { key, next };
        assert_eq!(held(&keys, "10.1.1.1", None), (2, ids(1, 2)));
        assert_eq!(held(&keys, "10.2.1.1", None), (1, ids(1, 2)));
        assert_eq!(held(&keys, "11.1.1.1", None), (0, ids(0, 0)));
        assert_eq!(held(&keys, "13.1.1.1", None), (9, ids(0, 0)));
        // A SYN signed with the second key; and one that asks to be answered with the first.
        assert_eq!(held(&keys, "10.1.1.1", Some(ids(4, 9))), (2, ids(3, 4)));
        assert_eq!(held(&keys, "10.1.1.1", Some(ids(4, 1))), (2, ids(1, 4)));
        keys.settings.current = Some(3);
        assert_eq!(held(&keys, "10.1.1.1", None), (2, ids(3, 2)));
        assert!(!keys.remove(wide, 1, 9) && keys.remove(wide, 1, 2));
        assert_eq!(held(&keys, "10.2.1.1", None), (9, ids(0, 0)));
    }
}
