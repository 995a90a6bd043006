//! SO_TIMESTAMPING and SO_ZEROCOPY: what a program is told of its own sends, and of the time at which something came. Software's times only.

use std::{io, sync::atomic::Ordering::Relaxed};

use libc::{c_int, msghdr};
use netchan::socket::{Kind, Notice, Stamp, StampRequest};

use crate::{
    ancillary,
    asked::{Ask, SOFTWARE},
    driver,
    errno::fail,
    state::Live,
};

const TX_SOFTWARE: u32 = 1 << 1;
const OPT_ID: u32 = 1 << 7;
const TX_SCHED: u32 = 1 << 8;
const TX_ACK: u32 = 1 << 9;
const OPT_TSONLY: u32 = 1 << 11;
const OPT_STATS: u32 = 1 << 12;
const BIND_PHC: u32 = 1 << 15;
const OPT_ID_TCP: u32 = 1 << 16;
/// All that Linux 6.12 knows.
const KNOWN: u32 = (1 << 18) - 1;

/// Checks what SO_TIMESTAMPING is given.
pub fn parse(flags: u32) -> io::Result<u32> {
    let lacks = |flag: u32, other: u32| flags & flag != 0 && flags & other == 0;
    if flags & !KNOWN != 0 || lacks(OPT_ID_TCP, OPT_ID) || lacks(OPT_STATS, OPT_TSONLY) {
        return fail(libc::EINVAL);
    }
    Ok(flags)
}

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

/// What getsockopt says: the flags, and no hardware clock.
pub fn answer(live: Live<'_>) -> Vec<u8> {
    let mut bytes = live.state.stamping.load(Relaxed).to_ne_bytes().to_vec();
    bytes.extend([0; 4]);
    bytes
}

/// A stream's send took something.
pub fn sent(live: Live<'_>, flags: c_int) {
    if flags & libc::MSG_EOR != 0 {
        live.socket.end_record();
    }
    if flags & libc::MSG_ZEROCOPY != 0 && live.state.asked.get(Ask::ZeroCopy) {
        live.socket.complete_zero_copy();
        // Each completion is an event of its own.
        live.state.watch.used(netchan::socket::Readiness::ERROR);
    }
    let asked = live.state.stamping.load(Relaxed);
    if asked & (TX_SOFTWARE | TX_SCHED | TX_ACK) != 0 {
        live.socket.stamp_send(StampRequest {
            scheduled: asked & TX_SCHED != 0,
            sent: asked & TX_SOFTWARE != 0,
            acknowledged: asked & TX_ACK != 0,
            with_id: asked & OPT_ID != 0,
        });
    }
}

/// A datagram was sent. What more is to be added to is stamped, and told of, with what ends it.
#[inline]
pub fn sent_datagram(live: Live<'_>, flags: c_int) {
    let asked = live.state.stamping.load(Relaxed) & (TX_SOFTWARE | TX_SCHED);
    if asked != 0 || flags & libc::MSG_ZEROCOPY != 0 {
        tell_datagram(live, flags);
    }
}

#[cold]
fn tell_datagram(live: Live<'_>, flags: c_int) {
    if flags & libc::MSG_ZEROCOPY != 0 && live.state.asked.get(Ask::ZeroCopy) {
        live.socket.complete_zero_copy();
    }
    let asked = live.state.stamping.load(Relaxed);
    if asked & (TX_SOFTWARE | TX_SCHED) != 0 && flags & libc::MSG_MORE == 0 {
        live.socket.stamp_send(StampRequest {
            scheduled: asked & TX_SCHED != 0,
            sent: asked & TX_SOFTWARE != 0,
            acknowledged: false,
            with_id: asked & OPT_ID != 0,
        });
    }
    live.state.watch.used(netchan::socket::Readiness::ERROR);
}

/// recvmsg(2) with MSG_ERRQUEUE: what is told of sends.
///
/// # Safety
/// `message` must be a valid msghdr for receiving.
pub unsafe fn receive(live: Live<'_>, message: &mut msghdr) -> io::Result<usize> {
    let notice = live.socket.take_notice();
    live.state.watch.used(netchan::socket::Readiness::ERROR);
    let Some(notice) = notice else {
        return fail(libc::EAGAIN);
    };
    let asked = live.state.stamping.load(Relaxed);
    let (time, error, cut) = match notice {
        Notice::ZeroCopy { first, last } => {
            const COPIED: u8 = 1;
            (None, extended((0, 5, COPIED), first, last), false)
        }
        Notice::Stamp { stamp, id, age } => {
            let what = match stamp {
                Stamp::Sent => 0,
                Stamp::Scheduled => 1,
                Stamp::Acknowledged => 2,
            };
            let at = driver::wall_clock().saturating_sub(age);
            let time = (asked & SOFTWARE != 0).then_some(at);
            // Linux would show the text, or the packet, which is not kept here.
            let cut = asked & OPT_TSONLY == 0;
            (time, extended((libc::ENOMSG, 4, 0), what, id), cut)
        }
    };
    message.msg_namelen = 0;
    // SAFETY: the caller's.
    let told = unsafe { ancillary::tell_notice(message, time, &error, live.state.domain) };
    message.msg_flags = told | if cut { libc::MSG_TRUNC } else { 0 };
    Ok(0)
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
