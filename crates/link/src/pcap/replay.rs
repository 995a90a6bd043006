//! A capture file (pcap or pcapng) as a link: its packets are received, what is sent vanishes.

use std::{
    collections::VecDeque,
    fmt,
    fs::File,
    io::{self, Read, Seek},
    sync::Arc,
    time::Duration,
};

use netchan_base::packet::Packet;
use pcap_file::{
    DataLink,
    pcap::PcapReader,
    pcapng::{Block, PcapNgReader, blocks::enhanced_packet::EnhancedPacketOption},
};
use percore::{doorbell::Doorbell, own::Own, slab::Slab};
use proto::{time::Instant, wire::ethernet::MacAddr};

use crate::{
    FRAME_OVERHEAD, HEADER_MIN, Link, LinkError, LinkRx, Properties, Queue, RxStatistics,
    Segmentation, lo::Sink, mac,
};

/// The longest frame a file may hold: an IP packet of 65535 bytes.
const FRAME_MAX: usize = 65_535 + FRAME_OVERHEAD;

/// How much of the file is read at a time, bytes; also the longest block of it that can be read.
const CHUNK: usize = 1 << 20;

/// Flags of pcapng (epb_flags): the packet was sent by the machine that captured it.
const OUTBOUND: u32 = 2;

/// When packets are received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pace {
    /// As far apart as they were recorded.
    #[default]
    Recorded,
    /// As fast as they are taken.
    Fast,
}

/// How to play a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// MTU the link claims, bytes; 1500 if `None`.
    pub mtu: Option<usize>,
    /// The link's address; derived from the file's name if `None`, so mostly not the one that the packets are for.
    pub mac: Option<MacAddr>,
    /// When packets are received.
    pub pace: Pace,
}

enum Source {
    Pcap(PcapReader<Own<File>>),
    PcapNg(PcapNgReader<Own<File>>),
}

/// What one record of a file is to us.
enum Record {
    /// A packet, recorded then; its bytes are in the scratch buffer.
    Packet(Duration),
    /// A packet that is cut or too long.
    Unusable,
    /// Nothing to receive.
    Other,
}

/// A capture file being played.
pub struct Replay {
    properties: Properties,
    source: Source,
    pace: Pace,
    /// The packet to be received next: when it was recorded; its bytes are in `bytes`.
    next: Option<Duration>,
    bytes: Vec<u8>,
    /// The first packet: when it was received, when it was recorded.
    first: Option<(Instant, Duration)>,
    /// Packets read so far.
    number: u64,
    ended: bool,
    broken: Option<String>,
    counts: RxStatistics,
}

impl fmt::Debug for Replay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Replay({}, packet {})",
            self.properties.name, self.number
        )
    }
}

impl Replay {
    /// Opens `file`. Packets that a pcapng file marks as sent are left out: they are what this end said.
    ///
    /// # Errors
    /// When it cannot be read, is neither pcap nor pcapng, or is of something else than Ethernet; the error names it.
    pub fn open(file: &str, options: &Options) -> io::Result<Self> {
        let named =
            |kind, what: &dyn fmt::Display| io::Error::new(kind, format!("pcap:{file}: {what}"));
        let invalid = |what: &dyn fmt::Display| named(io::ErrorKind::InvalidData, what);
        let mut source = Own::open(|| File::open(file)).map_err(|e| named(e.kind(), &e))?;
        let mut magic = [0; 4];
        source
            .read_exact(&mut magic)
            .and_then(|()| source.rewind())
            .map_err(|e| named(e.kind(), &e))?;
        let source = if magic == [0x0a, 0x0d, 0x0d, 0x0a] {
            Source::PcapNg(PcapNgReader::with_capacity(source, CHUNK).map_err(|e| invalid(&e))?)
        } else {
            let reader = PcapReader::with_capacity(source, CHUNK).map_err(|e| invalid(&e))?;
            if reader.header().datalink != DataLink::ETHERNET {
                return Err(invalid(&not_ethernet(reader.header().datalink)));
            }
            Source::Pcap(reader)
        };
        let properties = Properties {
            name: format!("pcap:{file}"),
            kind: "pcap",
            mac: options
                .mac
                .unwrap_or_else(|| mac::derive(&[b"pcap", file.as_bytes()])),
            mtu: options.mtu.unwrap_or(1500),
            frame_max: FRAME_MAX,
            segmentation: Segmentation::None,
        };
        Ok(Self {
            properties,
            source,
            pace: options.pace,
            next: None,
            bytes: Vec::with_capacity(FRAME_MAX),
            first: None,
            number: 0,
            ended: false,
            broken: None,
            counts: RxStatistics::default(),
        })
    }

