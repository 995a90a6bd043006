//! The packet: a handle to a buffer in some slab. Freed anywhere, its memory goes home by itself.

use percore::slab::Buffer;
use proto::wire::ipv4::Protocol;

/// Room in front of an outgoing IP packet for the link's header: Ethernet, two VLAN tags, a virtio-net header, rounded up.
pub const HEADROOM: usize = 40;

// Bytes, not an enum and bools: those have values to spare, and `Option<Packet>` would keep its tag in one of them, in the midst of
// the packet's last word. As it is the tag is the buffer's address, and packets move word by word.

/// What the layers above know of a packet's next hop (RFC 1122 §2.3.2.1 (4), RFC 4861 §7.3.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hint(u8);

impl Hint {
    /// Nothing new.
    pub const NONE: Self = Self(0);
    /// New acknowledgments came: it is there.
    pub const PROGRESS: Self = Self(1);
    /// This is sent again because no acknowledgment came in time: it may be gone, or elsewhere.
    pub const DOUBT: Self = Self(2);
}

/// Whose a packet is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Course(u8);

impl Course {
    /// From us, or for us.
    pub const OURS: Self = Self(0);
    /// On its way through: neither from us nor for us.
    pub const THROUGH: Self = Self(1);
    /// One of our own that found no next hop, on its way back to its sender.
    pub const RETURNED: Self = Self(2);
    /// Made here, and never sent: it tells a connection that something is there for it beside packets.
    pub const BESIDE: Self = Self(3);
    /// Made here, and never sent: it tells a connection that what it sent lately does not arrive.
    pub const IN_VAIN: Self = Self(4);

    /// Whether a stack has sent it; else it tells something that a link knows.
    #[inline]
    pub const fn was_sent(self) -> bool {
        self.0 < Self::BESIDE.0
    }

    /// Whether another host's stack, or another program's, has sent it.
    #[inline]
    pub const fn is_of_peer(self) -> bool {
        self.0 < Self::RETURNED.0
    }
}

/// A yes or no about a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flag(u8);

impl Flag {
    /// No.
    pub const NO: Self = Self(0);
    /// Yes.
    pub const YES: Self = Self(1);
    /// Whether it is a yes.
    #[inline]
    pub const fn get(self) -> bool {
        self.0 != 0
    }
}

impl From<bool> for Flag {
    #[inline]
    fn from(yes: bool) -> Self {
        Self(u8::from(yes))
    }
}

/// What is known about a packet beside its bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Meta {
    /// The upper layer's protocol, from `steer`.
    pub protocol: Protocol,
    /// Low half of the flow's keyed hash, from `steer`; 0 before it. Of a datagram or segment of ours on its way out: SO_MARK.
    pub flow: u32,
    /// Bytes from the IP header's first to the upper layer's header, from `steer`.
    pub upper: u16,
    /// Of an outgoing TCP segment, or many datagrams in one (then `protocol` says UDP), that its link shall finish
    /// (`netchan_link::Segmentation::Offloaded`): most bytes of payload in each segment that it has to be cut into. Its checksum
    /// field holds the sum of the pseudo-header. 0: nothing is left to be done.
    pub segment: u16,
    /// Of a packet whose way is timed: when its link gave it, in the trace's ticks. 0: of another.
    pub seen: u32,
    /// Of such a one: ticks from there until it was handed to its shard, at most what fits; 0: it was not, or not yet. Of one on its way out:
    /// see [`Self::set_sender`].
    pub handed: u16,
    /// The interface it leaves by, or came in by.
    pub interface: u8,
    /// Its frame went to a link-layer group, from `steer`. Of a packet on its way out: it is the copy for members on this host; of a lease's: its lender is to make such
    /// copies.
    pub to_group: Flag,
    /// Put together from fragments.
    pub reassembled: Flag,
    /// Whose it is.
    pub course: Course,
    /// What its connection knows of the next hop.
    pub hint: Hint,
    /// What its IP header said of congestion (the two bits of `Ecn`), where a connection may be opened for it.
    pub ecn: u8,
    /// Its TTL or hop limit, likewise.
    pub hops: u8,
    /// A module has changed it on its way out: it may leave from an address that is not this host's.
    pub translated: Flag,
    /// The link vouches for the transport checksum (it never left this host's memory, or hardware verified it).
    pub checksum_verified: Flag,
}

impl Meta {
    /// Says, of a packet on its way out, that this shard sends it. Done where a tap asks.
    pub const fn set_sender(&mut self, shard: u8) {
        self.handed = shard as u16 + 1;
    }

    /// The shard that sends it, where that was said.
    pub fn sender(&self) -> Option<u8> {
        let shard = self.handed.checked_sub(1)?;
        (self.seen == 0).then_some(u8::try_from(shard).ok()?)
    }
}

const _: () = assert!(size_of::<Packet>() == 48, "it travels word by word");

