//! What a lender and an application say to each other, as JSON in packets of a SOCK_SEQPACKET socket.
//!
//! The application asks, the lender answers each request once, in order. The first request is [`Request::Attach`], which [`Request::Links`] may precede; with its
//! answer come the files ([`FILES`]). When the socket closes the lease ends. Neither side believes the other: what is read is checked here, or where it is used.
//!
//! What is not waited for goes over a socket of its own, one of these files: there the application says which other lease it sends much to ([`Wish`]), and
//! the lender tells of short cuts ([`News`]).

use std::net::{IpAddr, SocketAddr};

use percore::{
    edge::{EdgeLayout, Which},
    pipe::PipesLayout,
    slab::SharedLayout,
};
use proto::{
    ip::address::Address,
    membership::{Filter, Mode},
    wire::ethernet::MacAddr,
};
use serde::{Deserialize, Serialize};

use crate::Segmentation;

/// The version of all of this.
pub const VERSION: u32 = 9;

/// Descriptors that come with [`Answer::Terms`] to [`Request::Attach`], in this order: the slab of packets to the application, that of packets from it,
/// the edge's memory, the edge's socket, the socket of [`News`].
pub const FILES: usize = 5;

/// Descriptors that come with [`News::Peer`], in this order: the slab of packets to the application, that of packets from it, the edge's memory, the
/// edge's socket, the pipes.
pub const PEER_FILES: usize = 5;

/// Longest message, bytes.
pub const MESSAGE_MAX: usize = 16 << 10;

/// Most buffers of a slab, and bytes in each: both are more than a link uses, and bound what is allocated for them.
const BUFFERS_MAX: u32 = 1 << 16;
const BUFFER_BYTES_MAX: u32 = 1 << 17;

/// Longest name of a program or a link, bytes; more links, addresses or ranges than this are no terms.
pub(super) const LIST_MAX: usize = 256;

/// What the application asks for.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    /// What is lent. Answer: [`Answer::Links`].
    Links {
        /// [`VERSION`].
        version: u32,
        /// As in [`Attach`](Self::Attach).
        #[serde(default)]
        secret: String,
    },
    /// A lease. Answer: [`Answer::Terms`] with [`FILES`] descriptors.
    Attach {
        /// [`VERSION`].
        version: u32,
        /// The link's name without its kind; empty: the only one.
        link: String,
        /// What the program is called, for people.
        program: String,
        /// What a lender of a program's own wants to hear; else empty.
        #[serde(default)]
        secret: String,
        /// Most memory that the lease is to have, bytes; as much as the lender gives if `None`.
        #[serde(default)]
        memory: Option<u64>,
    },
    /// The terms once more, for a program that goes on with an inherited lease. Answer: [`Answer::Terms`] without descriptors.
    Terms,
    /// A port. Answer: [`Answer::Done`].
    Bind(Binding, Reuse),
    /// Nothing new is to come to a port that is shared by SO_REUSEPORT: its last listener is about to end. Answer: [`Answer::Done`], from which on it does not.
    Leave(Binding),
    /// No socket is bound there any more, and nothing new is to come. Of connections that live on, these are with other applications of the lender's: their
    /// packets may not have passed it; at most [`FLOWS_MAX`]. There is no answer.
    Close(Binding, Vec<(SocketAddr, SocketAddr)>),
    /// None of its connections is left either: others may have the port. There is no answer.
    Return(Binding),
    /// All its connections were closed in order, and their peers have acknowledged that: none of those that there are is to be reset when the lease ends. There
    /// is no answer.
    Over,
    /// More ports for sockets that name none. Answer: [`Answer::Ports`], the added ones.
    MorePorts,
    /// The packets of an IP protocol number that has no ports, in IPv4 and in IPv6. Answer: [`Answer::Done`].
    Packets(u8),
    /// The frames of an EtherType, to the lender's link address and to groups of stations. Answer: [`Answer::Done`].
    Frames(u16),
    /// 127.0.0.0/8 and ::1, where [`Terms::loopback`] says that they are lent: the lease's ports are there, too, from now on. Answer: [`Answer::Done`].
    Loopback,
    /// What the lease's sockets hear of a group from now on, all together. Answer: [`Answer::Done`].
    Join(Membership),
    /// The same where a socket has left it: less than before, or nothing. There is no answer.
    Drop(Membership),
}

