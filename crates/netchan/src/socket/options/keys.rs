//! TCP-AO (RFC 5925) as Linux's structures say it: struct tcp_ao_add, tcp_ao_del, tcp_ao_info_opt and tcp_ao_getsockopt of linux/tcp.h.
//! Keys by interface are not served.

use std::{io, net::IpAddr};

use libc::c_int;
use proto::tcp::{AoAlgorithm, AoCounts, AoKey};

use super::{setting::Keys, values::invalid};
use crate::{
    errno::fail,
    socket::{AoChoice, AoInfo, AoKeyInfo, AoPeerKey, Socket},
};

/// TCP_AO_KEYF_EXCLUDE_OPT; the other flag, TCP_AO_KEYF_IFINDEX, is 1.
const EXCLUDE_OPT: u8 = 2;
const ALGORITHMS: [(&str, AoAlgorithm, u8); 2] = [
    ("hmac(sha1)", AoAlgorithm::HmacSha1, 20),
    ("cmac(aes128)", AoAlgorithm::Aes128Cmac, 16),
];
/// The length of a code where 0 is said.
const MAC_LEN: u8 = 12;
/// Bytes of struct tcp_ao_info_opt, and of struct tcp_ao_getsockopt.
const INFO_LEN: usize = 48;
const KEY_LEN: usize = 304;

/// Fields of a structure; those beyond its end are 0.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn array<const N: usize>(&self, at: usize) -> [u8; N] {
        let part = self.0.get(at..).and_then(<[u8]>::first_chunk::<N>);
        part.copied().unwrap_or([0; N])
    }

    fn byte(&self, at: usize) -> u8 {
        self.array::<1>(at)[0]
    }

    fn word(&self, at: usize) -> u32 {
        u32::from_ne_bytes(self.array(at))
    }

    fn long(&self, at: usize) -> u64 {
        u64::from_ne_bytes(self.array(at))
    }

    /// Padding that must be 0.
    fn is_zero(&self, at: usize) -> io::Result<()> {
        match self.array::<2>(at) {
            [0, 0] => Ok(()),
            _ => fail(libc::EINVAL),
        }
    }

    /// The struct sockaddr_storage at the front, no port, with a prefix beyond which it is zero.
    fn network(&self, prefix: u8) -> io::Result<(IpAddr, u8)> {
        let family = c_int::from(u16::from_ne_bytes(self.array(0)));
        if self.array::<2>(2) != [0, 0] {
            return fail(libc::EINVAL);
        }
        let (ip, beyond): (IpAddr, bool) = match family {
            libc::AF_INET => {
                let bits = u32::from_be_bytes(self.array(4));
                let rest = bits.checked_shl(prefix.into()).unwrap_or(0);
                (IpAddr::V4(bits.into()), prefix > 32 || rest != 0)
            }
            libc::AF_INET6 => {
                let bits = u128::from_be_bytes(self.array(8));
                let rest = bits.checked_shl(prefix.into()).unwrap_or(0);
                (IpAddr::V6(bits.into()), prefix > 128 || rest != 0)
            }
            _ => return fail(libc::EINVAL),
        };
        if beyond || (prefix > 0 && ip.is_unspecified()) {
            return fail(libc::EINVAL);
        }
        Ok((ip, prefix))
    }
}

fn sized(value: &[u8], len: usize) -> io::Result<Fields<'_>> {
    value.get(..len).map(Fields).ok_or_else(invalid)
}

