//! smoltcp's side: an interface at the other end of a wire, turned by its caller.

use std::{
    cell::RefCell,
    collections::VecDeque,
    io::{self, ErrorKind},
    net::{IpAddr, SocketAddr},
    rc::Rc,
};

use netchan::{
    link::{LinkRx, LinkTx, wire::Wire},
    packet::Packet,
};
use percore::slab::Slab;
use proto::time::{Duration, Instant};
use smoltcp::{
    iface::{Config, Interface, SocketHandle, SocketSet},
    phy::{self, Device, DeviceCapabilities, Medium},
    socket::tcp::{self, State},
    wire::{EthernetAddress, HardwareAddress, IpAddress, IpCidr, IpEndpoint},
};

use super::{
    End, Side, THEIRS,
    netchan_side::KEEPALIVE,
    plan::{Manners, Theirs},
};

/// Bytes of each buffer of a socket.
const BUFFER: usize = 64 << 10;

/// The wire's end as smoltcp's device.
struct Port {
    wire: Wire,
    slab: Slab,
    burst: VecDeque<Packet>,
    now: Instant,
    mtu: usize,
}

impl Port {
    fn take(&mut self) -> Option<Packet> {
        if self.burst.is_empty() {
            // A wire fails when the other end is gone: then nothing comes.
            let _ = self
                .wire
                .receive(self.now, &mut self.slab, &mut self.burst, 32);
        }
        self.burst.pop_front()
    }
}

struct Received(Packet);

impl phy::RxToken for Received {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, f: F) -> R {
        f(self.0.bytes())
    }
}

struct Room<'a>(&'a mut Port);

impl phy::TxToken for Room<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, f: F) -> R {
        let Some(buffer) = self.0.slab.alloc() else {
            return f(&mut vec![0; len]);
        };
        let mut packet = Packet::new(buffer, 0);
        packet.set_len(len);
        let result = f(packet.bytes_mut());
        // What the wire has no room for is lost.
        let _ = self
            .0
            .wire
            .transmit(self.0.now, &mut VecDeque::from([packet]));
        result
    }
}

impl Device for Port {
    type RxToken<'a> = Received;
    type TxToken<'a> = Room<'a>;

    fn receive(&mut self, _: smoltcp::time::Instant) -> Option<(Received, Room<'_>)> {
        let packet = self.take()?;
        Some((Received(packet), Room(self)))
    }

    fn transmit(&mut self, _: smoltcp::time::Instant) -> Option<Room<'_>> {
        Some(Room(self))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ethernet;
        capabilities.max_transmission_unit = self.mtu + 14;
        capabilities
    }
}

type Sockets = Rc<RefCell<SocketSet<'static>>>;

/// smoltcp.
pub struct Smoltcp {
    interface: Interface,
    sockets: Sockets,
    port: Port,
    listeners: Vec<SocketHandle>,
    timestamps: bool,
}

struct Handle {
    sockets: Sockets,
    handle: SocketHandle,
    aborted: bool,
}

fn micros(now: Instant) -> smoltcp::time::Instant {
    smoltcp::time::Instant::from_micros(i64::try_from(now.0 / 1000).unwrap_or(i64::MAX))
}

fn endpoint(at: SocketAddr) -> IpEndpoint {
    let address = match at.ip() {
        IpAddr::V4(ip) => IpAddress::Ipv4(ip),
        IpAddr::V6(ip) => IpAddress::Ipv6(ip),
    };
    IpEndpoint::new(address, at.port())
}

fn refused() -> io::Error {
    io::Error::from(ErrorKind::AddrInUse)
}

impl Smoltcp {
    /// An interface behind `wire`.
    ///
    /// # Errors
    /// No memory.
    pub fn new(
        theirs: &Theirs,
        wire: Wire,
        mtu: usize,
        seed: u64,
        now: Instant,
    ) -> io::Result<Self> {
        let slab = Slab::new(4096, mtu + 100)?;
        let mut port = Port {
            wire,
            slab,
            burst: VecDeque::new(),
            now,
            mtu,
        };
        let mut config = Config::new(HardwareAddress::Ethernet(EthernetAddress([
            2, 0, 0, 0, 7, 1,
        ])));
        config.random_seed = seed;
        let mut interface = Interface::new(config, &mut port, micros(now));
        let cidrs = THEIRS.map(|text| text.parse::<IpAddr>());
        for (address, prefix) in cidrs.into_iter().flatten().zip([24, 64]) {
            interface.update_ip_addrs(|addresses| {
                // The list holds two.
                let _ = addresses.push(IpCidr::new(address.into(), prefix));
            });
        }
        Ok(Self {
            interface,
            sockets: Rc::new(RefCell::new(SocketSet::new(Vec::new()))),
            port,
            listeners: Vec::new(),
            timestamps: theirs.timestamps,
        })
    }