/// Most sources of one [`Membership`]: two of the longest lists that a socket has. A message holds more, however long the addresses are.
pub const SOURCES_MAX: usize = 128;

/// What is heard of a group on the lease's link (RFC 9776 §3.2, RFC 9777 §4.2).
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Membership {
    /// The group.
    pub group: IpAddr,
    /// Whether the sources are all that are not heard; else they are all that are. Without sources: of the first everything, of the other nothing.
    pub excludes: bool,
    /// At most [`SOURCES_MAX`], of the group's family.
    pub sources: Vec<IpAddr>,
}

impl Membership {
    /// In a filter's words. Where it has too many sources, more is heard than it says.
    #[must_use]
    pub fn of(group: IpAddr, filter: &Filter) -> Self {
        let excludes = filter.mode() == Mode::Exclude;
        let sources = filter.sources();
        match (excludes, sources.len() > SOURCES_MAX) {
            (false, true) => Self {
                group,
                excludes: true,
                sources: Vec::new(),
            },
            _ => Self {
                group,
                excludes,
                sources: sources.iter().copied().take(SOURCES_MAX).collect(),
            },
        }
    }

    /// Checks what was read: the filter.
    ///
    /// # Errors
    /// EINVAL: no group, a source that no host has, or of the other family; ENOBUFS: more than [`SOURCES_MAX`] sources.
    pub fn filter(&self) -> Result<Filter, i32> {
        if !self.group.is_multicast() {
            return Err(libc::EINVAL);
        }
        if self.sources.len() > SOURCES_MAX {
            return Err(libc::ENOBUFS);
        }
        let mut filter = Filter::of(match self.excludes {
            true => Mode::Exclude,
            false => Mode::Include,
        });
        for &source in &self.sources {
            let is_of_family = source.is_ipv4() == self.group.is_ipv4();
            if !is_of_family || source.is_multicast() || source.is_unspecified() {
                return Err(libc::EINVAL);
            }
            filter.add(source); // twice is once
        }
        Ok(filter)
    }
}

/// Most connections in one [`Request::Close`]: a message holds more, however long their addresses are.
pub const FLOWS_MAX: usize = 128;

/// With which sockets of other applications a port may be shared: as those of a kernel, by SO_REUSEADDR and SO_REUSEPORT.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reuse {
    /// SO_REUSEADDR.
    pub address: bool,
    /// SO_REUSEPORT: with those of the same user.
    pub port: bool,
}

/// A port that is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Binding {
    /// Of which protocol.
    pub transport: Transport,
    /// At which address; unspecified: at all of its family. The port is not 0.
    pub address: SocketAddr,
}

impl Binding {
    /// An IPv4 address is one, however it is written.
    #[must_use]
    pub const fn canonical(self) -> Self {
        let (ip, port) = (self.address.ip().to_canonical(), self.address.port());
        Self {
            address: SocketAddr::new(ip, port),
            ..self
        }
    }
}

/// A protocol with ports, or with what stands in their place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Transport {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// ICMP's and ICMPv6's echo (RFC 792, RFC 4443 §4.1): the port is the identifier of requests, and of the replies to them.
    Ping,
}

/// Ports of all protocols, first and last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortRange(pub u16, pub u16);

impl PortRange {
    /// How many ports these are; 0 where the last is before the first.
    #[must_use]
    pub fn count(self) -> u32 {
        (u32::from(self.1) + 1).saturating_sub(self.0.into())
    }

    /// Whether it has ports, and 0 is not one of them.
    pub(super) fn is_sound(self) -> bool {
        self.0 > 0 && self.count() > 0
    }
}

/// What the lender answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Answer {
    /// The links' names, without their kinds.
    Links(Vec<String>),
    /// The lease.
    Terms(Box<Terms>),
    /// It is so.
    Done,
    /// More ports.
    Ports(Vec<PortRange>),
    /// No.
    Refused {
        /// An errno.
        errno: i32,
        /// Why, in a sentence.
        why: String,
    },
}

