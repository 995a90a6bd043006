//! Netchan's links in the kernel's lists of interfaces and addresses (rtnetlink(7), dumps of RTM_GETLINK and RTM_GETADDR): where a program asks for one over a
//! netlink socket of its own, what is netchan's is a datagram that it receives ahead of the kernel's. A loopback link is left out: the kernel lists its own.

use std::{
    io::{IoSlice, IoSliceMut},
    net::IpAddr,
    os::fd::RawFd,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
};

use libc::{c_int, c_void, sockaddr, socklen_t};
use netchan::LinkFacts;
use parking_lot::Mutex;

use crate::{buffers, edge, interfaces, sys};

/// What is netchan's of answers that were not received yet.
static WAITING: Mutex<Vec<Answer>> = Mutex::new(Vec::new());
/// How many these are.
static COUNT: AtomicUsize = AtomicUsize::new(0);
/// At most: those of sockets that were closed stay until others come.
const WAITING_MAX: usize = 16;

struct Answer {
    socket: RawFd,
    /// The number may be another socket's by now.
    cookie: u64,
    text: Vec<u8>,
}

// What the headers have in fewer bits than libc's numbers.
const NETLINK: u16 = 16;
const DUMP: u16 = 0x300;
const MULTI: u16 = 2;
const INET: u8 = 2;
const INET6: u8 = 10;
const PERMANENT: u8 = 0x80;

const _: () = {
    assert!(NETLINK as i32 == libc::AF_NETLINK && MULTI as i32 == libc::NLM_F_MULTI);
    assert!(DUMP as i32 == libc::NLM_F_ROOT | libc::NLM_F_MATCH);
    assert!(INET as i32 == libc::AF_INET && INET6 as i32 == libc::AF_INET6);
    assert!(PERMANENT as u32 == libc::IFA_F_PERMANENT);
};

/// The length of struct nlmsghdr.
const HEADER: usize = 16;
/// A request is no longer.
const REQUEST_MAX: usize = 1024;

/// The kernel has answered a send with `result`: if it asks for a list, what is netchan's of that is to be received.
///
/// # Safety
/// As send(2).
pub unsafe fn sent_from(fd: RawFd, buffer: (*const c_void, usize), result: isize) -> isize {
    if is_request(result) && result == buffer.1.cast_signed() {
        // SAFETY: the caller's.
        if let Ok(text) = unsafe { buffers::readable(buffer.0, buffer.1) } {
            sent(fd, text);
        }
    }
    result
}

/// The same of sendmsg(2).
///
/// # Safety
/// As sendmsg(2).
pub unsafe fn sent_message(fd: RawFd, message: *const libc::msghdr, result: isize) -> isize {
    if is_request(result) && !buffers::is_bad(message) {
        let mut text = Vec::new();
        let gather = |parts: &mut [IoSlice<'_>]| {
            parts.iter().for_each(|part| text.extend_from_slice(part));
            Ok(())
        };
        // SAFETY: the caller's.
        let message = unsafe { &*message };
        let (vectors, count) = (message.msg_iov, message.msg_iovlen);
        // SAFETY: the caller's.
        let gathered = unsafe { buffers::with_readable(vectors, count, libc::EMSGSIZE, gather) };
        if gathered.is_ok() {
            sent(fd, &text);
        }
    }
    result
}

/// Whether so many bytes may be requests.
fn is_request(sent: isize) -> bool {
    usize::try_from(sent).is_ok_and(|n| (HEADER + 1..=REQUEST_MAX).contains(&n))
}

fn sent(fd: RawFd, text: &[u8]) {
    // Few sends begin with their own length.
    let len = text.first_chunk().map(|len| u32::from_ne_bytes(*len));
    let begins = len.is_some_and(|len| len as usize <= text.len() && len as usize > HEADER); // widening: u32 to usize
    if begins && interfaces::are_ours() && sys::is_route_netlink(fd) {
        edge::unit(|| {
            note(fd, text);
            Ok(())
        });
    }
}

fn note(fd: RawFd, mut requests: &[u8]) {
    while let Some((header, rest)) = requests.split_first_chunk::<HEADER>() {
        let word = |at: usize| u32::from_ne_bytes([0, 1, 2, 3].map(|n| header[at + n]));
        let half = |at: usize| u16::from_ne_bytes([0, 1].map(|n| header[at + n]));
        let len = word(0) as usize; // widening: u32 to usize
        if half(6) & DUMP == DUMP {
            let family = rest
                .first()
                .map_or(libc::AF_UNSPEC, |&family| c_int::from(family));
            let about = About {
                sequence: word(8),
                port: sys::netlink_port(fd),
            };
            keep(fd, about.list(half(4), family, &interfaces::all()));
        }
        requests = requests
            .get(len.next_multiple_of(4).max(HEADER)..)
            .unwrap_or_default();
    }
}

