//! A socket that is a TCP connection.

use std::{
    io::{self, IoSlice, IoSliceMut},
    net::{IpAddr, SocketAddr},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    task::Waker,
};

use proto::time::Instant;

use super::options::SocketOptions;
use crate::api::{Readiness, ReceiveFlags, multicast::Multicast};
use crate::{
    errno::error,
    flow::FlowKey,
    shard::{Connect, Movable, SendLease, Shard, TcpSocket},
    stack::{Before, Stack},
};

/// A connection: the shard where it lives, and its number there. Or a listener, or neither, having been one of them.
pub(super) struct Stream {
    /// [`Place`], in one word: the number of one connection with the shard of another would be a third one. Changes only
    /// while the socket's lock is held. With the flags below.
    place: AtomicU64,
}

/// A connect has answered that it is done.
const REPORTED: u64 = 1 << 63;
/// It is no connection any more; the place is that of the last one, which is kept until another takes it, so that a call that runs
/// beside this one meets no other connection's.
const IDLE: u64 = 1 << 62;
/// It listens.
const LISTENS: u64 = 1 << 61;
/// shutdown(2) found it closed before connect had told so: as Linux, only connect with AF_UNSPEC leads out of this.
const BROKEN: u64 = 1 << 60;
const FLAGS: u64 = REPORTED | IDLE | LISTENS | BROKEN;

/// What a stream is at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Connection,
    Listening,
    Idle,
}

/// Where a connection lives, and which it is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    shard: usize,
    number: u32,
}

impl Place {
    /// Shards are few: both fit.
    #[inline]
    const fn packed(self) -> u64 {
        (self.shard as u64) << 32 | self.number as u64
    }

    #[inline]
    #[allow(clippy::cast_possible_truncation)] // the lower half
    const fn unpacked(packed: u64) -> Self {
        Self {
            shard: ((packed & !FLAGS) >> 32) as usize,
            number: packed as u32,
        }
    }

    /// The number of no connection.
    const NOWHERE: Self = Self {
        shard: 0,
        number: u32::MAX,
    };

    /// The application lets go of it.
    fn close(self, stack: &Stack) {
        if self == Self::NOWHERE {
            return;
        }
        stack.with_shard(self.shard, |shard, now| shard.tcp_close(self.number, now));
    }
}

impl Stream {
    pub(super) fn at(shard: usize, number: u32, reported: bool) -> Self {
        let place = Place { shard, number }.packed();
        Self {
            place: AtomicU64::new(if reported { place | REPORTED } else { place }),
        }
    }

    /// Neither a connection nor a listener.
    pub fn idle() -> Self {
        Self {
            place: AtomicU64::new(Place::NOWHERE.packed() | IDLE),
        }
    }

    #[inline]
    pub fn phase(&self) -> Phase {
        let place = self.place.load(Relaxed); // as everywhere here
        if place & (IDLE | LISTENS) == 0 {
            Phase::Connection
        } else if place & LISTENS != 0 {
            Phase::Listening
        } else {
            Phase::Idle
        }
    }

    /// Starts to connect. `options` is locked.
    pub fn connect(
        &self,
        stack: &Stack,
        remote: SocketAddr,
        options: &SocketOptions,
        fast: bool,
    ) -> io::Result<()> {
        let (shard, number) = start(stack, options.source(), remote, options, fast)?;
        let old = self.place();
        // Relaxed: `options` is locked; a call that runs beside this one meets the old connection or the new one.
        self.place.store(Place { shard, number }.packed(), Relaxed);
        // Its place is taken by others from now on: no call is sent there any more.
        old.close(stack);
        self.begin(stack, options);
        Ok(())
    }

    /// It listens from now on. `options` is locked, here and below.
    pub fn listens(&self) {
        self.set_phase(LISTENS);
    }

    /// It is nothing from now on.
    pub fn rests(&self) {
        self.set_phase(IDLE);
    }

