//! getifaddrs(3), if_nametoindex(3) and if_indextoname(3): netchan's links with their addresses behind the kernel's interfaces, by the names and
//! numbers that SO_BINDTODEVICE and IP_PKTINFO have for them. An address that an interface of the kernel's has, too, is listed once (the loopback
//! addresses); so is a name: as everywhere, a link goes before the kernel's interface of its name or number.

use std::{
    ffi::CStr,
    io, mem,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    ptr,
};

use libc::{c_char, c_int, c_uint, ifaddrs, sockaddr};
use netchan::{LinkFacts, Net};

use crate::{errno, options::device, process, start};

/// IFNAMSIZ.
const NAME: usize = 16;

/// An entry with what it points to.
#[repr(C)]
struct Entry {
    entry: ifaddrs,
    name: [c_char; NAME],
    address: Place,
    mask: Place,
    broadcast: Place,
}

/// Room for any address here.
#[repr(C)]
#[derive(Clone, Copy)]
union Place {
    v4: libc::sockaddr_in,
    v6: libc::sockaddr_in6,
    link: libc::sockaddr_ll,
}

/// Where the `ifa_data` of a list's first entry of ours points: statistics, as Linux has them for a link, all zero. No other list has it, so that
/// it is known where the C library's entries end.
static STATISTICS: [u64; 32] = [0; 32];

fn mark() -> *mut libc::c_void {
    (&raw const STATISTICS).cast_mut().cast()
}

/// What an entry says.
enum What {
    Link(LinkFacts),
    Address(String, u32, IpAddr, u8, c_uint),
}

/// The stack, for a program that is netchan's: with its first question it begins, as with its first socket.
fn net() -> Option<&'static Net> {
    process::is_configured().then(start::net)
}

/// Linux's flags of a link.
fn flags(link: &LinkFacts) -> c_uint {
    let kind = if link.is_loopback {
        libc::IFF_LOOPBACK
    } else {
        libc::IFF_BROADCAST | libc::IFF_MULTICAST
    };
    (libc::IFF_UP | libc::IFF_RUNNING | kind).cast_unsigned()
}

/// The addresses of a list of the C library's.
///
/// # Safety
/// `list` must be one, or NULL.
unsafe fn addresses(list: *const ifaddrs) -> Vec<IpAddr> {
    let (mut found, mut at) = (Vec::new(), list);
    // SAFETY: the caller's: NULL ends it.
    while let Some(entry) = unsafe { at.as_ref() } {
        // SAFETY: an entry's address is NULL or valid.
        let family =
            unsafe { entry.ifa_addr.as_ref() }.map(|address| c_int::from(address.sa_family));
        match family {
            Some(libc::AF_INET) => {
                // SAFETY: of this family.
                let v4 = unsafe { entry.ifa_addr.cast::<libc::sockaddr_in>().read_unaligned() };
                found.push(Ipv4Addr::from(v4.sin_addr.s_addr.to_ne_bytes()).into());
            }
            Some(libc::AF_INET6) => {
                // SAFETY: of this family.
                let v6 = unsafe { entry.ifa_addr.cast::<libc::sockaddr_in6>().read_unaligned() };
                found.push(Ipv6Addr::from(v6.sin6_addr.s6_addr).into());
            }
            _ => {}
        }
        at = entry.ifa_next;
    }
    found
}

/// Adds netchan's links to a list that the C library made; `list` is that list, or netchan's part of it where that is all.
///
/// # Safety
/// `list` must be what getifaddrs(3) has filled in.
pub unsafe fn extend(list: &mut *mut ifaddrs) -> io::Result<()> {
    let Some(net) = net() else {
        return Ok(());
    };
    // SAFETY: the caller's.
    let known = unsafe { addresses(*list) };
    let mut all = Vec::new();
    for (number, link) in (1..).zip(net.links()) {
        let is_new = |(ip, _): &&(IpAddr, u8)| !known.contains(ip);
        let own: Vec<_> = link.addresses.iter().filter(is_new).copied().collect();
        if own.is_empty() && !link.addresses.is_empty() {
            continue;
        }
        let (name, flags) = (link.name.clone(), flags(&link));
        all.push(What::Link(link));
        let address = |(ip, len)| What::Address(name.clone(), number, ip, len, flags);
        all.extend(own.into_iter().map(address));
    }
    let Some(ours) = build(&all, net)? else {
        return Ok(());
    };
    let mut end = list;
    // SAFETY: a list of the C library's, of which each entry may be written.
    while let Some(entry) = unsafe { end.as_mut() } {
        end = &mut entry.ifa_next;
    }
    *end = ours;
    Ok(())
}

/// All entries, linked, in one piece of memory of malloc(3)'s.
fn build(all: &[What], net: &Net) -> io::Result<Option<*mut ifaddrs>> {
    if all.is_empty() {
        return Ok(None);
    }
    // SAFETY: no pointer is given.
    let room = unsafe { libc::calloc(all.len(), size_of::<Entry>()) }.cast::<Entry>();
    if room.is_null() {
        return errno::fail(libc::ENOMEM);
    }
    for (at, what) in all.iter().enumerate() {
        // SAFETY: within the room, which is aligned for anything, and zero, which is a valid entry.
        let entry = unsafe { &mut *room.wrapping_add(at) };
        fill(entry, what, net);
        if at == 0 {
            entry.entry.ifa_data = mark();
        }
        if at + 1 < all.len() {
            entry.entry.ifa_next = room.wrapping_add(at + 1).cast();
        }
    }
    Ok(Some(room.cast()))
}

