//! The packet link: an interface of this host, shared with its kernel (AF_PACKET, packet(7)).
//!
//! Unless told otherwise we have a MAC address of our own on it, another one for each stack, so the kernel takes frames for us as meant for another
//! station and neither answers nor resets our connections. With the interface's own address (`mac=own`, for a network that
//! lets only one pass) the kernel sees what we see: our IP addresses must not be its own too, and it must not forward.
//!
//! A kernel at the other end of a veth hands over TCP segments as its TCP made them, up to 64 KiB, with checksums left out;
//! they are taken as they are. What is longer than a link cannot be forwarded so: there the device must not merge (`ethtool -K DEV gro off`,
//! and at the other end of a veth `tso off`). VLAN tags that the kernel or the card took out are put back.

mod queue;

use std::{
    io::{self, ErrorKind},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::Arc,
};

use percore::{doorbell::Doorbell, own::Own};
use proto::wire::ethernet::MacAddr;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, recv, socket_with, sockopt};

use super::{
    FRAME_OVERHEAD, IP_MAX, Link, Properties, Queue, Segmentation, mac, netlink, random::mix, sys,
    virtio,
};

/// What the kernel may keep for us, bytes: the ring of R1. A hundred merged segments.
const KERNEL_QUEUE: usize = 8 << 20;

/// Frames dropped from a socket's queue before its first use: more than fit.
const STALE_MAX: usize = 100_000;

/// A program for the kernel: which frames we get.
type Filter = [sys::Instruction; 27];

/// The filter's instruction that ends it: how much of the frame to take.
const RETURN: u16 = 0x06;

/// Our address on an interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Address {
    /// One of our own, derived from the interface's name and address.
    #[default]
    Derived,
    /// The interface's.
    Interface,
    /// This one.
    Fixed(MacAddr),
}

/// How to open an interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// MTU, bytes, at most the interface's; the interface's if `None`.
    pub mtu: Option<usize>,
    /// Our address on it.
    pub address: Address,
    /// Whether segments are cut and summed by us and not by the kernel or the device.
    pub plain: bool,
    /// Queues: sockets to which the kernel deals frames out by their flows. One if `None`.
    pub queues: Option<usize>,
}

/// Packet sockets bound to an interface.
#[derive(Debug)]
pub struct PacketSocket {
    /// One for each queue.
    sockets: Vec<Own>,
    /// Where there are several: the one that claims our address, and takes no frame. (A group of sockets to which frames are dealt out can have one
    /// purpose; of one socket alone, it is the claim.)
    claim: Option<Own>,
    properties: Properties,
}

impl PacketSocket {
    /// Opens the interface `name`.
    ///
    /// # Errors
    /// Each says what to do: no permission, no such interface, none that carries Ethernet, a refused setting.
    pub fn open(name: &str, options: &Options) -> io::Result<Self> {
        let (interface, mtu) = find(name, options)?;
        let own = match options.address {
            Address::Interface => true,
            Address::Fixed(mac) => mac == interface.mac,
            Address::Derived => false,
        };
        let first = connect(name, interface.index, own)?;
        let mac = if own {
            interface.mac
        } else {
            choose(&first, name, options.address, interface.mac)?
        };
        let queues = options.queues.unwrap_or(1);
        let (sockets, claim) = if queues > 1 {
            let sockets = (0..queues).map(|_| connect(name, interface.index, own));
            let sockets = sockets.collect::<io::Result<Vec<_>>>()?;
            deal(&sockets).map_err(|e| explain(name, "cannot have several queues", e))?;
            (sockets, Some(first))
        } else {
            (vec![first], None)
        };
        for socket in &sockets {
            sys::attach_filter(socket.as_fd(), &filter(mac))
                .map_err(|e| explain(name, "cannot set up the packet socket", e))?;
        }
        Ok(Self::over(sockets, claim, name, options, mac, mtu))
    }

