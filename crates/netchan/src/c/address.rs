//! Socket addresses: C's sockaddr and Rust's SocketAddr.

use std::{
    io, mem,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6},
};

use super::buffers;
use crate::{api::Domain, errno::fail};
use libc::{c_int, sa_family_t, sockaddr, sockaddr_in, sockaddr_in6, socklen_t};

/// An address as bind, connect and sendto pass it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Given {
    /// AF_UNSPEC: "forget the peer".
    Unspecified,
    /// An internet address.
    Inet(SocketAddr),
}

#[allow(clippy::cast_possible_truncation)] // 2
const FAMILY_V4: sa_family_t = libc::AF_INET as sa_family_t;
#[allow(clippy::cast_possible_truncation)] // 10
const FAMILY_V6: sa_family_t = libc::AF_INET6 as sa_family_t;
const FAMILY_LEN: usize = size_of::<sa_family_t>();
const V4_LEN: usize = size_of::<sockaddr_in>();
/// Without the scope id, as Linux takes it (SIN6_LEN_RFC2133).
const V6_LEN_MIN: usize = 24;
const V6_LEN: usize = size_of::<sockaddr_in6>();

/// The longest address that there is (`struct sockaddr_storage`).
pub const LONGEST: socklen_t = 128;

/// A length as callers pass it: Linux reads it as a signed number, and takes none that is longer than all addresses (EINVAL).
///
/// # Errors
/// As said.
pub fn check_len(len: socklen_t) -> io::Result<()> {
    match len {
        0..=LONGEST => Ok(()),
        _ => fail(libc::EINVAL),
    }
}

/// Bytes of an address that say its family.
pub const FAMILY: socklen_t = 2;

/// AF_INET or AF_INET6.
pub fn family(domain: Domain) -> c_int {
    match domain {
        Domain::V4 => libc::AF_INET,
        Domain::V6 => libc::AF_INET6,
    }
}

/// As [`read`], where a socket of IPv6 takes no other family's address: what bind(2) is given, and a stream's connect.
///
/// # Safety
/// As there.
pub unsafe fn read_own(
    pointer: *const sockaddr,
    len: socklen_t,
    domain: Domain,
) -> io::Result<Given> {
    // SAFETY: the caller's.
    match unsafe { read(pointer, len, domain) }? {
        Given::Inet(SocketAddr::V4(_)) if domain == Domain::V6 => {
            fail(if (len as usize) < V6_LEN_MIN {
                libc::EINVAL
            } else {
                libc::EAFNOSUPPORT
            })
        }
        given => Ok(given),
    }
}

/// The address at `pointer`, `len` bytes long: EFAULT (NULL), EINVAL (too short), EAFNOSUPPORT (another family than `domain`'s).
///
/// # Safety
/// `pointer` must be readable for `len` bytes, or NULL.
pub unsafe fn read(pointer: *const sockaddr, len: socklen_t, domain: Domain) -> io::Result<Given> {
    check_len(len)?;
    if buffers::is_bad(pointer) {
        return fail(libc::EFAULT);
    }
    if (len as usize) < FAMILY_LEN {
        return fail(libc::EINVAL);
    }
    // SAFETY: at least the family is readable.
    let family = c_int::from(unsafe { pointer.cast::<sa_family_t>().read_unaligned() });
    match (family, domain) {
        (libc::AF_UNSPEC, _) => Ok(Given::Unspecified),
        // As Linux: of an IPv4 socket the length comes before the family.
        (_, Domain::V4) if (len as usize) < V4_LEN => fail(libc::EINVAL),
        (libc::AF_INET6, Domain::V6) if (len as usize) < V6_LEN_MIN => fail(libc::EINVAL),
        // SAFETY: the caller's.
        (libc::AF_INET, _) => unsafe { read_v4(pointer, len) }.map(Given::Inet),
        (libc::AF_INET6, Domain::V6) => {
            let mut raw = mem::MaybeUninit::<sockaddr_in6>::zeroed();
            let target = raw.as_mut_ptr().cast::<u8>();
            // SAFETY: the lesser of both sizes is readable there and writable here.
            unsafe { target.copy_from_nonoverlapping(pointer.cast(), V6_LEN.min(len as usize)) };
            // SAFETY: all bytes are initialised, and any bytes are a sockaddr_in6.
            let raw = unsafe { raw.assume_init() };
            Ok(Given::Inet(SocketAddr::V6(SocketAddrV6::new(
                Ipv6Addr::from(raw.sin6_addr.s6_addr),
                u16::from_be(raw.sin6_port),
                raw.sin6_flowinfo,
                raw.sin6_scope_id,
            ))))
        }
        _ => fail(libc::EAFNOSUPPORT),
    }
}