fn keep(socket: RawFd, text: Vec<u8>) {
    if text.is_empty() {
        return;
    }
    let cookie = sys::cookie(socket);
    let mut waiting = WAITING.lock();
    if waiting.len() >= WAITING_MAX {
        waiting.remove(0);
    }
    waiting.push(Answer {
        socket,
        cookie,
        text,
    });
    COUNT.store(waiting.len(), Relaxed); // a hint for other threads
}

/// Receives what is netchan's of a list, if there is some: as a datagram from the kernel.
fn receive(fd: RawFd, flags: c_int, mut put: impl FnMut(&[u8]) -> usize) -> Option<Received> {
    if COUNT.load(Relaxed) == 0 {
        return None;
    }
    // A forked child's may be held by a thread that it does not have.
    let mut waiting = WAITING.try_lock()?;
    let place = waiting.iter().position(|answer| answer.socket == fd)?;
    if waiting[place].cookie != sys::cookie(fd) {
        waiting.remove(place);
        return None;
    }
    let len = waiting[place].text.len();
    let taken = put(&waiting[place].text);
    if flags & libc::MSG_PEEK == 0 {
        waiting.remove(place);
    }
    COUNT.store(waiting.len(), Relaxed); // as above
    Some(Received {
        is_cut: taken < len,
        len: if flags & libc::MSG_TRUNC == 0 {
            taken
        } else {
            len
        },
    })
}

struct Received {
    is_cut: bool,
    len: usize,
}

/// read(2), recv(2) and recvfrom(2); `None`: the kernel's.
///
/// # Safety
/// As recvfrom(2).
pub unsafe fn receive_into(
    fd: c_int,
    buffer: (*mut c_void, usize),
    flags: c_int,
    from: (*mut sockaddr, *mut socklen_t),
) -> Option<isize> {
    // SAFETY: the caller's.
    let into = unsafe { buffers::writable(buffer.0, buffer.1) }.ok()?;
    let received = receive(fd, flags, |text| fill(&mut [IoSliceMut::new(into)], text))?;
    if !buffers::is_bad(from.0) && !buffers::is_bad(from.1) {
        // SAFETY: the caller's.
        let len = unsafe { &mut *from.1 };
        // SAFETY: the caller's.
        *len = unsafe { put_name(from.0.cast(), *len) };
    }
    Some(received.len.cast_signed())
}

/// recvmsg(2); `None`: the kernel's.
///
/// # Safety
/// As recvmsg(2).
pub unsafe fn receive_message(
    fd: c_int,
    message: *mut libc::msghdr,
    flags: c_int,
) -> Option<isize> {
    if COUNT.load(Relaxed) == 0 || buffers::is_bad(message) {
        return None;
    }
    // SAFETY: the caller's.
    let message = unsafe { &mut *message };
    let mut received = None;
    let take = |into: &mut [IoSliceMut<'_>]| {
        received = receive(fd, flags, |text| fill(into, text));
        Ok(0)
    };
    // SAFETY: the caller's.
    let vectors = unsafe {
        buffers::with_writable(message.msg_iov, message.msg_iovlen, libc::EMSGSIZE, take)
    };
    vectors.ok()?;
    let received = received?;
    if !buffers::is_bad(message.msg_name) {
        // SAFETY: the caller's.
        message.msg_namelen = unsafe { put_name(message.msg_name, message.msg_namelen) };
    }
    message.msg_controllen = 0;
    message.msg_flags = if received.is_cut { libc::MSG_TRUNC } else { 0 };
    Some(received.len.cast_signed())
}

/// Writes struct sockaddr_nl of the kernel, whose port and groups are 0; its length.
///
/// # Safety
/// `into` must be writable for `room` bytes.
unsafe fn put_name(into: *mut c_void, room: socklen_t) -> socklen_t {
    let mut name = [0; 12];
    name[..2].copy_from_slice(&NETLINK.to_ne_bytes());
    let n = name.len().min(room as usize); // widening: u32 to usize
    // SAFETY: the caller's.
    unsafe { into.copy_from_nonoverlapping(name.as_ptr().cast(), n) };
    12
}

