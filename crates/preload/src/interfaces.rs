//! getifaddrs(3), if_nametoindex(3) and if_indextoname(3): netchan's links with their addresses behind the kernel's interfaces, by the names and
//! numbers that SO_BINDTODEVICE and IP_PKTINFO have for them. An address that an interface of the kernel's has, too, is listed once (the loopback
//! addresses); so is a name: as everywhere, a link goes before the kernel's interface of its name or number. Of a supervised program they are those that
//! there were when it began.

use std::{
    ffi::CStr,
    io, mem,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    ptr,
    sync::OnceLock,
};

use libc::{c_char, c_int, c_uint, ifaddrs, sockaddr};
use netchan::{LinkFacts, Net, environment};

use crate::{buffers, errno, options::device, process, start};

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
    Link(c_uint, LinkFacts),
    Address(String, u32, IpAddr, u8, c_uint),
}

/// The stack, for a program that is netchan's: with its first question it begins, as with its first socket.
fn net() -> Option<&'static Net> {
    (process::is_configured() && start::has_stack()).then(start::net)
}

/// Whether there are links of netchan's behind the kernel's interfaces.
pub fn are_ours() -> bool {
    process::is_configured() || process::is_supervised()
}

/// Netchan's links, in the order of their numbers.
pub fn all() -> Vec<LinkFacts> {
    match net() {
        Some(net) => net.links(),
        None => supervised().to_vec(),
    }
}

/// Those of a supervised program.
fn supervised() -> &'static [LinkFacts] {
    static LINKS: OnceLock<Vec<LinkFacts>> = OnceLock::new();
    LINKS.get_or_init(|| {
        let said = process::variable(environment::INTERFACES);
        environment::links_of(&said.unwrap_or_default())
    })
}

/// Linux's flags of a link.
pub fn flags(link: &LinkFacts) -> c_uint {
    let kind = if link.is_loopback {
        libc::IFF_LOOPBACK
    } else {
        libc::IFF_BROADCAST | libc::IFF_MULTICAST
    };
    (libc::IFF_UP | libc::IFF_RUNNING | kind).cast_unsigned()
}

/// SIOCGIFFLAGS, by the name of a link of netchan's: as elsewhere, it goes before the kernel's interface of that name. False: there is none.
///
/// # Safety
/// `argument` must be a pointer to a struct ifreq, or NULL.
pub unsafe fn tell_flags(argument: usize) -> bool {
    let place = argument as *mut [u8; NAME];
    let told = (argument + NAME) as *mut [u8; 2]; // a short stands behind the name
    if buffers::is_bad(place) || !are_ours() {
        return false;
    }
    // SAFETY: the caller's.
    let asked = unsafe { place.read_unaligned() };
    let links = all();
    let Some(link) = links.iter().find(|link| padded(&link.name) == asked) else {
        return false;
    };
    let [low, high, ..] = flags(link).to_ne_bytes();
    // SAFETY: as above.
    unsafe { told.write_unaligned([low, high]) };
    true
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
    let links = self::all();
    if links.is_empty() {
        return Ok(());
    }
    // SAFETY: the caller's.
    let known = unsafe { addresses(*list) };
    let mut all = Vec::new();
    for (number, link) in (1..).zip(links) {
        let is_new = |(ip, _): &&(IpAddr, u8)| !known.contains(ip);
        let own: Vec<_> = link.addresses.iter().filter(is_new).copied().collect();
        if own.is_empty() && !link.addresses.is_empty() {
            continue;
        }
        let (name, flags) = (link.name.clone(), flags(&link));
        all.push(What::Link(number, link));
        let address = |(ip, len)| What::Address(name.clone(), number, ip, len, flags);
        all.extend(own.into_iter().map(address));
    }
    let Some(ours) = build(&all)? else {
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
fn build(all: &[What]) -> io::Result<Option<*mut ifaddrs>> {
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
        fill(entry, what);
        if at == 0 {
            entry.entry.ifa_data = mark();
        }
        if at + 1 < all.len() {
            entry.entry.ifa_next = room.wrapping_add(at + 1).cast();
        }
    }
    Ok(Some(room.cast()))
}

fn fill(into: &mut Entry, what: &What) {
    let (name, flags) = match what {
        What::Link(_, link) => (&link.name, flags(link)),
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
        What::Link(number, link) => {
            into.address.link = link_address(*number, link);
        }
        What::Address(_, number, ip, len, _) => {
            into.address = socket_address(*ip, *number);
            into.mask = socket_address(mask(*ip, *len), 0);
            into.entry.ifa_netmask = (&raw mut into.mask).cast();
            if let IpAddr::V4(v4) = ip
                && let Some(broadcast) = broadcast(*v4, *len)
            {
                into.broadcast = socket_address(broadcast.into(), 0);
                into.entry.ifa_ifu = (&raw mut into.broadcast).cast::<sockaddr>();
            }
        }
    }
}

/// The broadcast address of an address's network.
pub fn broadcast(ip: Ipv4Addr, len: u8) -> Option<Ipv4Addr> {
    let host = u32::MAX.checked_shr(u32::from(len)).unwrap_or(0);
    (len < 31 && !ip.is_loopback()).then(|| Ipv4Addr::from_bits(ip.to_bits() | host))
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

fn link_address(number: c_uint, link: &LinkFacts) -> libc::sockaddr_ll {
    let mut address = [0; 8];
    address[..6].copy_from_slice(&link.mac);
    libc::sockaddr_ll {
        sll_family: family(libc::AF_PACKET),
        sll_protocol: 0,
        sll_ifindex: number.cast_signed(),
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

/// A name, with as many NULs behind it as there is room for, and one at least.
fn padded(name: &str) -> [u8; NAME] {
    let mut padded = [0; NAME];
    let text = padded[..NAME - 1].iter_mut().zip(name.bytes());
    text.for_each(|(to, byte)| *to = byte);
    padded
}

/// The number of a link of netchan's; `None`: there is none of this name.
///
/// # Safety
/// `name` must be a C string.
pub unsafe fn number_of(name: *const c_char) -> Option<c_uint> {
    // SAFETY: the caller's.
    let name = unsafe { CStr::from_ptr(name) }.to_str().ok()?;
    if let Some(net) = net() {
        return Some(c_uint::from(net.link_named(name)?) + 1);
    }
    let place = supervised().iter().position(|link| link.name == name)?;
    c_uint::try_from(place + 1).ok()
}

/// Writes the name of a link of netchan's; `None`: there is none with this number.
///
/// # Safety
/// `into` must be writable for 16 bytes.
pub unsafe fn name_of(number: c_uint, into: *mut c_char) -> Option<()> {
    let name = match net() {
        Some(_) => device::name_by_number(number)?,
        None => padded(&supervised().get((number as usize).checked_sub(1)?)?.name), // widening: u32 to usize
    };
    // SAFETY: the caller's.
    unsafe { into.cast::<[u8; NAME]>().write_unaligned(name) };
    Some(())
}

const _: () = assert!(mem::align_of::<Entry>() <= 16, "malloc(3) aligns it");
