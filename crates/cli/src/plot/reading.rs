//! Capture files as packets: pcap and pcapng, each with its link type, as far as they go.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, Read},
    path::Path,
    time::Duration,
};

use pcap_file::{
    DataLink,
    pcap::{PcapReader, PcapTsResolution},
    pcapng::{Block, PcapNgReader},
};

use super::segment::Layer;
use crate::failure::{Failure, at, failed};

/// How much of the file is read at a time, bytes; also the longest record of it that can be read.
const CHUNK: usize = 4 << 20;
/// Interfaces that a section of a pcapng file may describe.
const INTERFACES_MAX: usize = 65_536;
/// What pcapng files, and files that gzip has compressed, begin with.
const PCAPNG: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// What a capture held that is not drawn.
#[derive(Debug, Default)]
pub struct Passed {
    /// Packets in all.
    pub packets: u64,
    /// Why nothing was read behind the last of them.
    pub broken: Option<String>,
    /// Packets of links that are not known.
    pub unknown: BTreeMap<String, u64>,
}

/// A packet of a file.
#[derive(Debug)]
pub struct Packet<'a> {
    pub layer: Layer,
    /// Since 1970.
    pub time: Duration,
    /// Its length on the link.
    pub length: u32,
    /// Its first bytes.
    pub bytes: &'a [u8],
}

/// Gives each packet of the file at `path` to `take`.
///
/// # Errors
/// The file's, with its name: it cannot be read, it is no capture, no packet of it is of a link that is known.
pub fn read(path: &Path, take: &mut dyn FnMut(&Packet<'_>)) -> Result<Passed, Failure> {
    let file = File::open(path).map_err(at(path.display()))?;
    if file.metadata().is_ok_and(|found| found.is_dir()) {
        return Err(failed(format!("{}: is a directory", path.display())));
    }
    read_from(file, take).map_err(|why| failed(format!("{}: {why}", path.display())))
}

/// The same of anything that can be read.
fn read_from(mut source: impl Read, take: &mut dyn FnMut(&Packet<'_>)) -> Result<Passed, String> {
    let mut magic = [0; 4];
    source.read_exact(&mut magic).map_err(|e| match e.kind() {
        io::ErrorKind::UnexpectedEof => "is no capture: it is too short".to_owned(),
        _ => e.to_string(),
    })?;
    if magic.starts_with(&GZIP) {
        return Err("is compressed: unpack it first (gunzip)".to_owned());
    }
    let whole = magic.chain(source);
    let mut passed = Passed::default();
    if magic == PCAPNG {
        let reader = PcapNgReader::with_capacity(whole, CHUNK);
        pcapng(
            reader.map_err(|e| format!("is no capture: {e}"))?,
            &mut passed,
            take,
        );
    } else {
        let reader = PcapReader::with_capacity(whole, CHUNK);
        let reader = reader.map_err(|_| "is no capture: neither pcap nor pcapng".to_owned())?;
        pcap(reader, &mut passed, take);
    }
    let unknown: u64 = passed.unknown.values().sum();
    if unknown > 0 && unknown == passed.packets {
        let kinds: Vec<&str> = passed.unknown.keys().map(String::as_str).collect();
        return Err(format!(
            "is a capture of {}; known are Ethernet, raw IP, Linux cooked (SLL, SLL2) and BSD loopback",
            kinds.join(", ")
        ));
    }
    Ok(passed)
}

const fn layer(kind: DataLink) -> Option<Layer> {
    Some(match kind {
        DataLink::ETHERNET => Layer::Ethernet,
        DataLink::RAW | DataLink::IPV4 | DataLink::IPV6 => Layer::Ip,
        DataLink::LINUX_SLL => Layer::Cooked,
        DataLink::LINUX_SLL2 => Layer::Cooked2,
        DataLink::NULL | DataLink::LOOP => Layer::Loopback,
        _ => return None,
    })
}

impl Passed {
    /// One more packet, of a link of this kind; `None`: it is not known.
    fn layer(&mut self, kind: DataLink) -> Option<Layer> {
        self.packets += 1;
        let layer = layer(kind);
        if layer.is_none() {
            *self.unknown.entry(format!("{kind:?}")).or_default() += 1;
        }
        layer
    }

    fn broken(&mut self, why: &dyn std::fmt::Display) {
        self.broken = Some(format!(
            "the file is cut off or damaged after packet {} ({why}): what came before is used",
            self.packets
        ));
    }
}

fn pcap(mut reader: PcapReader<impl Read>, passed: &mut Passed, take: &mut dyn FnMut(&Packet<'_>)) {
    let header = reader.header();
    // Not checked against the header, whose longest packet some writers do not keep to.
    while let Some(packet) = reader.next_raw_packet() {
        let packet = match packet {
            Ok(packet) => packet,
            Err(e) => return passed.broken(&e),
        };
        let Some(layer) = passed.layer(header.datalink) else {
            continue;
        };
        let part = match header.ts_resolution {
            PcapTsResolution::MicroSecond => Duration::from_micros(packet.ts_frac.into()),
            PcapTsResolution::NanoSecond => Duration::from_nanos(packet.ts_frac.into()),
        };
        take(&Packet {
            layer,
            time: Duration::from_secs(packet.ts_sec.into()) + part,
            length: packet.orig_len,
            bytes: &packet.data,
        });
    }
}

fn pcapng(
    mut reader: PcapNgReader<impl Read>,
    passed: &mut Passed,
    take: &mut dyn FnMut(&Packet<'_>),
) {
    let mut last = Duration::ZERO;
    while let Some(block) = reader.next_block() {
        let (block, state) = match block {
            Ok(read) => read,
            Err(e) => return passed.broken(&e),
        };
        let interfaces = state.interfaces();
        if interfaces.len() > INTERFACES_MAX {
            return passed.broken(&"more interfaces than any machine has");
        }
        let (interface, time, length, bytes) = match &block {
            Block::EnhancedPacket(packet) => {
                last = packet.timestamp;
                let length = packet.original_len;
                (packet.interface_id, last, length, &packet.data)
            }
            // It has no time: that of the packet before.
            Block::SimplePacket(packet) => (0, last, packet.original_len, &packet.data),
            _ => continue,
        };
        let described = usize::try_from(interface)
            .ok()
            .and_then(|i| interfaces.get(i));
        let Some(described) = described else {
            return passed.broken(&"a packet of an interface that is not described");
        };
        if let Some(layer) = passed.layer(described.linktype) {
            take(&Packet {
                layer,
                time,
                length,
                bytes,
            });
        }
    }
}

#[cfg(test)]
#[path = "reading_tests.rs"]
mod tests;