    /// Has the next packet at hand, unless the file has ended.
    fn load(&mut self) -> Result<(), LinkError> {
        if let Some(what) = &self.broken {
            return Err(LinkError::Gone(what.clone()));
        }
        while self.next.is_none() && !self.ended {
            match self.source.read(&mut self.bytes) {
                None => self.ended = true,
                Some(Ok(Record::Other)) => {}
                Some(Ok(record)) => {
                    self.number += 1;
                    match record {
                        Record::Packet(stamp) => self.next = Some(stamp),
                        _ => self.counts.length += 1,
                    }
                }
                Some(Err(what)) => {
                    let what = format!(
                        "{}: after packet {}: {what}",
                        self.properties.name, self.number
                    );
                    return Err(LinkError::Gone(self.broken.insert(what).clone()));
                }
            }
        }
        Ok(())
    }

    /// When the packet recorded at `stamp` is received.
    fn due(&self, stamp: Duration) -> Instant {
        match (self.pace, self.first) {
            (Pace::Recorded, Some((start, first))) => start + stamp.saturating_sub(first),
            _ => Instant::ZERO,
        }
    }
}

fn not_ethernet(kind: DataLink) -> String {
    format!("a recording of {kind:?}, not of Ethernet")
}

/// Puts a packet's bytes into the scratch buffer, if it is one that could be received.
fn keep(into: &mut Vec<u8>, stamp: Duration, data: &[u8], original_len: u32) -> Record {
    let whole = usize::try_from(original_len).is_ok_and(|len| len == data.len());
    if !whole || !(HEADER_MIN..=FRAME_MAX).contains(&data.len()) {
        return Record::Unusable;
    }
    into.clear();
    into.extend_from_slice(data);
    Record::Packet(stamp)
}

impl Source {
    /// The next record; `None` at the end of the file.
    fn read(&mut self, into: &mut Vec<u8>) -> Option<Result<Record, String>> {
        match self {
            Self::Pcap(reader) => {
                let packet = reader.next_packet()?;
                Some(
                    packet
                        .map(|p| keep(into, p.timestamp(), p.data(), p.orig_len()))
                        .map_err(|e| e.to_string()),
                )
            }
            Self::PcapNg(reader) => {
                let (block, state) = match reader.next_block()? {
                    Ok(read) => read,
                    Err(e) => return Some(Err(e.to_string())),
                };
                let (interface, record) = match &block {
                    Block::EnhancedPacket(p) if p.options.iter().any(is_outbound) => {
                        return Some(Ok(Record::Other));
                    }
                    Block::EnhancedPacket(p) => (
                        p.interface_id,
                        keep(into, p.timestamp, &p.data, p.original_len),
                    ),
                    Block::SimplePacket(p) => {
                        (0, keep(into, Duration::ZERO, &p.data, p.original_len))
                    }
                    _ => return Some(Ok(Record::Other)),
                };
                let interface = usize::try_from(interface)
                    .ok()
                    .and_then(|i| state.interfaces().get(i));
                match interface.map(|interface| interface.linktype) {
                    Some(DataLink::ETHERNET) => Some(Ok(record)),
                    Some(kind) => Some(Err(not_ethernet(kind))),
                    None => Some(Err("a packet of an interface that is not described".into())),
                }
            }
        }
    }
}

fn is_outbound(option: &EnhancedPacketOption<'_>) -> bool {
    matches!(option, EnhancedPacketOption::Flags(flags) if flags & 3 == OUTBOUND)
}

impl Link for Replay {
    fn properties(&self) -> &Properties {
        &self.properties
    }

    fn start(self: Box<Self>, _bells: &[Arc<Doorbell>]) -> io::Result<Vec<Queue>> {
        Ok(vec![Queue {
            rx: self,
            tx: Box::new(Sink::default()),
        }])
    }
}

impl LinkRx for Replay {
    fn receive(
        &mut self,
        now: Instant,
        slab: &mut Slab,
        burst: &mut VecDeque<Packet>,
        max: usize,
    ) -> Result<usize, LinkError> {
        let mut n = 0;
        while n < max {
            match self.load() {
                Err(e) if n == 0 => return Err(e),
                // What came before the broken place is received first.
                Err(_) => break,
                Ok(()) => {}
            }
            let Some(stamp) = self.next else { break };
            self.first.get_or_insert((now, stamp));
            if self.due(stamp) > now {
                break;
            }
            self.next = None;
            let Some(buffer) = slab.alloc() else {
                self.counts.no_buffer += 1;
                continue;
            };
            let mut packet = Packet::new(buffer, 0);
            let Some(room) = packet.room_mut().get_mut(..self.bytes.len()) else {
                self.counts.length += 1;
                slab.free(packet.into_buffer());
                continue;
            };
            room.copy_from_slice(&self.bytes);
            packet.set_len(self.bytes.len());
            self.counts.packets += 1;
            self.counts.bytes += self.bytes.len() as u64;
            burst.push_back(packet);
            n += 1;
        }
        Ok(n)
    }

    /// When the next packet is due; at once before the first.
    fn next_event(&mut self) -> Instant {
        match self.next {
            Some(stamp) => self.due(stamp),
            None if self.ended || self.broken.is_some() => Instant::FAR,
            None => Instant::ZERO,
        }
    }

    fn statistics(&self) -> RxStatistics {
        self.counts
    }
}
