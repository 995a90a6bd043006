//! What the trace is told of connections: states, losses, windows, timers. All of it is rare.

use percore::trace::Event;
use proto::tcp::Events;

use super::{Shard, TcpSocket};
use crate::{counters::Counter, trace};

impl Shard {
    /// Counts a segment whose text was not taken.
    #[cold]
    pub(super) fn refused(&self, number: u32, reason: Counter) {
        self.count(reason);
        if matches!(
            reason,
            Counter::DropTcpMemory
                | Counter::DropTcpLimit
                | Counter::DropTcpSocketShare
                | Counter::DropTcpPeerShare
        ) {
            let queued = self.tcp.get(number).map_or(0, TcpSocket::readable_bytes);
            self.tell(trace::MEMORY, number, queued.into());
        }
    }

    /// Records what happened to a connection, with a figure.
    fn tell(&self, event: Event<3>, number: u32, figure: u64) {
        trace::note(event, [self.number as u64, number.into(), figure]);
    }

    /// Records that a connection came to a new state, with its ports.
    pub(super) fn tell_ports(&self, event: Event<4>, number: u32) {
        let Some(socket) = self.tcp.get(number) else {
            return;
        };
        let connection = &socket.connection;
        let ports = [connection.local_port(), connection.remote_port()].map(u64::from);
        trace::note(
            event,
            [self.number as u64, number.into(), ports[0], ports[1]],
        );
    }

    /// The trace's lines about them.
    pub(super) fn tell_rare(&self, number: u32, events: Events) {
        let tell = |state, line| {
            if events.contains(state) {
                self.tell_ports(line, number);
            }
        };
        tell(Events::ESTABLISHED, trace::TCP_ESTABLISHED);
        tell(Events::PEER_CLOSED, trace::TCP_PEER_CLOSED);
        tell(Events::TIME_WAIT, trace::TCP_TIME_WAIT);
        tell(Events::CLOSED, trace::TCP_CLOSED);
        let Some(socket) = self.tcp.get(number) else {
            return;
        };
        let (shard, connection) = (self.number as u64, number.into());
        if events.contains(Events::RESET) {
            let errno = socket.end().unwrap_or(0);
            let (errno, port) = (
                errno.unsigned_abs().into(),
                socket.connection.remote_port().into(),
            );
            trace::note(trace::TCP_RESET, [shard, connection, errno, port]);
        }
        if events.contains(Events::LOSS) {
            let info = socket.connection.info();
            let figures = [info.in_flight_bytes.into(), info.cwnd_bytes.into()];
            trace::note(
                trace::TCP_FAST_RETRANSMIT,
                [shard, connection, figures[0], figures[1]],
            );
        }
    }

    /// A timer of a connection expired, the `attempts`-th time without an answer.
    #[cold]
    pub(super) fn tell_timer(&self, number: u32, attempts: u8) {
        trace::note(trace::TIMER, [self.number as u64, number.into()]);
        let Some(socket) = self.tcp.get(number).filter(|_| attempts > 0) else {
            return;
        };
        if socket.connection.is_probing() {
            return self.tell(trace::TCP_PERSIST, number, attempts.into());
        }
        let rto = socket.connection.rto().as_millis();
        let rto = u64::try_from(rto).unwrap_or(u64::MAX);
        trace::note(
            trace::TCP_TIMEOUT,
            [self.number as u64, number.into(), attempts.into(), rto],
        );
    }
}

impl TcpSocket {
    /// The peer's window closed, or opened: once each.
    pub(super) fn tell_window(&mut self, shard: usize, number: u32) {
        let closed = self.connection.is_probing();
        if std::mem::replace(&mut self.told_closed, closed) == closed {
            return;
        }
        let (shard, number, info) = (shard as u64, number.into(), self.connection.info());
        if closed {
            let unsent = info.unsent_bytes.into();
            trace::note(trace::TCP_ZERO_WINDOW, [shard, number, unsent]);
        } else {
            let window = info.send_window_bytes.into();
            trace::note(trace::TCP_WINDOW_OPEN, [shard, number, window]);
        }
    }
}