/// A struct tcp_ao_add.
pub(super) fn parse_add(value: &[u8]) -> io::Result<Keys> {
    let fields = sized(value, 288)?;
    let (flags, key_flags, interface) = (fields.word(196), fields.byte(206), fields.word(192));
    if flags > 3 || key_flags & !EXCLUDE_OPT != 0 || interface != 0 {
        return fail(libc::EINVAL);
    }
    fields.is_zero(200)?;
    let (peer, prefix) = fields.network(fields.byte(202))?;
    let name = fields.array::<64>(128);
    let name = name.split(|&byte| byte == 0).next().unwrap_or_default();
    let known = ALGORITHMS.iter().find(|(n, ..)| n.as_bytes() == name);
    let Some((_, algorithm, longest)) = known else {
        return fail(libc::ENOENT);
    };
    let mac_len = match fields.byte(205) {
        0 => MAC_LEN,
        len if len > *longest => return fail(libc::EINVAL),
        len => len,
    };
    let secret = fields.0.get(208..208 + usize::from(fields.byte(207)));
    let key = secret.and_then(|secret| {
        let (send_id, receive_id) = (fields.byte(203), fields.byte(204));
        AoKey::new(*algorithm, secret, send_id, receive_id)
    });
    // As Linux: beside a longer one the options of a SYN have no room.
    let key = key.ok_or_else(invalid)?.with_mac_len(mac_len);
    let Some(key) = key else {
        return fail(libc::EMSGSIZE);
    };
    let key = if key_flags & EXCLUDE_OPT != 0 {
        key.excluding_options()
    } else {
        key
    };
    Ok(Keys::Add {
        key: AoPeerKey { peer, prefix, key },
        current: flags & 1 != 0,
        next: flags & 2 != 0,
    })
}

fn choice(flags: u32, current: u8, next: u8) -> AoChoice {
    AoChoice {
        current: (flags & 1 != 0).then_some(current),
        next: (flags & 2 != 0).then_some(next),
    }
}

/// A struct tcp_ao_del.
pub(super) fn parse_delete(value: &[u8]) -> io::Result<Keys> {
    let fields = sized(value, 144)?;
    // del_async, 4: it always goes at once.
    let (flags, interface, key_flags) = (fields.word(132), fields.word(128), fields.byte(143));
    if flags > 7 || key_flags & !EXCLUDE_OPT != 0 || interface != 0 {
        return fail(libc::EINVAL);
    }
    fields.is_zero(136)?;
    Ok(Keys::Delete {
        network: fields.network(fields.byte(138))?,
        ids: (fields.byte(139), fields.byte(140)),
        choice: choice(flags, fields.byte(141), fields.byte(142)),
    })
}

/// A struct tcp_ao_info_opt, to be set.
pub(super) fn parse_info(value: &[u8]) -> io::Result<Keys> {
    let fields = sized(value, INFO_LEN)?;
    let flags = fields.word(0);
    if flags > 31 {
        return fail(libc::EINVAL);
    }
    fields.is_zero(4)?;
    Ok(Keys::Set {
        info: AoInfo {
            keys: choice(flags, fields.byte(6), fields.byte(7)),
            required: flags & 4 != 0,
            accept_icmps: flags & 16 != 0,
            counts: AoCounts {
                good: fields.long(8),
                bad: fields.long(16),
                no_key: fields.long(24),
                missing: fields.long(32),
                icmp: fields.long(40),
            },
        },
        counts: flags & 8 != 0,
    })
}

fn put(bytes: &mut [u8], at: usize, field: &[u8]) {
    if let Some(place) = bytes.get_mut(at..at + field.len()) {
        place.copy_from_slice(field);
    }
}

/// A struct tcp_ao_info_opt.
pub(super) fn info(info: &AoInfo) -> Vec<u8> {
    let mut bytes = vec![0; INFO_LEN];
    let AoChoice { current, next } = info.keys;
    let bits = [current.is_some(), next.is_some(), info.required, false];
    let bits = bits.iter().enumerate();
    let flags = bits.fold(u32::from(info.accept_icmps) << 4, |all, (n, &bit)| {
        all | u32::from(bit) << n
    });
    put(&mut bytes, 0, &flags.to_ne_bytes());
    put(
        &mut bytes,
        6,
        &[current.unwrap_or_default(), next.unwrap_or_default()],
    );
    let counts = &info.counts;
    let counts = [
        counts.good,
        counts.bad,
        counts.no_key,
        counts.missing,
        counts.icmp,
    ];
    for (n, count) in counts.iter().enumerate() {
        put(&mut bytes, 8 + 8 * n, &count.to_ne_bytes());
    }
    bytes
}

