//! From events to a run.

use std::{
    io::{self, IoSlice, IoSliceMut},
    net::{Ipv4Addr, SocketAddr},
};

use netchan::{
    Clock,
    socket::{Domain, Kind, ReceiveFlags, Socket, SocketOption},
};
use proto::{
    time::{Duration, Instant},
    wire::tcp::Flags,
};

use super::{
    Action, Event, Failure, Outcome, Script,
    parse::error_name,
    segment::{Base, Parsed, Segment, byte_at},
};
use crate::{cable::Sent, settings::Settings, world::World};

const LOCAL: Ipv4Addr = Ipv4Addr::new(192, 168, 0, 1);
const REMOTE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
/// Our port, whichever side opens.
const PORT: u16 = 8080;
const PEER_PORT: u16 = 50_000;
const PEER_ISN: u32 = 1_000;
/// The most that one call of a script may move.
const BUFFER: usize = 1 << 20;

pub(super) fn script(script: &Script) -> Result<(), Failure> {
    let world = World::start(&script.settings, Clock::new_virtual())
        .map_err(|error| script.failure(0, error.to_string()))?;
    let mut run = Run {
        tolerance: Duration::from_micros(script.tolerance_us),
        base: world.now(),
        world,
        settings: script.settings,
        options: Vec::new(),
        listener: None,
        socket: None,
        iss: 0,
        peer_isn: PEER_ISN,
        peer_port: PEER_PORT,
        stamp: 0,
        stamp_before: 0,
        sent: 0,
        received: 0,
    };
    for event in &script.events {
        run.event(event)
            .map_err(|what| script.failure(event.line, what))?;
    }
    let last = script.events.last().map_or(0, |event| event.line);
    run.nothing_left()
        .map_err(|what| script.failure(last, what))
}

struct Run {
    world: World,
    /// As they are now.
    settings: Settings,
    tolerance: Duration,
    /// When the event before happened.
    base: Instant,
    /// For sockets to come.
    options: Vec<SocketOption>,
    listener: Option<Socket>,
    socket: Option<Socket>,
    iss: u32,
    peer_isn: u32,
    peer_port: u16,
    /// Our last TSval, and the one before.
    stamp: u32,
    stamp_before: u32,
    /// Places in both streams.
    sent: u32,
    received: u32,
}

impl Run {
    fn event(&mut self, event: &Event) -> Result<(), String> {
        let least = self.base.plus_micros(event.after_us.0);
        let most = self.base.plus_micros(event.after_us.1);
        if let Action::Leaves(segment) = &event.action {
            return self.leaves(segment, least, most);
        }
        self.nothing_left()?;
        self.world.advance_to(least);
        self.base = least;
        self.nothing_left()?;
        self.act(&event.action)
    }

    fn nothing_left(&mut self) -> Result<(), String> {
        match self.world.take() {
            Some(sent) => {
                let at = sent.at.since(self.base);
                Err(format!(
                    "left {at:?} after the event before: {}",
                    self.describe(&sent)
                ))
            }
            None => Ok(()),
        }
    }

    /// For what leaves, seen from us.
    const fn outward(&self) -> Base {
        Base {
            sender: self.iss,
            receiver: self.peer_isn,
            stamp: self.stamp,
            stamp_before: self.stamp_before,
        }
    }

    fn describe(&self, sent: &Sent) -> String {
        Parsed::of(&sent.bytes).map_or_else(
            || "something that is no valid TCP segment".to_owned(),
            |parsed| parsed.describe(self.outward()),
        )
    }

    fn leaves(&mut self, wanted: &Segment, least: Instant, most: Instant) -> Result<(), String> {
        if !self.world.advance_to_packet(most + self.tolerance) {
            self.world.advance_to(most + self.tolerance);
        }
        let Some(sent) = self.world.take() else {
            return Err("nothing left".to_owned());
        };
        let parsed = Parsed::of(&sent.bytes).ok_or("what left is no valid TCP segment")?;
        if wanted.is_syn() && parsed.header.flags.contains(Flags::SYN) {
            self.iss = parsed.header.seq.0;
        }
        if let Some(stamps) = parsed.header.options.timestamps {
            if self.stamp != stamps.value {
                self.stamp_before = self.stamp;
            }
            self.stamp = stamps.value;
        }
        if let Some(what) = wanted.difference(&parsed, self.outward()) {
            let found = parsed.describe(self.outward());
            return Err(format!("the {what} of what left: {found}"));
        }
        if sent.at + self.tolerance < least || sent.at > most + self.tolerance {
            let after = sent.at.since(self.base);
            return Err(format!("left after {after:?}"));
        }
        self.base = sent.at;
        Ok(())
    }

