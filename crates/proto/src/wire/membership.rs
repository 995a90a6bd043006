//! What IGMP and MLD have in common on the wire: queries, group records, and the reports that carry them.

use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::time::Duration;

use super::Error;

/// The generation of a message: IGMPv1, v2, v3. MLDv1 is IGMPv2's equal, MLDv2 IGMPv3's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Version {
    /// IGMPv1 (RFC 1112).
    First,
    /// IGMPv2 (RFC 2236), MLDv1 (RFC 2710).
    Second,
    /// IGMPv3 (RFC 9776), MLDv2 (RFC 9777).
    Third,
}

/// A router asks which hosts listen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Query<'a> {
    /// Of the message.
    pub version: Version,
    /// The group asked for; `None`: all.
    pub group: Option<IpAddr>,
    /// Answers come within this time.
    pub max_response: Duration,
    /// The Querier's Robustness Variable; 0: not said.
    pub robustness: u8,
    /// The Querier's Query Interval; zero: not said.
    pub interval: Duration,
    /// The sources asked for; none: the group as a whole.
    pub sources: Sources<'a>,
}

/// Bytes of what a query of the third generation has more, before its sources.
pub(super) const QUERY_TAIL: usize = 4;

impl<'a> Query<'a> {
    /// Takes what a query of the third generation says behind the part that all have: the same for IGMP (RFC 9776 §4.1.6 to 4.1.10) and MLD
    /// (RFC 9777 §5.1.8 to 5.1.12).
    ///
    /// # Errors
    /// `Length` if the sources are not there; `Value` for sources of no group.
    pub(super) fn parse_tail(mut self, tail: &'a [u8]) -> Result<Self, Error> {
        let (head, rest) = tail
            .split_first_chunk::<QUERY_TAIL>()
            .ok_or(Error::Length)?;
        let [flags, interval, high, low] = *head;
        self.robustness = flags & 7;
        self.interval = Duration::from_secs(decode(interval.into(), 4).into());
        let count = usize::from(u16::from_be_bytes([high, low]));
        let len = count * self.sources.address_len();
        self.sources.bytes = rest.get(..len).ok_or(Error::Length)?;
        if self.group.is_none() && count > 0 {
            return Err(Error::Value);
        }
        Ok(self)
    }
}

/// A list of source addresses as it came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sources<'a> {
    bytes: &'a [u8],
    v6: bool,
}

impl<'a> Sources<'a> {
    /// IPv4 addresses; `bytes` is a multiple of 4 long.
    pub const fn v4(bytes: &'a [u8]) -> Self {
        Self { bytes, v6: false }
    }

    /// IPv6 addresses; `bytes` is a multiple of 16 long.
    pub const fn v6(bytes: &'a [u8]) -> Self {
        Self { bytes, v6: true }
    }

    /// Whether there is none.
    pub const fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    const fn address_len(&self) -> usize {
        if self.v6 { 16 } else { 4 }
    }

    /// The addresses.
    pub fn iter(&self) -> impl Iterator<Item = IpAddr> + 'a {
        self.bytes
            .chunks_exact(self.address_len())
            .filter_map(|octets| {
                let v4 = octets.first_chunk::<4>().filter(|_| octets.len() == 4);
                let v6 = octets.first_chunk::<16>();
                v4.map(|octets| IpAddr::V4(Ipv4Addr::from(*octets)))
                    .or(v6.map(|octets| IpAddr::V6(Ipv6Addr::from_octets(*octets))))
            })
    }
}

/// What a message says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message<'a> {
    /// A router asks.
    Query(Query<'a>),
    /// Another host is a member: an IGMPv1 or v2 report, an MLDv1 report.
    Report(IpAddr),
    /// What routers alone care for: reports of the third generation, leaves.
    ForRouters,
}

/// Types of group records (RFC 9776 §4.2.12, RFC 9777 §5.2.12).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum Kind {
    ModeIsInclude = 1,
    ModeIsExclude = 2,
    ChangeToInclude = 3,
    ChangeToExclude = 4,
    AllowNewSources = 5,
    BlockOldSources = 6,
}

impl Kind {
    /// Whether its list names the sources *not* heard: cut short it is still true for a router, which sends more than is heard.
    const fn excludes(self) -> bool {
        matches!(self, Self::ModeIsExclude | Self::ChangeToExclude)
    }
}

