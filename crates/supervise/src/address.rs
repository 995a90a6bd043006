//! Socket addresses as the bytes of a `struct sockaddr_in` or `sockaddr_in6`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

use netchan::socket::Domain;

/// The longest that is looked at.
pub const LEN_MAX: usize = 28;

const V4_LEN: usize = 16;
/// Without the scope id, as Linux takes it (SIN6_LEN_RFC2133).
const V6_LEN_MIN: usize = 24;

/// An internet address; `None`: it is another, or too short for what it says it is.
pub fn read(bytes: &[u8]) -> Option<SocketAddr> {
    let family = u16::from_ne_bytes(*bytes.first_chunk()?);
    let port = u16::from_be_bytes(*bytes.get(2..)?.first_chunk()?);
    match i32::from(family) {
        libc::AF_INET if bytes.len() >= V4_LEN => {
            let address: [u8; 4] = *bytes.get(4..)?.first_chunk()?;
            Some(SocketAddr::new(Ipv4Addr::from(address).into(), port))
        }
        libc::AF_INET6 if bytes.len() >= V6_LEN_MIN => {
            let flow = u32::from_be_bytes(*bytes.get(4..)?.first_chunk()?);
            let address: [u8; 16] = *bytes.get(8..)?.first_chunk()?;
            let scope = bytes.get(24..).and_then(|rest| rest.first_chunk());
            let scope = scope.map_or(0, |scope| u32::from_ne_bytes(*scope));
            let address = Ipv6Addr::from(address);
            Some(SocketAddrV6::new(address, port, flow, scope).into())
        }
        _ => None,
    }
}

/// An address as a socket of this domain tells it.
pub fn write(address: SocketAddr, domain: Domain) -> Vec<u8> {
    let family = |family: i32| u16::try_from(family).unwrap_or(0).to_ne_bytes();
    let port = address.port().to_be_bytes();
    match (address.ip(), domain) {
        (IpAddr::V4(v4), Domain::V4) => {
            [&family(libc::AF_INET)[..], &port, &v4.octets(), &[0; 8]].concat()
        }
        (ip, _) => {
            let (v6, flow, scope) = match (ip, address) {
                (IpAddr::V4(v4), _) => (v4.to_ipv6_mapped(), 0, 0),
                (IpAddr::V6(v6), SocketAddr::V6(whole)) => (v6, whole.flowinfo(), whole.scope_id()),
                (IpAddr::V6(v6), SocketAddr::V4(_)) => (v6, 0, 0),
            };
            [
                &family(libc::AF_INET6)[..],
                &port,
                &flow.to_be_bytes(),
                &v6.octets(),
                &scope.to_ne_bytes(),
            ]
            .concat()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_come_back() {
        for (text, domain, len) in [
            ("10.0.0.2:80", Domain::V4, 16),
            ("[fd77::2]:443", Domain::V6, 28),
            ("[fe80::1%3]:9", Domain::V6, 28),
        ] {
            let address: SocketAddr = text.parse().unwrap();
            let bytes = write(address, domain);
            assert_eq!((bytes.len(), read(&bytes)), (len, Some(address)), "{text}");
        }
        let mapped = write("10.0.0.2:80".parse().unwrap(), Domain::V6);
        assert_eq!(read(&mapped), "[::ffff:10.0.0.2]:80".parse().ok());
        assert_eq!(read(&mapped[..24]), read(&mapped));
    }

    #[test]
    fn what_is_no_address_is_none() {
        let whole = write("10.0.0.2:80".parse().unwrap(), Domain::V4);
        let six = write("[::1]:80".parse().unwrap(), Domain::V6);
        for short in [&whole[..0], &whole[..1], &whole[..15], &six[..23]] {
            assert_eq!(read(short), None, "{short:?}");
        }
        for family in [libc::AF_UNSPEC, libc::AF_UNIX, 99] {
            let mut other = whole.clone();
            other[..2].copy_from_slice(&u16::try_from(family).unwrap().to_ne_bytes());
            assert_eq!(read(&other), None);
        }
    }
}
