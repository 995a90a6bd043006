//! sockaddr both ways, prefixes, and whose an address is.

use std::{mem, net::SocketAddr, ptr};

use libc::{sockaddr, sockaddr_in6, sockaddr_storage, socklen_t};

use super::{Given, read, write};
use crate::{api::Domain, errno};

/// Writes and reads back, through exactly as many bytes as there are.
fn round_trip(address: &str, domain: Domain) -> SocketAddr {
    let address: SocketAddr = address.parse().unwrap();
    // SAFETY: plain bytes.
    let mut raw: sockaddr_storage = unsafe { mem::zeroed() };
    let mut len = socklen_t::try_from(size_of::<sockaddr_storage>()).unwrap();
    let pointer = (&raw mut raw).cast::<sockaddr>();
    // SAFETY: room for any address.
    unsafe { write(address, domain, pointer, &raw mut len) }.unwrap();
    // SAFETY: written just now.
    match unsafe { read(pointer, len, domain) }.unwrap() {
        Given::Inet(back) => back,
        Given::Unspecified => panic!("no address"),
    }
}

#[test]
fn addresses_come_back() {
    for text in ["10.1.2.3:80", "0.0.0.0:0", "255.255.255.255:65535"] {
        assert_eq!(round_trip(text, Domain::V4), text.parse().unwrap());
    }
    for text in ["[fd77::2]:443", "[::]:0", "[fe80::1%3]:9"] {
        assert_eq!(round_trip(text, Domain::V6), text.parse().unwrap());
    }
}

#[test]
fn an_ipv6_socket_shows_ipv4_as_mapped() {
    assert_eq!(
        round_trip("10.1.2.3:80", Domain::V6),
        "[::ffff:10.1.2.3]:80".parse().unwrap()
    );
    assert_eq!(
        round_trip("0.0.0.0:80", Domain::V6),
        "[::]:80".parse().unwrap()
    );
}

fn code(result: std::io::Result<Given>) -> i32 {
    result.err().map_or(0, |error| errno::code(&error))
}

#[test]
fn what_is_no_address_is_refused_as_linux_does() {
    let ask = |family: i32, len: socklen_t, domain| {
        // SAFETY: plain bytes.
        let mut raw: sockaddr_in6 = unsafe { mem::zeroed() };
        raw.sin6_family = u16::try_from(family).unwrap();
        // SAFETY: no longer than `raw`.
        code(unsafe { read((&raw const raw).cast(), len, domain) })
    };
    assert_eq!(ask(libc::AF_INET, 15, Domain::V4), libc::EINVAL);
    assert_eq!(ask(libc::AF_INET, 16, Domain::V4), 0);
    assert_eq!(ask(libc::AF_INET6, 28, Domain::V4), libc::EAFNOSUPPORT);
    assert_eq!(ask(libc::AF_INET6, 23, Domain::V6), libc::EINVAL);
    assert_eq!(ask(libc::AF_INET6, 24, Domain::V6), 0);
    assert_eq!(ask(libc::AF_UNIX, 28, Domain::V6), libc::EAFNOSUPPORT);
    assert_eq!(ask(libc::AF_INET, 1, Domain::V4), libc::EINVAL);
    // SAFETY: NULL is allowed.
    let none = unsafe { read(ptr::null(), 16, Domain::V4) };
    assert_eq!(code(none), libc::EFAULT);
}