/// What a report says of one group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Its type.
    pub kind: Kind,
    /// The group.
    pub group: IpAddr,
    /// Sources; what they are depends on the type.
    pub sources: Vec<IpAddr>,
}

/// Bytes of a report before its records, of a record before its addresses and without its group's.
const RECORD_HEADER: usize = 4;
/// Bytes of an IGMPv3 or MLDv2 report before its records.
const REPORT_HEADER: usize = 8;

/// Records on their way into reports: each report takes as many as fit.
#[derive(Debug)]
pub struct Pending {
    records: Vec<Record>,
    /// The record that comes next, and how many of its sources are gone already.
    at: (usize, usize),
}

impl Pending {
    /// All of `records`.
    pub const fn new(records: Vec<Record>) -> Self {
        Self {
            records,
            at: (0, 0),
        }
    }

    /// Whether all are gone.
    pub const fn is_done(&self) -> bool {
        self.at.0 >= self.records.len()
    }

    /// Writes a report of this type, without its checksum, of as many records as fit into `room`; its length, 0 if none fits.
    pub(super) fn emit(&mut self, kind: u8, room: &mut [u8]) -> usize {
        let Some((head, records)) = room.split_first_chunk_mut::<REPORT_HEADER>() else {
            return 0;
        };
        let (len, count) = self.fill(records);
        if count == 0 {
            return 0;
        }
        let [high, low] = count.to_be_bytes();
        *head = [kind, 0, 0, 0, 0, 0, high, low];
        REPORT_HEADER + len
    }

    /// Writes the records that fit into `room`; how many bytes and records.
    /// At least one record goes, or all are given up: `room` cannot hold any.
    fn fill(&mut self, room: &mut [u8]) -> (usize, u16) {
        let (mut len, mut count) = (0, 0_u16);
        while let Some(record) = self.records.get(self.at.0) {
            let rest = record.sources.get(self.at.1..).unwrap_or_default();
            let size = if record.group.is_ipv4() { 4 } else { 16 };
            let free = room.len().saturating_sub(len);
            let Some(addresses) = free.checked_sub(RECORD_HEADER + size) else {
                break;
            };
            let fitting = rest.len().min(addresses / size);
            let whole = fitting == rest.len();
            // RFC 9776 §4.2.16: a list that is too long is cut (exclude) or split (all others).
            let begins_anew = len > 0 && !whole && record.kind.excludes();
            if begins_anew || (fitting == 0 && !whole) {
                break;
            }
            let place = room.get_mut(len..).unwrap_or_default();
            len += put(record, rest.get(..fitting).unwrap_or_default(), place);
            count += 1;
            if whole || record.kind.excludes() {
                self.at = (self.at.0 + 1, 0);
            } else {
                self.at.1 += fitting;
            }
        }
        if count == 0 {
            self.at = (self.records.len(), 0);
        }
        (len, count)
    }
}

/// Writes one record with these sources, for which there is room.
fn put(record: &Record, sources: &[IpAddr], room: &mut [u8]) -> usize {
    let count = u16::try_from(sources.len()).unwrap_or(u16::MAX);
    let [high, low] = count.to_be_bytes();
    let mut len = 0;
    let mut add = |bytes: &[u8]| {
        if let Some(place) = room.get_mut(len..len + bytes.len()) {
            place.copy_from_slice(bytes);
            len += bytes.len();
        }
    };
    add(&[record.kind as u8, 0, high, low]);
    for address in core::iter::once(&record.group).chain(sources) {
        match address {
            IpAddr::V4(ip) => add(&ip.octets()),
            IpAddr::V6(ip) => add(&ip.octets()),
        }
    }
    len
}

/// A floating-point code of IGMPv3 (8 bits: 3 of exponent, 4 of mantissa; RFC 9776 §4.1.1) or MLDv2 (16 bits: 3 and 12; RFC 9777 §5.1.3):
/// below the first bit it is the number itself.
pub(super) const fn decode(code: u32, mantissa_bits: u32) -> u32 {
    let first = 1 << (mantissa_bits + 3);
    if code < first {
        return code;
    }
    let mantissa = (code & ((1 << mantissa_bits) - 1)) | (1 << mantissa_bits);
    let exponent = (code >> mantissa_bits) & 7;
    mantissa << (exponent + 3)
}