/// TCP_AO_GET_KEYS: the keys that a struct tcp_ao_getsockopt asks for, each as one, the first with how many they are; and for how many there is room.
///
/// # Errors
/// As Linux: ENOENT (none), EINVAL.
pub fn list_keys(socket: &Socket, asked: &[u8]) -> io::Result<(Vec<Vec<u8>>, usize)> {
    matching(&socket.ao_keys()?, asked)
}

/// The same of all keys.
fn matching(all: &[AoKeyInfo], asked: &[u8]) -> io::Result<(Vec<Vec<u8>>, usize)> {
    let fields = sized(asked, KEY_LEN)?;
    let flags = u16::from_ne_bytes(fields.array(276));
    let room = fields.word(272) as usize;
    if flags > 7 || (flags & 4 != 0 && flags != 4) || room == 0 {
        return fail(libc::EINVAL);
    }
    let ids = (fields.byte(278), fields.byte(279));
    let anybody = fields.array::<2>(0) == [0, 0];
    let by_name = match (flags, anybody) {
        (0, false) => Some(fields.network(fields.byte(280))?),
        (0, true) if ids != (0, 0) || fields.byte(280) != 0 => return fail(libc::EINVAL),
        _ => None,
    };
    let is_asked = |info: &&AoKeyInfo| match (flags, by_name) {
        (_, Some(network)) => {
            let own = (info.key.peer, info.key.prefix);
            own == network && (info.key.key.send_id(), info.key.key.receive_id()) == ids
        }
        (0 | 4, None) => true,
        _ => (flags & 1 != 0 && info.is_current) || (flags & 2 != 0 && info.is_next),
    };
    let mut found: Vec<Vec<u8>> = all.iter().filter(is_asked).map(key).collect();
    let count = u32::try_from(found.len()).unwrap_or(u32::MAX);
    if found.is_empty() {
        return fail(libc::ENOENT);
    }
    put(&mut found[0], 272, &count.to_ne_bytes());
    Ok((found, room))
}

fn key(info: &AoKeyInfo) -> Vec<u8> {
    let mut bytes = vec![0; KEY_LEN];
    let AoPeerKey { peer, prefix, key } = &info.key;
    let family = if peer.is_ipv4() {
        libc::AF_INET
    } else {
        libc::AF_INET6
    };
    let family = u16::try_from(family).unwrap_or_default();
    put(&mut bytes, 0, &family.to_ne_bytes());
    match peer {
        IpAddr::V4(ip) => put(&mut bytes, 4, &ip.octets()),
        IpAddr::V6(ip) => put(&mut bytes, 8, &ip.octets()),
    }
    let algorithm = key.algorithm();
    let name = ALGORITHMS.iter().find(|(_, other, _)| *other == algorithm);
    put(&mut bytes, 128, name.map_or("", |(n, ..)| n).as_bytes());
    put(&mut bytes, 192, key.secret());
    let flags = u16::from(info.is_current) | u16::from(info.is_next) << 1;
    put(&mut bytes, 276, &flags.to_ne_bytes());
    let excluded = if key.excludes_options() {
        EXCLUDE_OPT
    } else {
        0
    };
    let len = u8::try_from(key.secret().len()).unwrap_or_default();
    let ids = [key.send_id(), key.receive_id()];
    put(&mut bytes, 278, &ids);
    put(&mut bytes, 280, &[*prefix, key.mac_len(), excluded, len]);
    put(&mut bytes, 288, &info.good.to_ne_bytes());
    put(&mut bytes, 296, &info.bad.to_ne_bytes());
    bytes
}

#[cfg(test)]
#[path = "keys_tests.rs"]
mod tests;