    /// Goes on with a socket that another process opened as these options say, without a right of its own. What waits in it is dropped: it
    /// came while nothing answered.
    ///
    /// # Errors
    /// When `handed` are not what they should be, or their interface is not to be seen.
    pub fn adopt(mut handed: Vec<OwnedFd>, name: &str, options: &Options) -> io::Result<Self> {
        let (interface, mtu) = find(name, options)?;
        let other = |e| explain(name, "what was handed over is not its packet socket", e);
        let queues = options.queues.unwrap_or(1);
        if handed.len() != queues + usize::from(queues > 1) {
            return Err(other(ErrorKind::InvalidInput.into()));
        }
        let claim = (queues > 1).then(|| handed.pop()).flatten().map(Own::stay);
        let mut found = None;
        for socket in &handed {
            let bound = sys::packet_interface(socket.as_fd()).map_err(other)?;
            let program = sys::attached_filter(socket.as_fd()).map_err(other)?;
            let mac = program.as_ref().and_then(station);
            let is_here = u32::try_from(bound) == Ok(interface.index);
            if mac.is_none() || !is_here || (found.is_some() && found != mac) {
                return Err(other(ErrorKind::InvalidInput.into()));
            }
            found = mac;
            drain(socket);
        }
        let mac = found.ok_or_else(|| other(ErrorKind::InvalidInput.into()))?;
        let sockets = handed.into_iter().map(Own::stay).collect();
        Ok(Self::over(sockets, claim, name, options, mac, mtu))
    }

    /// The link on sockets that are set up.
    fn over(
        sockets: Vec<Own>,
        claim: Option<Own>,
        name: &str,
        options: &Options,
        mac: MacAddr,
        mtu: usize,
    ) -> Self {
        let properties = Properties {
            name: format!("packet:{name}"),
            kind: "packet",
            mac,
            mtu,
            frame_max: virtio::LEN + IP_MAX + FRAME_OVERHEAD,
            // What the device cannot do of it the kernel does before it (af_packet.c, validate_xmit_skb).
            segmentation: if options.plain {
                Segmentation::None
            } else {
                let datagrams = knows_datagrams();
                Segmentation::Offloaded { datagrams }
            },
        };
        Self {
            sockets,
            claim,
            properties,
        }
    }
}

impl Link for PacketSocket {
    fn properties(&self) -> &Properties {
        &self.properties
    }

    fn handed_on(&self) -> Vec<BorrowedFd<'_>> {
        let all = self.sockets.iter().chain(&self.claim);
        all.map(|socket| socket.as_fd()).collect()
    }

    fn queues(&self) -> usize {
        self.sockets.len()
    }

    /// Sockets for which there is no bell are closed: the kernel deals nothing out to those.
    fn start(self: Box<Self>, bells: &[Arc<Doorbell>]) -> io::Result<Vec<Queue>> {
        let Self {
            sockets,
            claim,
            properties,
        } = *self;
        let claim = claim.map(Arc::new);
        let used = sockets.into_iter().take(bells.len());
        Ok(used
            .map(|socket| queue::of(Arc::new(socket), claim.clone(), &properties.name))
            .collect())
    }
}

/// Has the kernel deal frames out among the sockets, by their flows.
fn deal(sockets: &[Own]) -> io::Result<()> {
    let mut group = None;
    for socket in sockets {
        group = Some(sys::packet_deal(socket.as_fd(), group)?);
    }
    Ok(())
}

/// Drops what waits.
fn drain(socket: &OwnedFd) {
    for _ in 0..STALE_MAX {
        if recv(socket, &mut [0; 64][..], RecvFlags::DONTWAIT).is_err() {
            break;
        }
    }
}