    fn set_phase(&self, flag: u64) {
        let place = self.place.load(Relaxed) & !FLAGS;
        self.place.store(place | flag, Relaxed); // what is read through it stands under locks, or in a `OnceLock`
    }

    /// connect(2) with AF_UNSPEC: resets the connection.
    pub fn disconnect(&self, stack: &Stack) {
        self.rests(); // before the waiters are woken, by the shard's lock
        self.call(stack, Before::Nothing, |shard, number, now| {
            shard.tcp_disconnect(number, now);
        });
    }

    /// Whether the handshake is still under way.
    pub fn is_connecting(&self, stack: &Stack) -> bool {
        self.hold(stack, |shard, number| {
            (shard.tcp(number)).is_some_and(|s| !s.was_open() && !s.is_over())
        })
    }

    /// Whether the connection is closed.
    pub fn is_over(&self, stack: &Stack) -> bool {
        self.hold(stack, |shard, number| {
            shard.tcp(number).is_none_or(TcpSocket::is_over)
        })
    }

    /// connect(2) on a socket that was connected or connects. `options` is locked. The failure of the last attempt is told
    /// once; then the socket may connect again.
    pub fn connect_again(&self, stack: &Stack) -> Result<(), i32> {
        let flags = self.place.load(Relaxed);
        if flags & BROKEN != 0 {
            return Err(libc::EINVAL);
        }
        if flags & REPORTED != 0 {
            return Err(libc::EISCONN);
        }
        let state = self.call(stack, Before::Links, |shard, number, _| {
            let socket = shard.tcp(number)?;
            let is_held = socket.connection.is_held(); // connected, as far as anyone was told
            let is_through = is_held || socket.was_open();
            Some((is_through, socket.is_over(), socket.interface()))
        });
        match state {
            Some((true, false, link)) => {
                self.report();
                stack.await_returned(link); // the last segment of the handshake
                Ok(())
            }
            Some((false, false, _)) => Err(libc::EALREADY),
            _ => {
                let pending = self.take_error(stack);
                self.disconnect(stack);
                Err(pending.unwrap_or(libc::ECONNABORTED))
            }
        }
    }

    /// Whether its SYN waits for the first write.
    pub fn is_held(&self, stack: &Stack) -> bool {
        let is_held = self.hold(stack, |shard, number| shard.is_held(number));
        if is_held {
            self.report();
        }
        is_held
    }

    /// A write waits for the end of the handshake.
    pub fn text_follows(&self, stack: &Stack) {
        self.hold(stack, |shard, number| shard.text_follows(number));
    }

    /// No call was told yet that it is connected: its connection began with a write.
    pub fn report_later(&self) {
        self.place.fetch_and(!REPORTED, Relaxed); // one call's own answer: nothing is read through it
    }

    /// That it is connected is told now. Whether it was before.
    fn report(&self) -> bool {
        self.place.fetch_or(REPORTED, Relaxed) & REPORTED != 0
    }

    /// Whether MSG_FASTOPEN has a meaning still, or an errno: as in Linux also once after the handshake.
    pub fn may_send_fast(&self, stack: &Stack) -> Result<(), i32> {
        let (is_held, state) = self.hold(stack, |shard, number| {
            let socket = shard.tcp(number);
            let facts = socket.map(|s| (s.was_open(), s.is_over()));
            (shard.is_held(number), facts)
        });
        match state {
            _ if is_held => Ok(()),
            Some((false, false)) => Err(libc::EALREADY),
            Some((true, _)) if self.report() => Err(libc::EISCONN),
            _ => Ok(()),
        }
    }