fn fill(into: &mut Entry, what: &What, net: &Net) {
    let (name, flags) = match what {
        What::Link(link) => (&link.name, flags(link)),
        What::Address(name, _, _, _, flags) => (name, *flags),
    };
    // The last one stays NUL.
    for (to, byte) in into.name[..NAME - 1].iter_mut().zip(name.bytes()) {
        *to = byte.cast_signed();
    }
    into.entry.ifa_name = (&raw mut into.name).cast();
    into.entry.ifa_flags = flags;
    into.entry.ifa_addr = (&raw mut into.address).cast();
    match what {
        What::Link(link) => {
            into.address.link = link_address(link, net);
        }
        What::Address(_, number, ip, len, _) => {
            into.address = socket_address(*ip, *number);
            into.mask = socket_address(mask(*ip, *len), 0);
            into.entry.ifa_netmask = (&raw mut into.mask).cast();
            if let IpAddr::V4(v4) = ip
                && *len < 31
                && !v4.is_loopback()
            {
                let host = u32::MAX.checked_shr(u32::from(*len)).unwrap_or(0);
                let broadcast = Ipv4Addr::from_bits(v4.to_bits() | host);
                into.broadcast = socket_address(broadcast.into(), 0);
                into.entry.ifa_ifu = (&raw mut into.broadcast).cast::<sockaddr>();
            }
        }
    }
}

fn mask(ip: IpAddr, len: u8) -> IpAddr {
    let len = u32::from(len);
    match ip {
        IpAddr::V4(_) => Ipv4Addr::from_bits(!u32::MAX.checked_shr(len).unwrap_or(0)).into(),
        IpAddr::V6(_) => Ipv6Addr::from_bits(!u128::MAX.checked_shr(len).unwrap_or(0)).into(),
    }
}

/// With the number of its link, where the address means nothing without.
fn socket_address(ip: IpAddr, number: u32) -> Place {
    match ip {
        IpAddr::V4(ip) => Place {
            v4: libc::sockaddr_in {
                sin_family: family(libc::AF_INET),
                sin_port: 0,
                sin_addr: libc::in_addr {
                    s_addr: u32::from_ne_bytes(ip.octets()),
                },
                sin_zero: [0; 8],
            },
        },
        IpAddr::V6(ip) => Place {
            v6: libc::sockaddr_in6 {
                sin6_family: family(libc::AF_INET6),
                sin6_port: 0,
                sin6_flowinfo: 0,
                sin6_addr: libc::in6_addr {
                    s6_addr: ip.octets(),
                },
                sin6_scope_id: if ip.is_unicast_link_local() {
                    number
                } else {
                    0
                },
            },
        },
    }
}

fn family(number: c_int) -> libc::sa_family_t {
    libc::sa_family_t::try_from(number).unwrap_or_default()
}

fn link_address(link: &LinkFacts, net: &Net) -> libc::sockaddr_ll {
    let number = net.link_named(&link.name).map_or(0, c_int::from) + 1;
    let mut address = [0; 8];
    address[..6].copy_from_slice(&link.mac);
    libc::sockaddr_ll {
        sll_family: family(libc::AF_PACKET),
        sll_protocol: 0,
        sll_ifindex: number,
        sll_hatype: if link.is_loopback {
            libc::ARPHRD_LOOPBACK
        } else {
            libc::ARPHRD_ETHER
        },
        sll_pkttype: 0,
        sll_halen: 6,
        sll_addr: address,
    }
}

/// Takes netchan's part off a list and frees it: what is left is the C library's, or NULL.
///
/// # Safety
/// `list` must be one that getifaddrs(3) has given, or NULL.
pub unsafe fn cut(list: *mut ifaddrs) -> *mut ifaddrs {
    let mut rest = list;
    let mut end = &mut rest;
    // SAFETY: the caller's: NULL ends it.
    while let Some(entry) = unsafe { end.as_mut() } {
        if entry.ifa_data == mark() {
            let ours = std::mem::replace(end, ptr::null_mut());
            // SAFETY: what `build` has allocated.
            unsafe { libc::free(ours.cast()) };
            break;
        }
        end = &mut entry.ifa_next;
    }
    rest
}

/// The number of a link of netchan's; `None`: there is none of this name.
///
/// # Safety
/// `name` must be a C string.
pub unsafe fn number_of(name: *const c_char) -> Option<c_uint> {
    let net = net()?;
    // SAFETY: the caller's.
    let name = unsafe { CStr::from_ptr(name) };
    let number = net.link_named(name.to_str().ok()?)?;
    Some(c_uint::from(number) + 1)
}

/// Writes the name of a link of netchan's; `None`: there is none with this number.
///
/// # Safety
/// `into` must be writable for 16 bytes.
pub unsafe fn name_of(number: c_uint, into: *mut c_char) -> Option<()> {
    net()?;
    let name = device::name_by_number(number)?;
    // SAFETY: the caller's.
    unsafe { into.cast::<[u8; NAME]>().write_unaligned(name) };
    Some(())
}

const _: () = assert!(mem::align_of::<Entry>() <= 16, "malloc(3) aligns it");