/// The application would like a short cut to the lease that has this port. No answer is due: where there is to be one, [`News::Peer`] comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wish {
    /// An address of the lender's, and a port.
    pub to: Binding,
}

/// What the lender tells unasked. The edge's notice counts these ([`percore::edge::Notice`]).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum News {
    /// There is a short cut to another lease. With [`PEER_FILES`] descriptors.
    Peer(Box<PeerTerms>),
    /// The other lease's ports are these now.
    Ports {
        /// [`PeerTerms::pair`].
        pair: u64,
        /// All of them.
        ports: PeerPorts,
    },
    /// The other lease has ended, or the short cut to it.
    Gone {
        /// [`PeerTerms::pair`].
        pair: u64,
    },
}

/// A short cut.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PeerTerms {
    /// Its number; never another one's.
    pub pair: u64,
    /// Which side of the edge is this application's ([`Which::Maker`]).
    pub is_maker: bool,
    /// The slab of packets to this application, encoded.
    pub inward: [u8; SharedLayout::ENCODED],
    /// The slab of packets from it: all its buffers are its own, each by its first name (generation 1).
    pub outward: [u8; SharedLayout::ENCODED],
    /// Slots of the edge's rings.
    pub slots: u32,
    /// Pipes, and bytes of each.
    pub pipes: [u32; 2],
    /// The other lease's ports: nothing else comes from it.
    pub ports: PeerPorts,
}

/// The ports of another lease.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PeerPorts {
    /// Those that it asked for, and has alone.
    pub bindings: Vec<Binding>,
    /// Those that other leases have, too, or may have: they are sent to by the lender.
    pub shared: Vec<Binding>,
    /// Of all protocols, at all addresses.
    pub ranges: Vec<PortRange>,
    /// Its ports are at the loopback addresses, too.
    pub loopback: bool,
}

/// A lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Terms {
    /// [`VERSION`].
    pub version: u32,
    /// The lender's link, as it was written (`tap:nc0`).
    pub link: String,
    /// Its link address.
    pub mac: [u8; 6],
    /// Largest IP packet, bytes.
    pub mtu: usize,
    /// What it does with more text than that: `none`, `carried`, `offloaded`, `offloaded_datagrams`.
    pub segmentation: Cutting,
    /// The lender's addresses on it, `10.77.0.2/24`.
    pub addresses: Vec<String>,
    /// The slab of packets to the application, encoded ([`SharedLayout`]).
    pub inward: [u8; SharedLayout::ENCODED],
    /// The slab of packets from it. All its buffers are lent from the beginning, each by its first name (generation 1).
    pub outward: [u8; SharedLayout::ENCODED],
    /// Slots of the edge's rings ([`EdgeLayout`]).
    pub slots: u32,
    /// Ports for sockets that name none.
    pub ports: Vec<PortRange>,
    /// The lender lends 127.0.0.0/8 and ::1, too ([`Request::Loopback`]).
    pub loopback: bool,
}

/// [`Segmentation`], as it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cutting {
    /// [`Segmentation::None`].
    None,
    /// [`Segmentation::Carried`].
    Carried,
    /// [`Segmentation::Offloaded`], without datagrams.
    Offloaded,
    /// [`Segmentation::Offloaded`], with datagrams.
    OffloadedDatagrams,
}

impl From<Segmentation> for Cutting {
    fn from(segmentation: Segmentation) -> Self {
        match segmentation {
            Segmentation::None => Self::None,
            Segmentation::Carried => Self::Carried,
            Segmentation::Offloaded { datagrams: false } => Self::Offloaded,
            Segmentation::Offloaded { datagrams: true } => Self::OffloadedDatagrams,
        }
    }
}

impl From<Cutting> for Segmentation {
    fn from(cutting: Cutting) -> Self {
        match cutting {
            Cutting::None => Self::None,
            Cutting::Carried => Self::Carried,
            Cutting::Offloaded => Self::Offloaded { datagrams: false },
            Cutting::OffloadedDatagrams => Self::Offloaded { datagrams: true },
        }
    }
}