/// The interface `name`, and the MTU that the options make of it.
fn find(name: &str, options: &Options) -> io::Result<(netlink::Interface, usize)> {
    let interface = netlink::find(name)
        .map_err(|e| explain(name, "cannot look for the interface", e))?
        .ok_or_else(|| {
            refuse(
                name,
                ErrorKind::NotFound,
                "there is no interface of this name in this network namespace",
            )
        })?;
    if !interface.ethernet {
        return Err(refuse(
            name,
            ErrorKind::Unsupported,
            "the interface carries no Ethernet",
        ));
    }
    let mtu = options.mtu.unwrap_or(interface.mtu);
    if mtu > interface.mtu {
        let what = format!("mtu={mtu} is more than the interface's {}", interface.mtu);
        return Err(refuse(name, ErrorKind::InvalidInput, &what));
    }
    Ok((interface, mtu))
}

/// Whether the kernel cuts many datagrams out of one packet (VIRTIO_NET_HDR_GSO_UDP_L4): since Linux 6.2. A packet socket has no call to ask.
fn knows_datagrams() -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    let mut number = || {
        numbers
            .next()
            .and_then(|n| n.parse::<u32>().ok())
            .unwrap_or(0)
    };
    (number(), number()) >= (6, 2)
}

/// Our own address on the interface, which no other stack has: each stack would take the other's frames, and its peers would not notice.
fn choose(
    socket: &OwnedFd,
    name: &str,
    wanted: Address,
    interface: MacAddr,
) -> io::Result<MacAddr> {
    // Where the kernel knows no such group nothing can be found out.
    let is_free = |mac: MacAddr| {
        let id = mac.0.iter().fold(0, |id, &b| mix(id ^ u64::from(b)));
        let id = u16::try_from(id >> 48).unwrap_or(0);
        sys::packet_claim(socket.as_fd(), id).unwrap_or(true)
    };
    if let Address::Fixed(mac) = wanted {
        let what = format!(
            "another stack has mac={mac} on this interface; leave it away, and each has its own"
        );
        let refused = || refuse(name, ErrorKind::AddrInUse, &what);
        return is_free(mac).then_some(mac).ok_or_else(refused);
    }
    let derived = |n: u8| match n {
        0 => mac::derive(&[b"packet", name.as_bytes(), &interface.0]),
        n => mac::derive(&[b"packet", name.as_bytes(), &interface.0, &[n]]),
    };
    let mut all = (0..=u8::MAX).map(derived);
    all.find(|&mac| mac != interface && is_free(mac))
        .ok_or_else(|| {
            refuse(
                name,
                ErrorKind::AddrInUse,
                "256 stacks on one interface are the most",
            )
        })
}

/// A socket for the frames of one interface, which lets none in yet.
fn connect(name: &str, index: u32, own: bool) -> io::Result<Own> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    // Protocol 0: nothing is received before the filter and the interface are set.
    let packets = || {
        let (family, kind) = (AddressFamily::PACKET, SocketType::RAW);
        Ok(socket_with(family, kind, flags, None)?)
    };
    let socket = Own::<OwnedFd>::open(packets).map_err(|e| {
        let what = match e.kind() {
            io::ErrorKind::PermissionDenied => {
                "not permitted: a packet socket needs CAP_NET_RAW (root, or a user namespace that owns the interface)"
            }
            _ => "cannot make a packet socket",
        };
        explain(name, what, e)
    })?;
    let set = || -> io::Result<()> {
        sys::attach_filter(socket.as_fd(), &[(RETURN, 0, 0, 0)])?;
        sys::packet_switch_on(socket.as_fd(), libc::PACKET_AUXDATA)?;
        sys::packet_switch_on(socket.as_fd(), libc::PACKET_VNET_HDR)?;
        let membership = if own {
            libc::PACKET_MR_ALLMULTI
        } else {
            libc::PACKET_MR_PROMISC
        };
        sys::packet_join(socket.as_fd(), index, membership)?;
        // More than the system's limit needs rights that we may not have; then as much as there is.
        sockopt::set_socket_recv_buffer_size_force(&socket, KERNEL_QUEUE)
            .or_else(|_| sockopt::set_socket_recv_buffer_size(&socket, KERNEL_QUEUE))?;
        sockopt::set_socket_send_buffer_size_force(&socket, KERNEL_QUEUE)
            .or_else(|_| sockopt::set_socket_send_buffer_size(&socket, KERNEL_QUEUE))?;
        sys::packet_bind(socket.as_fd(), index)
    };
    set().map_err(|e| explain(name, "cannot set up the packet socket", e))?;
    Ok(socket)
}

