//! A lease's channel: packets to an application in another process, which runs the protocols itself, and packets from it (C4); of EtherTypes that it has,
//! frames (C6). The link's side has two ends: [`LeaseEnd`] lies with its receiving half, [`LeaseSource`] with its transmitting half. The application's side is
//! [`LeasedLink`](crate::link::lease::LeasedLink).
//!
//! Nothing that the application says or writes is believed: a name is looked up, a field is checked, and what leaves is a copy in memory of our own
//! (`docs/decisions/0015-shared-slabs.md`). No end waits for the application: a packet for which it has left no buffer is dropped and counted.
//! Work is bounded by a turn's share.

use std::{
    fmt, io,
    net::IpAddr,
    os::fd::{AsFd, BorrowedFd},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use netchan_base::descriptor::{
    BadDescriptor, Bounds, CHECKSUM_VERIFIED, Descriptor, FRAME, Return, TO_MANY, WANTS_BUFFERS,
    Writer,
};
use percore::{
    counter::Atomic,
    doorbell::Sleep,
    edge::{self, Bell, EdgeLayout, FarEnd, Notice, Receiving, Sending},
    lock::{Mutex, mutex},
    own::Own,
    slab::{BufferName, LendingSlab, SharedLayout, Slab},
};

use rustix::{
    io::{fcntl_dupfd_cloexec, ioctl_fionbio},
    net::{
        AddressFamily, SocketFlags, SocketType, socketpair, sockopt::set_socket_send_buffer_size,
    },
};

use super::PacketProtocol;
use crate::{
    counters::Counter,
    limits,
    link::{
        IP_MAX,
        lease::{Binding, FILES, PortRange, Reuse, Transport},
    },
    locks,
    packet::{Flag, HEADROOM, Packet},
};

/// An encoded [`Descriptor`].
type Item = [u8; Descriptor::ENCODED];
/// An encoded [`Return`].
type Back = [u8; Return::ENCODED];

/// What both ends and the control plane share.
#[derive(Debug)]
pub struct LeaseCore {
    /// Its number; never another lease's.
    pub number: u64,
    /// The link's number.
    pub link: usize,
    /// How much it holds.
    pub size: LeaseSize,
    /// What it has of the directory of ports.
    pub ports: Mutex<LeasePorts>,
    /// The application, for people.
    pub holder: String,
    /// Packets given to the application.
    pub packets_in: Atomic,
    /// Packets of the application's that were let through.
    pub packets_out: Atomic,
    /// Packets for which the application had left no buffer.
    pub drops: Atomic,
    /// Packets of the application's that it may not send.
    pub refused: Atomic,
    /// Descriptors and returns that cannot be.
    pub nonsense: Atomic,
    /// Short cuts to other leases that it has had.
    pub pairs: Atomic,
    /// It shares the loopback addresses.
    loopback: AtomicBool,
    /// Our end of the socket on which they are told of.
    pub news: Own,
    told: Mutex<Told>,
    bell: Arc<Bell>,
}

/// What the edge's notice says to the application.
#[derive(Debug)]
struct Told {
    notice: Notice,
    /// Bit 0: short cuts are held back. Above it, how much there was to be read from `news`.
    word: u32,
}

impl LeaseCore {
    /// It shares the loopback addresses from now on.
    pub fn share_loopback(&self) {
        self.loopback.store(true, Relaxed); // its application sends, and is sent to, after it has its answer
    }

    /// Whether it does.
    pub fn has_loopback(&self) -> bool {
        self.loopback.load(Relaxed) // as in `share_loopback`
    }

    /// Short cuts are held back, or no longer.
    pub fn hold(&self, is_held: bool) {
        let mut told = self.told.lock();
        told.word = told.word & !1 | u32::from(is_held);
        told.notice.set(told.word);
    }

    /// Something is there to be read from `news`.
    pub fn ring(&self) {
        let mut told = self.told.lock();
        told.word = told.word.wrapping_add(2);
        told.notice.set(told.word);
        drop(told);
        self.bell.ring();
    }
}

/// The ports that a lease has.
#[derive(Debug, Default)]
pub struct LeasePorts {
    /// Those that it asked for.
    pub bindings: Vec<LeasedPort>,
    /// Those of sockets that name none, of all protocols.
    pub ranges: Vec<PortRange>,
    /// IP protocol numbers and EtherTypes of which it has all packets.
    pub protocols: Vec<PacketProtocol>,
    /// Groups that it is in.
    pub groups: Vec<IpAddr>,
}

/// A port that a lease asked for.
#[derive(Clone, Copy, Debug)]
pub struct LeasedPort {
    /// The directory's.
    pub id: u64,
    /// What it is.
    pub binding: Binding,
    /// With which others it may be shared.
    pub reuse: Reuse,
    /// Nothing new comes to it, until the last of its connections has ended.
    pub is_closed: bool,
}

impl LeasePorts {
    /// Where it has this one, if it asked for it.
    pub fn place(&self, binding: &Binding) -> Option<usize> {
        let mut all = self.bindings.iter();
        all.position(|there| there.binding == *binding)
    }

    /// Whether it is one of those of sockets that name none.
    pub fn is_in_range(&self, port: u16) -> bool {
        let mut ranges = self.ranges.iter();
        ranges.any(|range| (range.0..=range.1).contains(&port))
    }
}

impl fmt::Display for LeasePorts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for port in &self.bindings {
            let address = port.binding.address;
            let transport = match port.binding.transport {
                Transport::Tcp => "tcp",
                Transport::Udp => "udp",
                Transport::Ping => "ping",
            };
            let closed = if port.is_closed { " (closed)" } else { "" };
            write!(f, "{transport} {address}{closed}, ")?;
        }
        for protocol in &self.protocols {
            write!(f, "{protocol}, ")?;
        }
        for (number, range) in self.ranges.iter().enumerate() {
            let between = if number == 0 { "" } else { ", " };
            write!(f, "{between}{}-{}", range.0, range.1)?;
        }
        Ok(())
    }
}