    /// What became of connecting, or an errno: EALREADY while it goes on.
    pub fn finish_connect(&self, stack: &Stack) -> Result<(), i32> {
        let connected = self.call(stack, Before::Links, |shard, number, _| {
            if let Some(errno) = shard.tcp_take_error(number) {
                return Err(errno);
            }
            match shard.tcp(number).map(|s| (s.was_open(), s.is_over())) {
                Some((true, _)) => Ok(()),
                Some((false, false)) => Err(libc::EALREADY),
                _ => Err(libc::ENOTCONN),
            }
        });
        if connected.is_ok() {
            self.report();
        }
        connected
    }

    #[inline]
    pub(super) fn hold<R: Send>(
        &self,
        stack: &Stack,
        f: impl FnOnce(&mut Shard, u32) -> R + Send,
    ) -> R {
        self.call(stack, Before::Nothing, |shard, number, _| f(shard, number))
    }

    /// Holds the shard where it lives.
    #[inline(always)]
    fn call<R: Send>(
        &self,
        stack: &Stack,
        before: Before,
        f: impl FnOnce(&mut Shard, u32, Instant) -> R + Send,
    ) -> R {
        if stack.sockets.cells.len() > 1 {
            return self.call_where_it_is(stack, before, f);
        }
        let Place { shard, number } = self.place();
        stack.with_shard_after(before, shard, |shard, now| f(shard, number, now))
    }

    /// The same where there are several. It may have moved before the shard was had, or have become another connection: then once more, where it is now.
    #[inline(never)]
    fn call_where_it_is<R: Send>(
        &self,
        stack: &Stack,
        before: Before,
        f: impl FnOnce(&mut Shard, u32, Instant) -> R + Send,
    ) -> R {
        let mut f = Some(f);
        loop {
            let place = self.place();
            let done = stack.with_shard_after(before, place.shard, |shard, now| {
                if self.place() != place {
                    return None;
                }
                f.take().map(|f| f(shard, place.number, now))
            });
            if let Some(done) = done {
                return done;
            }
        }
    }