/// An owned packet: 48 bytes that travel by value through rings.
#[derive(Debug)]
pub struct Packet {
    buffer: Buffer,
    start: u32,
    len: u32,
    /// What is known about it.
    pub meta: Meta,
}

#[allow(clippy::cast_possible_truncation)] // a slab's buffers are smaller than 4 GiB: `Slab::new` checks
const fn short(n: usize) -> u32 {
    n as u32
}

impl Packet {
    /// An empty packet whose bytes will start `headroom` bytes into `buffer` (at most its size).
    #[inline]
    pub fn new(buffer: Buffer, headroom: usize) -> Self {
        let start = short(headroom.min(buffer.len()));
        Self {
            buffer,
            start,
            len: 0,
            meta: Meta::default(),
        }
    }
    /// The bytes.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        let start = self.start as usize;
        self.buffer
            .get(start..start + self.len as usize)
            .unwrap_or_default()
    }
    /// The bytes, to change.
    #[inline]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        let start = self.start as usize;
        self.buffer
            .get_mut(start..start + self.len as usize)
            .unwrap_or_default()
    }
    /// All the room from the first byte on, to be written before [`set_len`](Self::set_len).
    #[inline]
    pub fn room_mut(&mut self) -> &mut [u8] {
        self.buffer
            .get_mut(self.start as usize..)
            .unwrap_or_default()
    }
    /// Number of bytes.
    #[inline]
    pub const fn len(&self) -> usize {
        self.len as usize
    }
    /// Whether it has no bytes.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }
    /// Declares the first `len` bytes of the room to be the packet (at most the room).
    #[inline]
    pub fn set_len(&mut self, len: usize) {
        self.len = short(len.min(self.buffer.len() - self.start as usize));
    }
    /// Drops `n` bytes from the front (at most all).
    #[inline]
    pub fn pull(&mut self, n: usize) {
        let n = short(n.min(self.len()));
        self.start += n;
        self.len -= n;
    }
    /// Puts `n` bytes of old room in front; `None` where there is less headroom.
    #[inline]
    pub fn push(&mut self, n: usize) -> Option<&mut [u8]> {
        let start = (self.start as usize).checked_sub(n)?;
        self.start = short(start);
        self.len += short(n);
        self.buffer.get_mut(start..start + n)
    }
    /// The `n` bytes of old room before the first: headers that were pulled off. `None`: there was not so much.
    #[inline]
    pub fn before(&self, n: usize) -> Option<&[u8]> {
        let start = self.start as usize;
        self.buffer.get(start.checked_sub(n)?..start)
    }
    /// Drops bytes from the end until `len` are left.
    #[inline]
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(short(len));
    }
    /// The memory it holds, whatever its length: what limits count (truesize).
    #[inline]
    pub fn true_size(&self) -> usize {
        self.buffer.len()
    }
    /// Whether the buffer's owner has few left: see [`Buffer::is_scarce`].
    #[inline]
    pub fn is_scarce(&self) -> bool {
        self.buffer.is_scarce()
    }
    /// Copies the bytes into `buffer`, without what is known about them; `Err` gives it back where they do not fit.
    pub fn copy(&self, buffer: Buffer) -> Result<Self, Buffer> {
        let bytes = self.bytes();
        let mut packet = Self::new(buffer, 0);
        let Some(room) = packet.room_mut().get_mut(..bytes.len()) else {
            return Err(packet.buffer);
        };
        room.copy_from_slice(bytes);
        packet.set_len(bytes.len());
        Ok(packet)
    }
    /// What tells it from every other packet whose way is timed ([`Meta::seen`]), for seconds: 52 bits.
    #[inline]
    pub fn timed_id(&self) -> u64 {
        // Buffers start at cache lines of their own; those of one burst lie within 64 MiB.
        let line = self.buffer.as_ptr().addr() as u64 >> 6; // widening: usize to u64
        u64::from(self.meta.seen) << 20 | line & ((1 << 20) - 1)
    }
    /// Its buffer, for a local free.
    #[inline]
    pub fn into_buffer(self) -> Buffer {
        self.buffer
    }
}

impl Packet {
    /// Copies the bytes of `next` behind its own, if there is room, and they are few against the buffer that they came in: an eighth,
    /// so that what is copied stays little and no buffer is kept for less than an eighth of itself (SegmentSmack, negative 67).
    #[inline]
    pub fn try_append(&mut self, next: &Self) -> bool {
        next.len() * 8 <= next.buffer.len() && self.append(next)
    }

    /// Copies the bytes of `next` behind its own, if there is room.
    fn append(&mut self, next: &Self) -> bool {
        let len = next.len();
        let end = self.start as usize + self.len as usize;
        let Some(room) = self.buffer.get_mut(end..end + len) else {
            return false;
        };
        room.copy_from_slice(next.bytes());
        self.len += short(len);
        true
    }
}