/// What the application gets, beside the terms: files to be passed on.
#[derive(Debug)]
pub struct LeaseFiles {
    /// Which buffers lie where in the slab of packets to the application.
    pub inward: SharedLayout,
    /// In that of packets from it.
    pub outward: SharedLayout,
    /// Its rings' size.
    pub edge: EdgeLayout,
    inward_file: Own,
    outward_file: Own,
    end: FarEnd,
    news: Own,
}

impl LeaseFiles {
    /// In the order in which they are passed on.
    pub fn all(&self) -> [BorrowedFd<'_>; FILES] {
        [
            self.inward_file.as_fd(),
            self.outward_file.as_fd(),
            self.end.file.as_fd(),
            self.end.socket.as_fd(),
            self.news.as_fd(),
        ]
    }
}

/// The end of the link's receiving half: packets to the application.
pub struct LeaseEnd {
    core: Arc<LeaseCore>,
    sending: Sending<Item, Back>,
    slab: LendingSlab,
    bell: Arc<Bell>,
    /// Something is staged.
    is_staged: bool,
}

impl Drop for LeaseEnd {
    /// An application that has no lease any more has no memory of ours either, whatever it maps.
    fn drop(&mut self) {
        self.slab.discard();
    }
}

impl fmt::Debug for LeaseEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LeaseEnd of {}", self.core.holder)
    }
}

/// The end of the link's transmitting half: packets from the application.
pub struct LeaseSource {
    core: Arc<LeaseCore>,
    receiving: Receiving<Item, Back>,
    /// All its buffers are lent, always.
    slab: LendingSlab,
    /// Where packets are copied to before they are looked at.
    packets: Slab,
    own_bell: Bell,
    far_bell: Arc<Bell>,
    bounds: Bounds,
}

impl Drop for LeaseSource {
    fn drop(&mut self) {
        self.slab.discard();
    }
}

impl fmt::Debug for LeaseSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LeaseSource of {}", self.core.holder)
    }
}

/// The longest packet that crosses, bytes: the longest of IP, rounded up.
pub(super) const PACKET_MAX: usize = IP_MAX.next_multiple_of(64);

/// Bytes of a copy of a packet of a lease's.
const COPY_BYTES: usize = (HEADROOM + PACKET_MAX).next_multiple_of(64);

/// How many packets a lease holds at a time, and so how much memory it may come to take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseSize {
    /// Of each of its slabs; a power of two.
    buffers: usize,
}

impl LeaseSize {
    /// The largest there is.
    pub const MOST: Self = Self {
        buffers: limits::LEASE_BUFFERS,
    };
    /// The smallest: a burst.
    pub const LEAST: Self = Self {
        buffers: limits::LEASE_BUFFERS_LEAST,
    };

    /// The largest that takes no more than `bytes`, if there is one.
    #[must_use]
    pub fn within(bytes: u64) -> Option<Self> {
        let mut size = Self::MOST;
        while size.memory() > bytes {
            size.buffers /= 2;
        }
        (size.buffers >= limits::LEASE_BUFFERS_LEAST).then_some(size)
    }

    /// The memory that it may come to take, bytes: both slabs, and copies on their way to the link.
    #[must_use]
    pub const fn memory(self) -> u64 {
        (2 * self.buffers * PACKET_MAX + self.copies() * COPY_BYTES) as u64
    }

    const fn copies(self) -> usize {
        self.buffers / limits::LEASE_COPIES_SHARE
    }
}

