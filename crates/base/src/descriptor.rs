//! What crosses a protection boundary beside the bytes of a slab: descriptors of packets and returns of buffers, as plain bytes. The rings they will lie in
//! are not here.
//!
//! Reading one believes nothing. [`Descriptor::decode`] takes a copy that the other side cannot change, checks each field against the slab's layout, and
//! says why it refuses. It does not say that the buffer is lent: that is [`LendingSlab::take_back`](percore::slab::LendingSlab::take_back)'s answer.
//! A flag of the far side is a hint, never a fact: it may save a wake-up, not a check.

use std::fmt;

use percore::slab::{BufferName, SharedLayout};

#[cfg(test)]
mod tests;

/// More descriptors follow at once: no need to wake the reader yet. A hint, from either side.
pub const MORE_FOLLOWS: u32 = 1;
/// The far side has few buffers left to write to: it wants to be woken when some come back. A hint.
pub const WANTS_BUFFERS: u32 = 1 << 1;
/// It is a frame with its Ethernet header, not an IP packet. Where frames cross at all ([`Bounds::frames`]), either side may say so: the reader looks
/// at it as at what it says it is.
pub const FRAME: u32 = 1 << 2;
/// It is for many. From the far side: members on the owner's host are to have copies (IP_MULTICAST_LOOP), a wish; from the owner: its frame was for a group of
/// stations. Of frames that cross as such it says nothing.
pub const TO_MANY: u32 = 1 << 3;
/// The owner has verified the packet's checksums. Only the owner may say so: a descriptor of the far side with it is refused.
pub const CHECKSUM_VERIFIED: u32 = 1 << 8;

/// What the far side may say.
const HINTS: u32 = MORE_FOLLOWS | WANTS_BUFFERS;
/// What it says of the packet.
const FORMS: u32 = FRAME | TO_MANY;
/// What is believed of the owner alone.
const TRUSTED: u32 = CHECKSUM_VERIFIED;

/// The side that wrote a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writer {
    /// The side that has the slab: the far side trusts it.
    Owner,
    /// The side that borrows: the owner does not trust it.
    FarSide,
}

/// What the fields of a descriptor are checked against.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// The slab's.
    pub layout: SharedLayout,
    /// Number of links; they count from 0.
    pub links: u32,
    /// Whether frames may come beside IP packets.
    pub frames: bool,
}

/// A packet in a shared slab: `length` bytes of buffer `name` from `offset` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descriptor {
    /// The buffer, and which loan of it.
    pub name: BufferName,
    /// Where the packet begins, in bytes from the buffer's start.
    pub offset: u32,
    /// Its length in bytes, at least 1.
    pub length: u32,
    /// The link it came by, or is to go by.
    pub link: u32,
    /// [`MORE_FOLLOWS`], [`WANTS_BUFFERS`], [`FRAME`], [`TO_MANY`], [`CHECKSUM_VERIFIED`].
    pub flags: u32,
    /// As [`Meta::segment`](crate::packet::Meta::segment): most bytes of payload in each packet that the link has to cut this one into. 0: none.
    pub segment: u16,
}

impl Descriptor {
    /// Bytes of the encoded form: two in a cache line.
    pub const ENCODED: usize = 32;

    /// As plain bytes: index, generation, offset, length, link, flags, segment, zero; 32 bits each, little-endian.
    pub fn encode(&self) -> [u8; Self::ENCODED] {
        put([
            self.name.index,
            self.name.generation,
            self.offset,
            self.length,
            self.link,
            self.flags,
            self.segment.into(),
            0,
        ])
    }