    fn add(&self, manners: &Manners) -> SocketHandle {
        let room = |bytes| tcp::SocketBuffer::new(vec![0; bytes]);
        let receive = room(manners.receive_buffer.unwrap_or(BUFFER));
        let mut socket = tcp::Socket::new(receive, room(BUFFER));
        socket.set_nagle_enabled(!manners.no_delay);
        socket.set_keep_alive(Some(smoltcp::time::Duration::from_millis(
            u64::try_from(KEEPALIVE.as_millis()).unwrap_or(1000),
        )));
        if self.timestamps {
            socket.set_tsval_generator(Some(|| 0x0102_0304));
        }
        self.sockets.borrow_mut().add(socket)
    }

    fn end(&self, handle: SocketHandle) -> Box<dyn End> {
        Box::new(Handle {
            sockets: self.sockets.clone(),
            handle,
            aborted: false,
        })
    }
}

impl Side for Smoltcp {
    fn listen(&mut self, at: SocketAddr, manners: &Manners) -> io::Result<usize> {
        let handle = self.add(manners);
        let mut sockets = self.sockets.borrow_mut();
        let socket = sockets.get_mut::<tcp::Socket<'_>>(handle);
        socket.listen(endpoint(at)).map_err(|_| refused())?;
        self.listeners.push(handle);
        Ok(self.listeners.len() - 1)
    }

    fn accept(&mut self, listener: usize) -> io::Result<Option<Box<dyn End>>> {
        let handle = self.listeners[listener];
        let state = self.sockets.borrow().get::<tcp::Socket<'_>>(handle).state();
        let open = !matches!(state, State::Listen | State::SynReceived);
        Ok(open.then(|| self.end(handle)))
    }

    fn connect(
        &mut self,
        from: SocketAddr,
        to: SocketAddr,
        manners: &Manners,
    ) -> io::Result<Box<dyn End>> {
        let handle = self.add(manners);
        let mut sockets = self.sockets.borrow_mut();
        let socket = sockets.get_mut::<tcp::Socket<'_>>(handle);
        let begun = socket.connect(self.interface.context(), endpoint(to), endpoint(from));
        begun.map_err(|_| refused())?;
        drop(sockets);
        Ok(self.end(handle))
    }

    fn turn(&mut self, now: Instant) -> bool {
        self.port.now = now;
        let mut sockets = self.sockets.borrow_mut();
        let polled = self
            .interface
            .poll(micros(now), &mut self.port, &mut sockets);
        polled == smoltcp::iface::PollResult::SocketStateChanged
    }

    fn next_event(&self) -> Instant {
        let now = micros(self.port.now);
        // `poll_delay` wants it mutable; a step of a millisecond serves as well.
        let _ = now;
        self.port.now + Duration::from_millis(1)
    }

    fn left_over(&self) -> Vec<String> {
        let sockets = self.sockets.borrow();
        let open = sockets.iter().filter_map(|(_, socket)| {
            let smoltcp::socket::Socket::Tcp(socket) = socket else {
                return None;
            };
            let state = socket.state();
            let gone = matches!(state, State::Closed | State::TimeWait | State::Listen);
            (!gone).then(|| format!("smoltcp: {state} {:?}", socket.local_endpoint()))
        });
        open.collect()
    }
}

impl Handle {
    fn with<R>(&self, act: impl FnOnce(&mut tcp::Socket<'static>) -> R) -> R {
        act(self.sockets.borrow_mut().get_mut(self.handle))
    }
}

/// What recv(2) would say.
fn read(got: Result<usize, tcp::RecvError>) -> io::Result<usize> {
    match got {
        Ok(0) => Err(ErrorKind::WouldBlock.into()),
        Ok(n) => Ok(n),
        Err(tcp::RecvError::Finished) => Ok(0),
        Err(tcp::RecvError::InvalidState) => Err(ErrorKind::ConnectionReset.into()),
    }
}

impl End for Handle {
    fn connected(&mut self) -> io::Result<bool> {
        match self.with(|s| s.state()) {
            State::SynSent | State::SynReceived => Ok(false),
            State::Closed => Err(ErrorKind::ConnectionRefused.into()),
            _ => Ok(true),
        }
    }

    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        match self.with(|s| s.send_slice(text)) {
            Ok(0) => Err(ErrorKind::WouldBlock.into()),
            Ok(n) => Ok(n),
            Err(_) => Err(ErrorKind::BrokenPipe.into()),
        }
    }

    /// smoltcp has none: a byte like others, which is never sent.
    fn write_urgent(&mut self, byte: u8) -> io::Result<usize> {
        self.write(&[byte])
    }

    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        read(self.with(|s| s.recv_slice(room)))
    }

    fn peek(&mut self, room: &mut [u8]) -> io::Result<usize> {
        // Its peek_slice does not tell the end from nothing yet.
        read(self.with(|s| {
            let text = s.peek(room.len())?;
            room[..text.len()].copy_from_slice(text);
            Ok(text.len())
        }))
    }

    fn read_urgent(&mut self) -> Option<u8> {
        None
    }

    fn shut(&mut self) -> io::Result<()> {
        self.with(tcp::Socket::close);
        Ok(())
    }

    fn abort(&mut self) {
        self.aborted = true;
        self.with(tcp::Socket::abort);
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if !self.aborted {
            self.with(tcp::Socket::close);
        }
    }
}