/// Both ends of a new lease, and what the application gets.
///
/// # Errors
/// The system's: no memory, no descriptors.
pub fn lease(
    (number, link): (u64, usize),
    holder: String,
    size: LeaseSize,
) -> io::Result<(LeaseEnd, LeaseSource, LeaseFiles)> {
    let (buffers, ready) = (size.buffers, limits::LEASE_READY);
    let inward = LendingSlab::new(buffers, PACKET_MAX, buffers, ready)?;
    let mut outward = LendingSlab::new(buffers, PACKET_MAX, buffers, ready)?;
    lend_all(&mut outward);
    let layout = u32::try_from(buffers).ok().and_then(EdgeLayout::new);
    let layout = layout.ok_or(io::ErrorKind::InvalidInput)?;
    let (side, end) = edge::create(layout)?;
    let (news, far_news) = news_sockets()?;
    let bell = Arc::new(side.far_bell);
    let files = LeaseFiles {
        inward: inward.layout(),
        outward: outward.layout(),
        edge: layout,
        inward_file: Own::open(|| Ok(fcntl_dupfd_cloexec(inward.file(), 0)?))?,
        outward_file: Own::open(|| Ok(fcntl_dupfd_cloexec(outward.file(), 0)?))?,
        end,
        news: far_news,
    };
    let core = Arc::new(LeaseCore {
        number,
        link,
        size,
        ports: mutex(&locks::LENT_PORTS, LeasePorts::default()),
        holder,
        packets_in: Atomic::new(),
        packets_out: Atomic::new(),
        drops: Atomic::new(),
        refused: Atomic::new(),
        nonsense: Atomic::new(),
        pairs: Atomic::new(),
        loopback: AtomicBool::new(false),
        news,
        told: mutex(
            &locks::LEASE_TOLD,
            Told {
                notice: side.notice,
                word: 0,
            },
        ),
        bell: bell.clone(),
    });
    let source = LeaseSource {
        core: core.clone(),
        bounds: Bounds {
            layout: outward.layout(),
            links: 1,
            frames: true,
        },
        packets: Slab::with_ready(size.copies(), COPY_BYTES, ready)?,
        receiving: side.receiving,
        slab: outward,
        own_bell: side.own_bell,
        far_bell: bell.clone(),
    };
    let end = LeaseEnd {
        core,
        sending: side.sending,
        slab: inward,
        bell,
        is_staged: false,
    };
    Ok((end, source, files))
}

/// Our end of the socket for news, and the application's. Ours does not wait, and has a bounded queue.
fn news_sockets() -> io::Result<(Own, Own)> {
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    let (near, far) = socketpair(family, kind, SocketFlags::CLOEXEC, None)?;
    let (near, far) = (Own::keep(near), Own::keep(far));
    ioctl_fionbio(&near, true)?;
    set_socket_send_buffer_size(&near, limits::LEASE_NEWS_BYTES)?;
    Ok((near, far))
}

/// Lends each buffer, by the names that the terms promise.
fn lend_all(slab: &mut LendingSlab) {
    while let Some(buffer) = slab.alloc() {
        if slab.lend(buffer).is_err() {
            return; // the quota is as large as the slab
        }
    }
}

impl LeaseEnd {
    /// What both ends share.
    pub const fn core(&self) -> &Arc<LeaseCore> {
        &self.core
    }

    /// Gives the application a copy of a packet, or of a frame. It sees it after [`flush`](Self::flush).
    ///
    /// # Errors
    /// The application has left no buffer for it, or it is longer than one.
    pub fn put(&mut self, packet: &Packet, form: Form) -> Result<(), Counter> {
        if !self.is_staged {
            self.take_returns();
        }
        let given = self.give(packet, form);
        if given.is_none() {
            self.core.drops.add(1);
            return Err(Counter::DropLeaseFull);
        }
        self.is_staged = true;
        self.core.packets_in.add(1);
        Ok(())
    }

    fn give(&mut self, packet: &Packet, form: Form) -> Option<()> {
        let mut buffer = self.slab.alloc()?;
        let bytes = packet.bytes();
        let length = u32::try_from(bytes.len()).ok()?;
        buffer.copy_in(0, bytes).ok()?;
        let name = self.slab.lend(buffer).ok()?;
        let says = |flag, is_so: Flag| if is_so.get() { flag } else { 0 };
        let flags = match form {
            Form::Ip => {
                says(CHECKSUM_VERIFIED, packet.meta.checksum_verified)
                    | says(TO_MANY, packet.meta.to_group)
            }
            Form::Frame => FRAME,
        };
        let descriptor = Descriptor {
            name,
            offset: 0,
            length,
            link: 0,
            flags,
            segment: 0,
        };
        if self.sending.stage(descriptor.encode()).is_err() {
            // As many slots as buffers: only an application that moves its index back gets here.
            if let Ok(buffer) = self.slab.take_back(name) {
                self.slab.free(buffer);
            }
            return None;
        }
        Some(())
    }

