//! netchan's side: a stack turned by its caller, behind a relay.

use std::{
    io::{self, IoSlice, IoSliceMut},
    net::{Shutdown, SocketAddr},
};

use netchan::{
    Clock, Net, Regime, Threads,
    link::Link,
    socket::{Domain, Kind, ReceiveFlags, Socket, SocketOption},
};
use proto::{
    tcp::State,
    time::{Duration, Instant},
};

use super::{
    Agreed, End, OURS, Side,
    plan::{Group, Manners},
};
use crate::relay::Relay;

/// A peer that left without a word, in a reset that was lost, is found out by asking: seconds before the first question, and between questions.
pub(super) const KEEPALIVE: Duration = Duration::from_secs(1);
/// How many questions may be lost.
pub(super) const KEEPALIVES: u32 = 30;

/// A netchan.
pub struct Netchan {
    net: Net,
    listeners: Vec<Socket>,
}

struct Ours(Socket);

fn prepared(net: &Net, at: SocketAddr, manners: &Manners) -> io::Result<Socket> {
    let domain = if at.is_ipv4() { Domain::V4 } else { Domain::V6 };
    let socket = Socket::new(net, domain, Kind::Stream)?;
    let keep = [
        SocketOption::ReuseAddress(true),
        SocketOption::KeepAlive(true),
        SocketOption::KeepIdle(KEEPALIVE),
        SocketOption::KeepInterval(KEEPALIVE),
        SocketOption::KeepCount(KEEPALIVES),
        SocketOption::NoDelay(manners.no_delay),
        SocketOption::UrgentInline(manners.inline),
    ];
    let buffer = manners.receive_buffer.map(SocketOption::ReceiveBuffer);
    let segment = manners.max_segment.map(SocketOption::MaxSegment);
    for option in keep.into_iter().chain(buffer).chain(segment) {
        socket.set_option(option)?;
    }
    socket.bind(at)?;
    Ok(socket)
}

impl Netchan {
    /// A stack with `device` behind the group's relay.
    ///
    /// # Errors
    /// The stack's.
    pub fn new(group: &Group, device: Box<dyn Link>, clock: &Clock) -> io::Result<Self> {
        let relay = Relay::new(device, group.mtu, group.shapes, group.seed)?;
        let net = Net::builder()
            .link_with(Box::new(relay))
            .address(&format!("{}/24", OURS[0]))?
            .address(&format!("{}/64", OURS[1]))?
            .regime(Regime::AppChannel)
            .threads(Threads::Caller)
            .clock(clock.clone())
            .seed(group.seed)
            .tcp(group.ours)
            .start()?;
        let listeners = Vec::new();
        Ok(Self { net, listeners })
    }
}

impl Side for Netchan {
    fn listen(&mut self, at: SocketAddr, manners: &Manners) -> io::Result<usize> {
        let socket = prepared(&self.net, at, manners)?;
        socket.listen(8)?;
        self.listeners.push(socket);
        Ok(self.listeners.len() - 1)
    }

    fn accept(&mut self, listener: usize) -> io::Result<Option<Box<dyn End>>> {
        match self.listeners[listener].accept() {
            Ok((socket, _)) => Ok(Some(Box::new(Ours(socket)))),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(e) => Err(e),
        }
    }

    fn connect(
        &mut self,
        from: SocketAddr,
        to: SocketAddr,
        manners: &Manners,
    ) -> io::Result<Box<dyn End>> {
        let socket = prepared(&self.net, from, manners)?;
        match socket.connect(to) {
            Err(e) if e.raw_os_error() != Some(libc::EINPROGRESS) => Err(e),
            _ => Ok(Box::new(Ours(socket))),
        }
    }

    fn turn(&mut self, _: Instant) -> bool {
        self.net.poll()
    }

    fn next_event(&self) -> Instant {
        self.net.next_event().unwrap_or(Instant::FAR)
    }

    fn left_over(&self) -> Vec<String> {
        let sockets = self.net.show("sockets").unwrap_or_default();
        let rows = sockets.as_array().into_iter().flatten();
        let open = rows.filter(|row| {
            let state = row["state"].as_str();
            row["protocol"] == "tcp" && !matches!(state, Some("LISTEN" | "TIME-WAIT"))
        });
        open.map(|row| format!("netchan: {row}")).collect()
    }
}

impl End for Ours {
    fn connected(&mut self) -> io::Result<bool> {
        if let Some(error) = self.0.take_error() {
            return Err(error);
        }
        let state = self.0.tcp_info().map(|info| info.state);
        Ok(!matches!(
            state,
            None | Some(State::SynSent | State::SynReceived)
        ))
    }

    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        self.0.send(&[IoSlice::new(text)], None)
    }

    fn write_urgent(&mut self, byte: u8) -> io::Result<usize> {
        self.0.send_urgent(&[IoSlice::new(&[byte])])
    }

    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        let got = self
            .0
            .receive(&mut [IoSliceMut::new(room)], ReceiveFlags::default());
        got.map(|received| received.len)
    }

    fn peek(&mut self, room: &mut [u8]) -> io::Result<usize> {
        let flags = ReceiveFlags {
            peek: true,
            ..ReceiveFlags::default()
        };
        let got = self.0.receive(&mut [IoSliceMut::new(room)], flags);
        got.map(|received| received.len)
    }

    fn read_urgent(&mut self) -> Option<u8> {
        let flags = ReceiveFlags {
            urgent: true,
            ..ReceiveFlags::default()
        };
        let mut byte = [0];
        let got = self.0.receive(&mut [IoSliceMut::new(&mut byte)], flags);
        got.is_ok_and(|received| received.len == 1)
            .then_some(byte[0])
    }

    fn shut(&mut self) -> io::Result<()> {
        self.0.shutdown(Shutdown::Write)
    }

    fn abort(&mut self) {
        // A socket that is gone already needs no reset.
        let _ = self
            .0
            .set_option(SocketOption::Linger(Some(Duration::ZERO)));
    }

    fn agreed(&self) -> Option<Agreed> {
        let info = self.0.tcp_info()?;
        Some(Agreed {
            timestamps: info.timestamps,
            sack: info.sack,
            window_scale: info.window_scaling,
            receive_scale: info.receive_scale,
        })
    }
}