    /// Reads what `writer` wrote. `bytes` may be anything, but must be a copy that the other side cannot change.
    ///
    /// # Errors
    /// The first field, in their order, that cannot be.
    pub fn decode(
        bytes: &[u8; Self::ENCODED],
        writer: Writer,
        bounds: &Bounds,
    ) -> Result<Self, BadDescriptor> {
        let [
            index,
            generation,
            offset,
            length,
            link,
            flags,
            segment,
            zero,
        ]: [u32; 8] = words(bytes);
        check_buffer(index, bounds.layout)?;
        let end = offset.checked_add(length).ok_or(BadDescriptor::Outside)?;
        if end > bounds.layout.buffer_bytes() {
            return Err(BadDescriptor::Outside);
        }
        if length == 0 {
            return Err(BadDescriptor::Empty);
        }
        if link >= bounds.links {
            return Err(BadDescriptor::NoSuchLink);
        }
        if flags & !(HINTS | FORMS | TRUSTED) != 0 {
            return Err(BadDescriptor::UnknownFlag);
        }
        if writer == Writer::FarSide && flags & TRUSTED != 0 {
            return Err(BadDescriptor::TrustedFlag);
        }
        let is_frame = flags & FRAME != 0;
        if is_frame && !bounds.frames {
            return Err(BadDescriptor::Frame);
        }
        let segment = u16::try_from(segment).map_err(|_| BadDescriptor::Segment)?;
        if is_frame && segment != 0 {
            return Err(BadDescriptor::Segment); // only segments and datagrams are cut
        }
        check_zeros(&[zero])?;
        Ok(Self {
            name: BufferName { index, generation },
            offset,
            length,
            link,
            flags,
            segment,
        })
    }
}

/// The far side gives back a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Return {
    /// The buffer, and which loan of it.
    pub name: BufferName,
}

impl Return {
    /// Bytes of the encoded form: four in a cache line.
    pub const ENCODED: usize = 16;

    /// As plain bytes: index, generation, two zeros; 32 bits each, little-endian.
    pub fn encode(&self) -> [u8; Self::ENCODED] {
        put([self.name.index, self.name.generation, 0, 0])
    }

    /// Reads what [`encode`](Self::encode) wrote; as [`Descriptor::decode`].
    ///
    /// # Errors
    /// No such buffer; something where zeros are to be.
    pub fn decode(
        bytes: &[u8; Self::ENCODED],
        layout: SharedLayout,
    ) -> Result<Self, BadDescriptor> {
        let [index, generation, zeros @ ..]: [u32; 4] = words(bytes);
        check_buffer(index, layout)?;
        check_zeros(&zeros)?;
        let name = BufferName { index, generation };
        Ok(Self { name })
    }
}

/// Why a descriptor or a return is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadDescriptor {
    /// No buffer has this index.
    NoSuchBuffer,
    /// The packet is not inside its buffer.
    Outside,
    /// The packet has no bytes.
    Empty,
    /// No link has this number.
    NoSuchLink,
    /// A flag that this code does not know.
    UnknownFlag,
    /// A flag that only the owner may set, from the far side.
    TrustedFlag,
    /// A frame where none may come.
    Frame,
    /// Segments longer than an IP packet, or of a frame.
    Segment,
    /// Something where zeros are to be.
    Reserved,
}

impl fmt::Display for BadDescriptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoSuchBuffer => "no buffer has this index",
            Self::Outside => "the packet is not inside its buffer",
            Self::Empty => "the packet has no bytes",
            Self::NoSuchLink => "no link has this number",
            Self::UnknownFlag => "a flag that is not known",
            Self::TrustedFlag => "a flag that only the owner may set",
            Self::Frame => "a frame where none may come",
            Self::Segment => "segments longer than an IP packet, or of a frame",
            Self::Reserved => "something where zeros are to be",
        })
    }
}

impl std::error::Error for BadDescriptor {}

fn check_buffer(index: u32, layout: SharedLayout) -> Result<(), BadDescriptor> {
    if index < layout.buffers() {
        Ok(())
    } else {
        Err(BadDescriptor::NoSuchBuffer)
    }
}

fn check_zeros(zeros: &[u32]) -> Result<(), BadDescriptor> {
    if zeros.iter().all(|word| *word == 0) {
        Ok(())
    } else {
        Err(BadDescriptor::Reserved)
    }
}

/// Words as plain bytes, little-endian.
fn put<const WORDS: usize, const BYTES: usize>(words: [u32; WORDS]) -> [u8; BYTES] {
    const { assert!(BYTES == WORDS * size_of::<u32>()) };
    let mut bytes = [0; BYTES];
    let (places, _) = bytes.as_chunks_mut();
    for (place, word) in places.iter_mut().zip(words) {
        *place = word.to_le_bytes();
    }
    bytes
}

/// The reverse of [`put`].
fn words<const WORDS: usize, const BYTES: usize>(bytes: &[u8; BYTES]) -> [u32; WORDS] {
    const { assert!(BYTES == WORDS * size_of::<u32>()) };
    let mut words = [0; WORDS];
    let (places, _) = bytes.as_chunks();
    for (word, place) in words.iter_mut().zip(places) {
        *word = u32::from_le_bytes(*place);
    }
    words
}