/// Terms that were read, each part checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Checked {
    pub mac: MacAddr,
    pub addresses: Vec<Address>,
    pub inward: SharedLayout,
    pub outward: SharedLayout,
    pub edge: EdgeLayout,
}

impl Terms {
    /// Checks what was read.
    ///
    /// # Errors
    /// What cannot be, in words.
    pub(super) fn check(&self) -> Result<Checked, String> {
        if self.version != VERSION {
            let version = self.version;
            return Err(format!(
                "it speaks version {version} of leases, this program {VERSION}"
            ));
        }
        check_name(&self.link)?;
        if self.addresses.len() > LIST_MAX || self.ports.len() > LIST_MAX {
            return Err(format!(
                "it has more than {LIST_MAX} addresses or ranges of ports"
            ));
        }
        let mac = MacAddr(self.mac);
        if !mac.is_unicast() {
            return Err(format!("its link address {mac} is not that of one station"));
        }
        if !(68..=65_535).contains(&self.mtu) {
            return Err(format!("its MTU of {} bytes is none", self.mtu));
        }
        if let Some(PortRange(first, last)) = self.ports.iter().find(|range| !range.is_sound()) {
            return Err(format!("its ports {first} to {last} are none"));
        }
        let read = |text: &String| {
            text.parse::<Address>()
                .map_err(|e| format!("its address {text:?}: {e}"))
        };
        Ok(Checked {
            mac,
            addresses: self.addresses.iter().map(read).collect::<Result<_, _>>()?,
            inward: slab(&self.inward, self.mtu)?,
            outward: slab(&self.outward, self.mtu)?,
            edge: edge(self.slots)?,
        })
    }
}

/// # Errors
/// `link` is no link's name.
fn check_name(link: &str) -> Result<(), String> {
    if link.len() > LIST_MAX || link.contains(char::is_control) {
        return Err("its link has a name that no link has".into());
    }
    Ok(())
}

/// Checks the names of a lender's links.
///
/// # Errors
/// What cannot be, in words.
pub(super) fn check_links(links: &[String]) -> Result<(), String> {
    if links.len() > LIST_MAX {
        return Err(format!("it has more than {LIST_MAX} links"));
    }
    links.iter().try_for_each(|link| check_name(link))
}

impl PeerTerms {
    /// Checks what was read: the slabs to and from this application, the edge, and the pipes. `mtu`: of the lease.
    ///
    /// # Errors
    /// What cannot be, in words.
    pub(super) fn check(
        &self,
        mtu: usize,
    ) -> Result<([SharedLayout; 2], EdgeLayout, PipesLayout), String> {
        let [slots, bytes] = self.pipes;
        let pipes = PipesLayout::new(slots, bytes);
        let pipes = pipes.ok_or_else(|| format!("{slots} pipes of {bytes} bytes are none"))?;
        let slabs = [slab(&self.inward, mtu)?, slab(&self.outward, mtu)?];
        Ok((slabs, edge(self.slots)?, pipes))
    }

    /// Which side of the edge is this application's.
    pub(super) const fn side(&self) -> Which {
        match self.is_maker {
            true => Which::Maker,
            false => Which::Mapper,
        }
    }
}

fn edge(slots: u32) -> Result<EdgeLayout, String> {
    EdgeLayout::new(slots).ok_or_else(|| "its rings have no size that rings have".into())
}

fn slab(bytes: &[u8; SharedLayout::ENCODED], mtu: usize) -> Result<SharedLayout, String> {
    let layout = SharedLayout::decode(bytes).map_err(|e| format!("its slab: {e}"))?;
    let (buffers, size) = (layout.buffers(), layout.buffer_bytes());
    if buffers > BUFFERS_MAX || size > BUFFER_BYTES_MAX {
        return Err(format!(
            "its slab: {buffers} buffers of {size} bytes are too many"
        ));
    }
    if (size as usize) < mtu {
        return Err(format!(
            "its slab: buffers of {size} bytes are shorter than its MTU of {mtu} bytes"
        ));
    }
    Ok(layout)
}