    /// Takes back what the application is through with.
    fn take_returns(&mut self) {
        let Self {
            core,
            sending,
            slab,
            ..
        } = self;
        let layout = slab.layout();
        sending.take_returns(limits::LEASE_BUDGET, |bytes| {
            let name = Return::decode(&bytes, layout).map(|back| back.name);
            match name.ok().and_then(|name| slab.take_back(name).ok()) {
                Some(buffer) => slab.free(buffer),
                None => core.nonsense.add(1),
            }
        });
    }

    /// Shows the application what was put, and wakes it if it sleeps.
    pub fn flush(&mut self) {
        if std::mem::take(&mut self.is_staged) {
            self.sending.publish();
            self.bell.ring();
        }
    }
}

/// In which form a packet crosses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// From its IP header on.
    Ip,
    /// From its frame header on.
    Frame,
}

/// What a look for the application's next packet gave.
#[derive(Debug)]
pub enum Taken {
    /// A packet: a copy, not yet checked. One that starts at its IP header has room in front for a frame's.
    Packet(Packet, Form),
    /// Something that cannot be, which is counted.
    Nonsense,
    /// Nothing, for now.
    Nothing,
}

impl LeaseSource {
    /// What both ends share.
    pub const fn core(&self) -> &Arc<LeaseCore> {
        &self.core
    }

    /// Takes the application's next packet.
    pub fn take(&mut self, wants_buffers: &mut bool) -> Taken {
        if self.receiving.is_empty() {
            return Taken::Nothing;
        }
        // First a place for the copy: what is taken from the ring is not lost.
        let Some(buffer) = self.packets.alloc() else {
            return Taken::Nothing;
        };
        let packet = Packet::new(buffer, HEADROOM);
        let Some(item) = self.receiving.take_one() else {
            self.packets.free(packet.into_buffer());
            return Taken::Nothing;
        };
        match self.copy(&item, packet, wants_buffers) {
            Ok((packet, form)) => Taken::Packet(packet, form),
            Err(packet) => {
                self.packets.free(packet.into_buffer());
                self.core.nonsense.add(1);
                Taken::Nonsense
            }
        }
    }

    fn copy(
        &mut self,
        item: &Item,
        mut packet: Packet,
        wants_buffers: &mut bool,
    ) -> Result<(Packet, Form), Packet> {
        let read = Descriptor::decode(item, Writer::FarSide, &self.bounds);
        let Ok(descriptor) = read.map_err(|_: BadDescriptor| ()) else {
            return Err(packet);
        };
        *wants_buffers |= descriptor.flags & WANTS_BUFFERS != 0;
        let (offset, length) = (descriptor.offset as usize, descriptor.length as usize); // widening: u32 to usize
        let room = packet.room_mut().get_mut(..length);
        let (Ok(buffer), Some(room)) = (self.slab.look(descriptor.name), room) else {
            return Err(packet);
        };
        let copied = buffer.copy_out(offset, room);
        self.give_back(descriptor.name);
        if copied.is_err() {
            return Err(packet);
        }
        packet.set_len(length);
        packet.meta.segment = descriptor.segment;
        packet.meta.to_group = (descriptor.flags & TO_MANY != 0).into();
        let form = match descriptor.flags & FRAME {
            0 => Form::Ip,
            _ => Form::Frame,
        };
        Ok((packet, form))
    }

    /// A copy of a packet of the application's, in memory that is bounded for each lease. `None`: it has none left.
    pub fn copy_of(&mut self, packet: &Packet) -> Option<Packet> {
        let mut copy = Packet::new(self.packets.alloc()?, HEADROOM);
        copy.set_len(packet.len());
        if copy.len() != packet.len() {
            return None;
        }
        copy.bytes_mut().copy_from_slice(packet.bytes());
        copy.meta = packet.meta;
        Some(copy)
    }

    /// The application may write to the buffer again. It stays lent.
    fn give_back(&mut self, name: BufferName) {
        // As many slots as buffers: for an honest application there is room.
        let _ = self.receiving.give_back(Return { name }.encode());
    }

    /// Shows the application the buffers that it has again; `wake`: it waits for some.
    pub fn flush(&mut self, wake: bool) {
        self.receiving.publish_returns();
        if wake {
            self.far_bell.ring();
        }
    }

    /// Whether packets wait here.
    pub fn has_packets(&mut self) -> bool {
        !self.receiving.is_empty()
    }

    /// The thread that turns the link is about to sleep: it is to be woken for packets that come from now on.
    pub fn arm(&self) {
        self.own_bell.arm(Sleep::Fd);
    }

    /// The thread is awake.
    pub fn disarm(&self) {
        self.own_bell.disarm();
    }

    /// Readable once the application has packets for a thread that sleeps.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.own_bell.fd()
    }
}