fn fill(into: &mut [IoSliceMut<'_>], mut text: &[u8]) -> usize {
    let all = text.len();
    for part in into {
        let n = part.len().min(text.len());
        part[..n].copy_from_slice(&text[..n]);
        text = &text[n..];
    }
    all - text.len()
}

/// Which request messages answer.
struct About {
    sequence: u32,
    port: u32,
}

impl About {
    /// What is netchan's of a list.
    fn list(&self, request: u16, family: c_int, links: &[LinkFacts]) -> Vec<u8> {
        let mut all = Vec::new();
        let mut number = 0_u32;
        for link in links {
            number += 1;
            if link.is_loopback {
                continue;
            }
            if request == libc::RTM_GETLINK && matches!(family, libc::AF_UNSPEC | libc::AF_PACKET) {
                self.link(&mut all, number, link);
            }
            if request == libc::RTM_GETADDR {
                for &(ip, bits) in &link.addresses {
                    let own = if ip.is_ipv4() {
                        libc::AF_INET
                    } else {
                        libc::AF_INET6
                    };
                    if family == libc::AF_UNSPEC || family == own {
                        self.address(&mut all, number, &link.name, (ip, bits));
                    }
                }
            }
        }
        all
    }

    fn link(&self, all: &mut Vec<u8>, number: u32, link: &LinkFacts) {
        let mut body = vec![0; 16]; // struct ifinfomsg
        body[2..4].copy_from_slice(&libc::ARPHRD_ETHER.to_ne_bytes());
        body[4..8].copy_from_slice(&number.to_ne_bytes());
        body[8..12].copy_from_slice(&interfaces::flags(link).to_ne_bytes());
        let mtu = u32::try_from(link.mtu).unwrap_or(u32::MAX);
        attribute(&mut body, libc::IFLA_IFNAME, &text(&link.name));
        attribute(&mut body, libc::IFLA_MTU, &mtu.to_ne_bytes());
        attribute(&mut body, libc::IFLA_ADDRESS, &link.mac);
        attribute(&mut body, libc::IFLA_BROADCAST, &[0xff; 6]);
        self.message(all, libc::RTM_NEWLINK, &body);
    }

    fn address(&self, all: &mut Vec<u8>, number: u32, name: &str, (ip, bits): (IpAddr, u8)) {
        let is_local = matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local());
        let scope = if is_local {
            libc::RT_SCOPE_LINK
        } else {
            libc::RT_SCOPE_UNIVERSE
        };
        let (family, octets) = match ip {
            IpAddr::V4(ip) => (INET, ip.octets().to_vec()),
            IpAddr::V6(ip) => (INET6, ip.octets().to_vec()),
        };
        let mut body = vec![family, bits, PERMANENT, scope]; // struct ifaddrmsg
        body.extend(number.to_ne_bytes());
        attribute(&mut body, libc::IFA_ADDRESS, &octets);
        if let IpAddr::V4(ip) = ip {
            attribute(&mut body, libc::IFA_LOCAL, &octets);
            if let Some(all) = interfaces::broadcast(ip, bits) {
                attribute(&mut body, libc::IFA_BROADCAST, &all.octets());
            }
            attribute(&mut body, libc::IFA_LABEL, &text(name));
        }
        self.message(all, libc::RTM_NEWADDR, &body);
    }

    fn message(&self, all: &mut Vec<u8>, kind: u16, body: &[u8]) {
        let len = u32::try_from(HEADER + body.len()).unwrap_or(0);
        all.extend(len.to_ne_bytes());
        all.extend(kind.to_ne_bytes());
        all.extend(MULTI.to_ne_bytes());
        all.extend(self.sequence.to_ne_bytes());
        all.extend(self.port.to_ne_bytes());
        all.extend(body);
        all.resize(all.len().next_multiple_of(4), 0);
    }
}

/// A name as C has it, no longer than IFNAMSIZ.
fn text(name: &str) -> Vec<u8> {
    name.bytes().take(15).chain([0]).collect()
}

/// Appends struct rtattr with what belongs to it.
fn attribute(body: &mut Vec<u8>, kind: u16, value: &[u8]) {
    let len = u16::try_from(4 + value.len()).unwrap_or(0);
    body.extend(len.to_ne_bytes());
    body.extend(kind.to_ne_bytes());
    body.extend(value);
    body.resize(body.len().next_multiple_of(4), 0);
}