    /// With a waker: registers it where the call would block, else forgets it, without letting go of the shard in between.
    #[inline]
    pub fn send(
        &self,
        stack: &Stack,
        buffers: &[IoSlice<'_>],
        waker: Option<&Waker>,
    ) -> Result<usize, i32> {
        self.call(stack, Before::Sending, |shard, number, _| {
            let sent = shard.tcp_send(number, buffers);
            if let Some(waker) = waker {
                let blocked = sent == Err(libc::EAGAIN);
                shard.tcp_wait_for(number, Readiness::WRITABLE, waker, blocked);
            }
            sent
        })
    }

    /// With a waker: as [`send`](Self::send).
    #[inline]
    pub fn receive(
        &self,
        stack: &Stack,
        buffers: &mut [IoSliceMut<'_>],
        flags: ReceiveFlags,
        waker: Option<&Waker>,
    ) -> Result<usize, i32> {
        self.call(stack, Before::Links, |shard, number, now| {
            let received = shard.tcp_receive(number, buffers, flags, now);
            if let Some(waker) = waker {
                let blocked = received == Err(libc::EAGAIN);
                shard.tcp_wait_for(number, Readiness::READABLE, waker, blocked);
            }
            received
        })
    }

    /// Shows `look` what was received, where it lies.
    pub fn peek_segments(
        &self,
        stack: &Stack,
        look: impl FnMut(&[u8]) + Send,
        waker: Option<&Waker>,
    ) -> Result<usize, i32> {
        self.call(stack, Before::Links, |shard, number, now| {
            let seen = shard.tcp_peek_segments(number, look, now);
            if let Some(waker) = waker {
                let blocked = seen == Err(libc::EAGAIN);
                shard.tcp_wait_for(number, Readiness::READABLE, waker, blocked);
            }
            seen
        })
    }

    /// Takes at most `n` received bytes and copies none.
    pub fn forget(&self, stack: &Stack, n: usize) -> Result<usize, i32> {
        self.call(stack, Before::Nothing, |shard, number, now| {
            shard.tcp_forget(number, n, now)
        })
    }

    /// With a waker: as [`send`](Self::send).
    pub fn reserve(
        &self,
        stack: &Stack,
        wanted: usize,
        waker: Option<&Waker>,
    ) -> Result<SendLease, i32> {
        self.call(stack, Before::Sending, |shard, number, _| {
            let lease = shard.tcp_reserve(number, wanted);
            if let Some(waker) = waker {
                let blocked = matches!(lease, Err(libc::EAGAIN));
                shard.tcp_wait_for(number, Readiness::WRITABLE, waker, blocked);
            }
            lease
        })
    }

    /// Sends what was written to a lease.
    pub fn commit(&self, stack: &Stack, lease: SendLease, n: usize) -> Result<usize, i32> {
        self.hold(stack, |shard, number| shard.tcp_commit(number, lease, n))
    }

    /// The rest of what was sent in part: a pending error waits for the next call, and this one takes nothing more.
    pub fn send_rest(
        &self,
        stack: &Stack,
        buffers: &[IoSlice<'_>],
        urgent: bool,
    ) -> Result<usize, i32> {
        self.hold(stack, |shard, number| {
            let is_pending = |socket: &TcpSocket| socket.pending_error().is_some();
            match shard.tcp(number).is_some_and(is_pending) {
                true => Ok(0),
                false if urgent => shard.tcp_send_urgent(number, buffers),
                false => shard.tcp_send(number, buffers),
            }
        })
    }

    /// The same of what was received.
    pub fn receive_rest(
        &self,
        stack: &Stack,
        buffers: &mut [IoSliceMut<'_>],
        flags: ReceiveFlags,
    ) -> Result<usize, i32> {
        self.call(stack, Before::Links, |shard, number, now| {
            let ends = |s: &TcpSocket| s.readable_bytes() == 0 && s.pending_error().is_some();
            match shard.tcp(number).is_some_and(ends) {
                true => Ok(0),
                false => shard.tcp_receive(number, buffers, flags, now),
            }
        })
    }

    pub fn send_urgent(&self, stack: &Stack, buffers: &[IoSlice<'_>]) -> Result<usize, i32> {
        self.hold(stack, |shard, number| {
            shard.tcp_send_urgent(number, buffers)
        })
    }

    pub fn is_at_mark(&self, stack: &Stack) -> bool {
        self.hold(stack, |shard, number| {
            shard.tcp(number).is_some_and(TcpSocket::is_at_mark)
        })
    }

    /// What a new connection's options say beside what it was opened with.
    pub fn begin(&self, stack: &Stack, options: &SocketOptions) {
        let (watermarks, pace) = (options.own_watermarks(), options.pacing_limit());
        if watermarks.is_none() && pace.is_none() {
            return;
        }
        self.with(stack, |socket| {
            if let Some(watermarks) = watermarks {
                socket.set_watermarks(watermarks);
            }
            if let Some(pace) = pace {
                socket.connection.set_pacing_rate_max(pace);
            }
        });
    }

    /// Of what does not connect.
    pub fn shutdown(&self, stack: &Stack, read: bool, write: bool) -> Result<(), i32> {
        if self.is_over(stack) {
            if self.place.load(Relaxed) & REPORTED == 0 {
                self.place.fetch_or(BROKEN, Relaxed); // `options` is locked
            }
            return Err(libc::ENOTCONN);
        }
        self.report();
        self.call(stack, Before::Nothing, |shard, number, now| {
            shard.tcp_shutdown(number, read, write, now)
        })
    }

    pub fn close(&self, stack: &Stack) {
        if self.place() != Place::NOWHERE {
            self.call(stack, Before::Nothing, |shard, number, now| {
                shard.tcp_close(number, now);
            });
        }
    }

    /// Whether it can live elsewhere.
    pub fn movable(&self, stack: &Stack) -> Movable {
        self.hold(stack, |shard, number| shard.tcp_movable(number))
    }

    /// Moves it to `shard`, if it can be now. `options` is locked.
    pub fn move_to(&self, stack: &Stack, shard: usize) -> Movable {
        let Place {
            shard: from,
            number,
        } = self.place();
        stack.move_connection((from, number), shard, |number| {
            let place = Place { shard, number }.packed();
            // Relaxed: written under the locks of both shards; a call that went by the old place looks again under one of them.
            let moved = |old: u64| Some(place | (old & FLAGS));
            let _ = self.place.fetch_update(Relaxed, Relaxed, moved);
        })
    }

    pub fn readiness(&self, stack: &Stack) -> Readiness {
        self.call(stack, Before::Links, |shard, number, _| {
            shard.tcp_readiness(number)
        })
    }

    pub fn ready_since(&self, stack: &Stack) -> (Readiness, u32) {
        self.call(stack, Before::Links, |shard, number, _| {
            shard.tcp_ready_since(number)
        })
    }

    pub fn register(&self, stack: &Stack, interest: Readiness, waker: &Waker) -> bool {
        self.hold(stack, |shard, number| {
            shard.tcp_register(number, interest, waker)
        })
    }

    pub fn deregister(&self, stack: &Stack, waker: &Waker) {
        self.hold(stack, |shard, number| shard.tcp_deregister(number, waker));
    }

    pub fn take_error(&self, stack: &Stack) -> Option<i32> {
        self.hold(stack, |shard, number| shard.tcp_take_error(number))
    }

    pub fn has_error(&self, stack: &Stack) -> bool {
        self.hold(stack, |shard, number| {
            (shard.tcp(number)).is_some_and(|s| s.pending_error().is_some())
        })
    }

    pub fn available(&self, stack: &Stack) -> usize {
        self.hold(stack, |shard, number| {
            shard.tcp(number).map_or(0, |s| s.bytes_in_line() as usize)
        })
    }

    pub fn unread(&self, stack: &Stack) -> usize {
        self.hold(stack, |shard, number| {
            let socket = shard.tcp(number)?;
            let end = usize::from(socket.connection.peer_closed());
            Some(socket.readable_bytes() as usize + end)
        })
        .unwrap_or(0)
    }

    pub fn send_room(&self, stack: &Stack) -> Option<usize> {
        self.hold(stack, |shard, number| shard.tcp_send_room(number))
    }

    pub fn unacknowledged(&self, stack: &Stack) -> usize {
        self.hold(stack, |shard, number| {
            shard.tcp(number).map_or(0, TcpSocket::queued_bytes)
        })
    }

    pub fn is_connected(&self, stack: &Stack) -> bool {
        self.hold(stack, |shard, number| {
            shard
                .tcp(number)
                .is_some_and(|s| s.was_open() && !s.is_over())
        })
    }

    pub fn info(&self, stack: &Stack) -> Option<proto::tcp::Info> {
        self.hold(stack, |shard, number| {
            let now = stack.clock.now();
            shard.tcp(number).map(|s| s.connection.info_at(now))
        })
    }

    pub fn send_mss(&self, stack: &Stack) -> Option<u16> {
        self.hold(stack, |shard, number| {
            shard.tcp(number).map(|s| s.connection.send_mss())
        })
    }

    /// What an accepted connection, which sends to no group, says of how it would: as in Linux by the link and with the hops of
    /// the packet that opened it. None of these can be set.
    pub fn multicast_option(&self, stack: &Stack, like: Multicast) -> Option<Multicast> {
        let came = |socket: &TcpSocket| socket.came_with().map(|with| (with, socket.interface()));
        let ((peer, hops), interface) =
            self.hold(stack, |shard, number| came(shard.tcp(number)?))?;
        match like {
            Multicast::Ttl(_) if peer.is_ipv4() => Some(Multicast::Ttl(hops)),
            Multicast::Hops(_) => Some(Multicast::Hops(hops)),
            Multicast::InterfaceV6(_) => Some(Multicast::InterfaceV6(u32::from(interface) + 1)),
            _ => None,
        }
    }

    pub fn with(&self, stack: &Stack, change: impl FnOnce(&mut TcpSocket) + Send) {
        self.hold(stack, |shard, number| shard.tcp_with(number, change));
    }

    /// Where it lives.
    #[inline]
    pub fn shard(&self) -> usize {
        self.place().shard
    }

    #[inline]
    fn place(&self) -> Place {
        Place::unpacked(self.place.load(Relaxed)) // as everywhere here
    }

    /// Its flow: the shard keeps the connection, over or not, as long as a socket holds it.
    fn key(&self, stack: &Stack) -> Option<FlowKey> {
        self.hold(stack, |shard, number| shard.tcp(number).map(TcpSocket::key))
    }

    pub fn local(&self, stack: &Stack) -> Option<SocketAddr> {
        let key = self.key(stack)?;
        Some(SocketAddr::new(key.local, key.local_port))
    }

    pub fn remote(&self, stack: &Stack) -> Option<SocketAddr> {
        let key = self.key(stack)?;
        Some(SocketAddr::new(key.remote, key.remote_port))
    }
}

/// Chooses a shard, and opens a connection there: the shard's number, and the connection's.
fn start(
    stack: &Stack,
    bound: Option<SocketAddr>,
    remote: SocketAddr,
    options: &SocketOptions,
    fast: bool,
) -> io::Result<(usize, u32)> {
    let same_family = |ip: &IpAddr| !ip.is_unspecified() && ip.is_ipv4() == remote.ip().is_ipv4();
    let source = bound.map(|b| b.ip()).filter(same_family);
    let port = bound.map_or(0, |b| b.port());
    let (device, mark) = (options.udp.device, options.udp.mark);
    let by_device = || {
        Some(
            stack
                .control
                .host
                .network()
                .route_by(Some(device?), remote.ip(), mark)?
                .1,
        )
    };
    let source = source.or_else(by_device);
    let shard = stack
        .shard_for_connect(source, port, remote, mark)
        .ok_or_else(|| error(libc::ENETUNREACH))?;
    let of_tcp = &options.tcp_options();
    let connect = Connect {
        source,
        port,
        remote,
        fast,
        options: of_tcp,
    };
    let may_take = |interface, port| {
        if stack.driver.is_gone(usize::from(interface)) {
            return Err(libc::ENETDOWN);
        }
        Ok(!stack.driver.bound_ports.contains(port))
    };
    let open = |number| {
        stack.with_shard(number, |shard, now| {
            let opened = shard.tcp_connect(&connect, may_take, now);
            if opened.is_err() {
                shard.publish_load();
            }
            opened
        })
    };
    // Each shard has its part of the ports. Where one has none left for this peer, another may have.
    let others = if port == 0 {
        stack.sockets.cells.len() - 1
    } else {
        0
    };
    let open_in_some = || {
        let (mut opened, mut at) = (open(shard), shard);
        for _ in 0..others {
            if !matches!(opened, Err(libc::EADDRNOTAVAIL)) {
                break;
            }
            at = (at + 1) % stack.sockets.cells.len();
            opened = open(at);
        }
        (at, opened)
    };
    let (mut at, mut opened) = open_in_some();
    if port == 0 && matches!(opened, Err(libc::EADDRNOTAVAIL)) && stack.lease_more_ports() {
        (at, opened) = open_in_some();
    }
    Ok((at, opened.map_err(error)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_one_word() {
        for shard in [0, 1, 63] {
            for number in [0, 1, 1 << 31, u32::MAX] {
                let place = Place { shard, number };
                let packed = place.packed();
                assert_eq!(packed & FLAGS, 0);
                assert_eq!(Place::unpacked(packed), place);
                assert_eq!(Place::unpacked(packed | FLAGS), place);
            }
        }
    }
}
