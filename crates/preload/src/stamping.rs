//! SO_TIMESTAMPING and SO_ZEROCOPY: what a program is told of its own sends, and of the time at which something came. Software's times only.

use std::{
    io::{self, IoSliceMut},
    sync::{Arc, atomic::Ordering::Relaxed},
};

use libc::{c_int, msghdr};
use netchan::socket::{Kind, Notice, SentPacket, Stamp, StampRequest, options::CallerFlag};

use crate::{
    ancillary::{self, Along},
    asked::{OPT_ID, SOFTWARE},
    buffers, driver,
    errno::fail,
    state::Live,
};

const TX_SOFTWARE: u32 = 1 << 1;
const TX_SCHED: u32 = 1 << 8;
const TX_ACK: u32 = 1 << 9;
const OPT_TSONLY: u32 = 1 << 11;
const BIND_PHC: u32 = 1 << 15;
const OPT_ID_TCP: u32 = 1 << 16;

/// SO_TIMESTAMPING: identifiers count from the moment at which they are asked for.
pub fn set(live: Live<'_>, flags: u32) -> io::Result<()> {
    let before = live.state.stamping.load(Relaxed);
    let begins = flags & OPT_ID & !before != 0;
    if begins && live.state.kind == Kind::Stream && live.socket.peer_address().is_err() {
        return fail(libc::EINVAL);
    }
    if flags & BIND_PHC != 0 {
        return fail(libc::EOPNOTSUPP); // no hardware clock
    }
    if begins {
        live.socket.number_stamps(flags & OPT_ID_TCP != 0);
    }
    live.state.stamping.store(flags, Relaxed);
    Ok(())
}

/// The time stamps that a send gets.
#[inline]
pub fn request(live: Live<'_>, along: &Along) -> StampRequest {
    match (live.state.stamping.load(Relaxed), along.stamping) {
        (0, None) => StampRequest::default(),
        (of_socket, of_send) => ask(live.state.kind, of_socket, of_send, along.stamp_id),
    }
}

#[cold]
fn ask(kind: Kind, of_socket: u32, of_send: Option<u32>, id: Option<u32>) -> StampRequest {
    let asked = of_send.unwrap_or(of_socket);
    StampRequest {
        scheduled: asked & TX_SCHED != 0,
        sent: asked & TX_SOFTWARE != 0,
        acknowledged: asked & TX_ACK != 0 && kind == Kind::Stream,
        with_id: of_socket & OPT_ID != 0,
        id,
        with_packet: of_socket & OPT_TSONLY == 0,
    }
}

/// A stream's send took something.
pub fn sent(live: Live<'_>, flags: c_int, request: StampRequest) {
    if flags & libc::MSG_EOR != 0 {
        live.socket.end_record();
    }
    if flags & libc::MSG_ZEROCOPY != 0 && live.state.asked.get(CallerFlag::ZeroCopy) {
        live.socket.complete_zero_copy();
        // Each completion is an event of its own.
        live.state.watch.used(netchan::socket::Readiness::ERROR);
    }
    if request.is_any() {
        live.socket.stamp_send(request);
    }
}

/// A datagram was sent.
#[inline]
pub fn sent_datagram(live: Live<'_>, flags: c_int, request: StampRequest) {
    if flags & libc::MSG_ZEROCOPY != 0 && live.state.asked.get(CallerFlag::ZeroCopy) {
        live.socket.complete_zero_copy();
    }
    if request.is_any() || flags & libc::MSG_ZEROCOPY != 0 {
        live.state.watch.used(netchan::socket::Readiness::ERROR);
    }
}

/// What there is to tell of sends.
#[derive(Debug)]
pub struct Told {
    notice: Notice,
    packet: Option<Arc<SentPacket>>,
    /// Bytes of it that found room.
    pub len: usize,
    /// It is longer.
    pub is_cut: bool,
}

/// Takes what is told of sends, the packet to `buffers`.
pub fn take(live: Live<'_>, buffers: &mut [IoSliceMut<'_>]) -> Option<Told> {
    let taken = live.socket.take_notice_with_packet();
    live.state.watch.used(netchan::socket::Readiness::ERROR);
    let (notice, packet) = taken?;
    let mut rest = (packet.as_ref()).map_or(&[][..], |packet| packet.frame.as_slice());
    let whole = rest.len();
    for buffer in buffers {
        let (here, more) = rest.split_at(buffer.len().min(rest.len()));
        buffer[..here.len()].copy_from_slice(here);
        rest = more;
    }
    // Linux would show a stream's text, or its packet, which is not kept here.
    let asked = live.state.stamping.load(Relaxed);
    let is_stamp = matches!(notice, Notice::Stamp { .. });
    let lacks = is_stamp && live.state.kind == Kind::Stream && asked & OPT_TSONLY == 0;
    let (len, is_cut) = (whole - rest.len(), !rest.is_empty() || lacks);
    Some(Told {
        notice,
        packet,
        len,
        is_cut,
    })
}

/// recvmsg(2) with MSG_ERRQUEUE: what is told of sends.
///
/// # Safety
/// `message` must be a valid msghdr for receiving.
pub unsafe fn receive(live: Live<'_>, message: &mut msghdr) -> io::Result<usize> {
    let count = message.msg_iovlen;
    let take =
        |buffers: &mut [IoSliceMut<'_>]| take(live, buffers).map_or_else(|| fail(libc::EAGAIN), Ok);
    // SAFETY: the caller's.
    let told = unsafe { buffers::with_writable(message.msg_iov, count, libc::EMSGSIZE, take) }?;
    let (time, error) = match told.notice {
        Notice::ZeroCopy { first, last } => {
            const COPIED: u8 = 1;
            (None, extended((0, 5, COPIED), first, last))
        }
        Notice::Stamp { stamp, id, age } => {
            let what = match stamp {
                Stamp::Sent => 0,
                Stamp::Scheduled => 1,
                Stamp::Acknowledged => 2,
            };
            let at = driver::wall_clock().saturating_sub(age);
            let is_asked = live.state.stamping.load(Relaxed) & SOFTWARE != 0;
            let error = extended((libc::ENOMSG, 4, 0), what, id);
            (is_asked.then_some(at), error)
        }
    };
    message.msg_namelen = 0;
    let packet = (told.packet.as_deref(), live);
    // SAFETY: the caller's.
    let flags = unsafe { ancillary::tell_notice(message, time, &error, packet) };
    message.msg_flags = flags | if told.is_cut { libc::MSG_TRUNC } else { 0 };
    Ok(told.len)
}

/// A struct sock_extended_err.
fn extended((errno, origin, code): (c_int, u8, u8), info: u32, data: u32) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..4].copy_from_slice(&errno.to_ne_bytes());
    bytes[4..7].copy_from_slice(&[origin, 0, code]);
    bytes[8..12].copy_from_slice(&info.to_ne_bytes());
    bytes[12..].copy_from_slice(&data.to_ne_bytes());
    bytes
}