    fn act(&mut self, action: &Action) -> Result<(), String> {
        match action {
            Action::Arrives(segment) => self.arrives(segment),
            Action::Leaves(_) | Action::Quiet => {}
            Action::Listen => return self.listen().map_err(|error| error.to_string()),
            Action::Connect(wanted) => {
                let result = self.connect();
                return compare(*wanted, result);
            }
            Action::Accept(wanted) => {
                let result = self.accept();
                return compare(*wanted, result);
            }
            Action::Send(wanted) => return self.send(*wanted),
            Action::Receive(wanted) => return self.receive(*wanted),
            Action::EndRecord => self.socket()?.end_record(),
            Action::Close => {
                self.socket.take().ok_or("there is no socket")?;
                self.world.turn();
            }
            Action::Shutdown(how) => {
                let result = self.socket()?.shutdown(*how);
                self.world.turn();
                return result.map_err(|error| error.to_string());
            }
            Action::Option(option) => return self.option(*option),
            Action::State(name) => return self.state(name),
            Action::Error(wanted) => {
                let error = self.socket()?.take_error().map_or(Ok(0), Err);
                return compare(*wanted, error);
            }
            Action::Change(setting) => {
                self.settings.forget_peers = false;
                self.settings.set(setting);
                let changed = self.world.change(&self.settings);
                return changed.map_err(|error| error.to_string());
            }
            Action::PeerIsn(number) => self.peer_isn = *number,
            Action::PeerPort(number) => self.peer_port = *number,
        }
        Ok(())
    }

    fn arrives(&self, segment: &Segment) {
        let base = Base {
            sender: self.peer_isn,
            receiver: self.iss,
            stamp: self.stamp,
            stamp_before: self.stamp_before,
        };
        let packet = segment.packet((REMOTE, self.peer_port), (LOCAL, PORT), base);
        self.world.inject(&packet);
    }

    fn fresh(&self) -> io::Result<Socket> {
        let socket = Socket::new(self.world.net(), Domain::V4, Kind::Stream)?;
        socket.set_option(SocketOption::ReuseAddress(true))?;
        for option in &self.options {
            socket.set_option(*option)?;
        }
        socket.bind(SocketAddr::new(LOCAL.into(), PORT))?;
        Ok(socket)
    }

    fn listen(&mut self) -> io::Result<()> {
        let socket = self.fresh()?;
        socket.listen(16)?;
        self.listener = Some(socket);
        Ok(())
    }

    fn connect(&mut self) -> io::Result<usize> {
        let again = self.socket.is_some();
        if !again {
            self.socket = Some(self.fresh()?);
            (self.sent, self.received) = (0, 0);
        }
        let peer = SocketAddr::new(REMOTE.into(), self.peer_port);
        let result = self
            .socket
            .as_ref()
            .map_or(Ok(()), |socket| socket.connect(peer));
        self.world.turn();
        match result {
            Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) && !again => Ok(0),
            result => result.map(|()| 0),
        }
    }

    fn accept(&mut self) -> io::Result<usize> {
        let listener = self.listener.as_ref();
        let listener = listener.ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))?;
        let (socket, _) = listener.accept()?;
        self.socket = Some(socket);
        (self.sent, self.received) = (0, 0);
        self.world.turn();
        Ok(0)
    }

    fn socket(&self) -> Result<&Socket, String> {
        self.socket
            .as_ref()
            .ok_or_else(|| "there is no socket".to_owned())
    }

    fn send(&mut self, wanted: Outcome) -> Result<(), String> {
        let count = match wanted {
            Outcome::Count(count) => count.min(BUFFER),
            Outcome::Errno(_) => 1,
        };
        let places = (0..count).map(|n| self.sent.wrapping_add(u32::try_from(n).unwrap_or(0)));
        let text: Vec<u8> = places.map(byte_at).collect();
        let result = self.socket()?.send(&[IoSlice::new(&text)], None);
        if let Ok(count) = result {
            self.sent = self.sent.wrapping_add(u32::try_from(count).unwrap_or(0));
        }
        self.world.turn();
        compare(wanted, result)
    }

    fn receive(&mut self, wanted: Outcome) -> Result<(), String> {
        let mut room = vec![0; BUFFER];
        if let Outcome::Count(count @ 1..) = wanted {
            room.truncate(count);
        }
        let mut buffers = [IoSliceMut::new(&mut room)];
        let result = self
            .socket()?
            .receive(&mut buffers, ReceiveFlags::default());
        let count = result.as_ref().map_or(0, |received| received.len);
        for byte in room.iter().take(count) {
            if *byte != byte_at(self.received) {
                return Err(format!(
                    "the byte at {} is not what was sent",
                    self.received
                ));
            }
            self.received = self.received.wrapping_add(1);
        }
        self.world.turn();
        compare(wanted, result.map(|received| received.len))
    }

    fn option(&mut self, option: SocketOption) -> Result<(), String> {
        match &self.socket {
            Some(socket) => {
                let result = socket.set_option(option);
                self.world.turn();
                result.map_err(|error| error.to_string())
            }
            None => {
                self.options.push(option);
                Ok(())
            }
        }
    }

    fn state(&self, name: &str) -> Result<(), String> {
        let info = self.socket()?.tcp_info();
        let found = info.map_or("Closed".to_owned(), |info| format!("{:?}", info.state));
        if found == name {
            Ok(())
        } else {
            Err(format!("the state is {found}"))
        }
    }
}

fn compare(wanted: Outcome, result: io::Result<usize>) -> Result<(), String> {
    match (wanted, result) {
        (Outcome::Count(wanted), Ok(count)) if count == wanted => Ok(()),
        (_, Ok(count)) => Err(format!("the call gave {count}")),
        (Outcome::Errno(wanted), Err(error)) if netchan_errno(&error) == wanted => Ok(()),
        (_, Err(error)) => Err(format!(
            "the call failed: {}",
            error_name(netchan_errno(&error))
        )),
    }
}

/// The errno of an error, also where only its kind is known.
fn netchan_errno(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(match error.kind() {
        io::ErrorKind::WouldBlock => libc::EAGAIN,
        _ => 0,
    })
}