/// The address that bind(2) is given: as [`read_own`], and as Linux AF_UNSPEC with IPv4's wildcard.
///
/// # Safety
/// As there.
pub unsafe fn read_bound(
    pointer: *const sockaddr,
    len: socklen_t,
    domain: Domain,
) -> io::Result<SocketAddr> {
    // SAFETY: the caller's.
    match (unsafe { read_own(pointer, len, domain) }?, domain) {
        (Given::Inet(address), _) => Ok(address),
        (Given::Unspecified, Domain::V4) => {
            // SAFETY: the caller's.
            let address = unsafe { read_v4(pointer, len) }?;
            match address.ip().is_unspecified() {
                true => Ok(address),
                false => fail(libc::EAFNOSUPPORT),
            }
        }
        (Given::Unspecified, Domain::V6) if (len as usize) < V6_LEN_MIN => fail(libc::EINVAL),
        (Given::Unspecified, Domain::V6) => fail(libc::EAFNOSUPPORT),
    }
}

/// The IPv4 address at `pointer`, whatever family stands there: EINVAL (too short).
///
/// # Safety
/// `pointer` must be readable for `len` bytes.
pub unsafe fn read_v4(pointer: *const sockaddr, len: socklen_t) -> io::Result<SocketAddr> {
    if (len as usize) < V4_LEN {
        return fail(libc::EINVAL);
    }
    // SAFETY: long enough for sockaddr_in.
    let raw = unsafe { pointer.cast::<sockaddr_in>().read_unaligned() };
    let ip = Ipv4Addr::from(u32::from_be(raw.sin_addr.s_addr));
    let port = u16::from_be(raw.sin_port);
    Ok(SocketAddr::V4(SocketAddrV4::new(ip, port)))
}

/// Writes `address` as a socket of `domain` shows it, cut to `*len` bytes; `*len` becomes its whole length.
/// A NULL `pointer` wants no address.
///
/// # Safety
/// `pointer` must be writable for `*len` bytes, `len` readable and writable; either may be NULL.
pub unsafe fn write(
    address: SocketAddr,
    domain: Domain,
    pointer: *mut sockaddr,
    len: *mut socklen_t,
) -> io::Result<()> {
    if pointer.is_null() {
        return Ok(());
    }
    if buffers::is_bad(pointer) || buffers::is_bad(len) {
        return fail(libc::EFAULT);
    }
    // SAFETY: not NULL; the caller vouches for the rest.
    let room = unsafe { len.read() };
    if c_int::try_from(room).is_err() {
        return fail(libc::EINVAL);
    }
    // SAFETY: as above.
    let whole = unsafe { encode(address, domain, pointer, room as usize) };
    // SAFETY: as above.
    unsafe { len.write(whole) };
    Ok(())
}

/// Writes at most `room` bytes of `address`; its whole length.
///
/// # Safety
/// `pointer` must be writable for `room` bytes.
unsafe fn encode(
    address: SocketAddr,
    domain: Domain,
    pointer: *mut sockaddr,
    room: usize,
) -> socklen_t {
    match (domain, address) {
        (Domain::V4, SocketAddr::V4(v4)) => {
            let raw = sockaddr_in {
                sin_family: FAMILY_V4,
                sin_port: v4.port().to_be(),
                sin_addr: libc::in_addr {
                    s_addr: u32::from(*v4.ip()).to_be(),
                },
                sin_zero: [0; 8],
            };
            // SAFETY: the lesser of both sizes is readable there and writable here.
            unsafe { copy_out(&raw, pointer, room) }
        }
        (_, address) => {
            let (flow, scope) = match address {
                SocketAddr::V6(v6) => (v6.flowinfo(), v6.scope_id()),
                SocketAddr::V4(_) => (0, 0),
            };
            let ip = match address.ip() {
                IpAddr::V4(ip) if ip.is_unspecified() => Ipv6Addr::UNSPECIFIED,
                IpAddr::V4(ip) => ip.to_ipv6_mapped(),
                IpAddr::V6(ip) => ip,
            };
            let raw = sockaddr_in6 {
                sin6_family: FAMILY_V6,
                sin6_port: address.port().to_be(),
                sin6_flowinfo: flow,
                sin6_addr: libc::in6_addr {
                    s6_addr: ip.octets(),
                },
                sin6_scope_id: scope,
            };
            // SAFETY: the lesser of both sizes is readable there and writable here.
            unsafe { copy_out(&raw, pointer, room) }
        }
    }
}

/// Copies at most `room` bytes of `raw`; its whole length.
///
/// # Safety
/// `pointer` must be writable for `room` bytes.
unsafe fn copy_out<T>(raw: &T, pointer: *mut sockaddr, room: usize) -> socklen_t {
    let from = ptr_bytes(raw);
    // SAFETY: `raw` is readable for its size, the target for `room`.
    unsafe {
        pointer
            .cast::<u8>()
            .copy_from_nonoverlapping(from, room.min(size_of::<T>()))
    };
    socklen_t::try_from(size_of::<T>()).unwrap_or(0)
}

fn ptr_bytes<T>(raw: &T) -> *const u8 {
    (&raw const *raw).cast()
}

#[cfg(test)]
#[path = "address_tests.rs"]
mod tests;