/// Accepts frames whose destination has the group bit or is `mac`: the kernel drops the rest before they cost us anything.
///
/// Of what others send on this interface, which is on its way out, it lets in only what tells all machines of an address (an announcement of
/// ARP, an advertisement of NDP): another netchan on it hears us in no other way, nor the kernel. All else is not for us and cannot be
/// answered.
fn filter(mac: MacAddr) -> Filter {
    const LOAD_BYTE: u16 = 0x30;
    const LOAD_HALF: u16 = 0x28;
    const LOAD_WORD: u16 = 0x20;
    const KEEP: u16 = 0x07;
    const IF_BITS: u16 = 0x45;
    const IF_EQUAL: u16 = 0x15;
    const IF_KEPT: u16 = 0x1d;
    // SKF_AD_OFF + SKF_AD_PKTTYPE: whether a frame comes or goes.
    const DIRECTION: u32 = 0_u32.wrapping_sub(0x1000) + 4;
    let [a, b, c, d, e, f] = mac.0;
    let (first, last) = (
        u32::from_be_bytes([a, b, c, d]),
        u32::from_be_bytes([0, 0, e, f]),
    );
    [
        (LOAD_WORD, 0, 0, DIRECTION),
        (IF_EQUAL, 6, 0, u32::from(libc::PACKET_OUTGOING)),
        // In: for a group, or for us.
        (LOAD_BYTE, 0, 0, 0),
        (IF_BITS, 21, 0, 1),
        (LOAD_WORD, 0, 0, 0),
        (IF_EQUAL, 0, 20, first),
        (LOAD_HALF, 0, 0, 4),
        (IF_EQUAL, 17, 18, last),
        // Out: to a group, and not from our own address, which may be the kernel's, too.
        (LOAD_BYTE, 0, 0, 0),
        (IF_BITS, 0, 16, 1),
        (LOAD_WORD, 0, 0, 6),
        (IF_EQUAL, 0, 2, first),
        (LOAD_HALF, 0, 0, 10),
        (IF_EQUAL, 12, 0, last),
        (LOAD_HALF, 0, 0, 12),
        (IF_EQUAL, 0, 4, 0x0806),
        // ARP: the sender's address is the one that is asked for.
        (LOAD_WORD, 0, 0, 28),
        (KEEP, 0, 0, 0),
        (LOAD_WORD, 0, 0, 38),
        (IF_KEPT, 5, 6, 0),
        // IPv6 with ICMPv6 of this link (255 hops), of it a neighbour advertisement.
        (IF_EQUAL, 0, 5, 0x86dd),
        (LOAD_HALF, 0, 0, 20),
        (IF_EQUAL, 0, 3, 0x3aff),
        (LOAD_BYTE, 0, 0, 54),
        (IF_EQUAL, 0, 1, 136),
        (RETURN, 0, 0, u32::MAX),
        (RETURN, 0, 0, 0),
    ]
}

/// The station that [`filter`] was made for.
fn station(filter: &Filter) -> Option<MacAddr> {
    let [a, b, c, d] = filter[5].3.to_be_bytes();
    let [e, f] = u16::try_from(filter[7].3).ok()?.to_be_bytes();
    let mac = MacAddr([a, b, c, d, e, f]);
    (*filter == self::filter(mac)).then_some(mac)
}

fn refuse(name: &str, kind: ErrorKind, what: &str) -> io::Error {
    io::Error::new(kind, format!("packet:{name}: {what}"))
}

fn explain(name: &str, what: &str, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("packet:{name}: {what}: {error}"))
}
