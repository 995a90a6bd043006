//! The answer to an echo request: the data whole, from the address asked (RFC 1122 §3.2.2.6, RFC
//! 4443 §4.2).

use core::net::IpAddr;

use super::is_one_host;
use crate::ip::address::Addresses;
use crate::wire::{Protocol, icmpv4, icmpv6, ipv4, ipv6};

/// Why an echo request is not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Silent {
    /// Not an echo request.
    NotAnEcho,
    /// Sent to a broadcast or IPv4 multicast address (negative 36), or to no address of ours.
    NotOurs,
    /// Its source is not one host.
    SourceNotUnique,
    /// The answer does not fit the buffer, or we have no address to answer a group's request from.
    NoRoom,
}

/// Writes the answer to an IPv4 echo request, an IP packet, to the front of `buf`; returns its
/// length. `bytes` is the ICMP message, which [`super::receive_v4`] has found right. An answer
/// longer than `mtu` octets may be fragmented.
///
/// # Errors
/// See [`Silent`].
pub fn reply_v4(
    header: &ipv4::Header,
    bytes: &[u8],
    ours: &Addresses,
    mtu: u16,
    buf: &mut [u8],
) -> Result<usize, Silent> {
    let Ok((icmpv4::Message::EchoRequest { ident, seq }, data)) = icmpv4::Message::parse(bytes)
    else {
        return Err(Silent::NotAnEcho);
    };
    if !ours.is_local_v4(header.destination) {
        return Err(Silent::NotOurs);
    }
    if !is_one_host(IpAddr::V4(header.source), ours) && !header.source.is_loopback() {
        return Err(Silent::SourceNotUnique);
    }
    let mut answer = ipv4::Header::new(Protocol::ICMP, header.destination, header.source);
    answer.tos = header.tos; // RFC 1122 §3.2.2.6
    answer.dont_fragment = ipv4::HEADER_LEN + bytes.len() <= usize::from(mtu);
    let (head, body) = buf
        .split_at_mut_checked(ipv4::HEADER_LEN)
        .ok_or(Silent::NoRoom)?;
    let len = icmpv4::Message::EchoReply { ident, seq }.emit(data, body);
    finish(len, answer.emit(len, head))
}

/// [`reply_v4`] for IPv6. A request to a group is answered from our own address.
///
/// # Errors
/// See [`Silent`].
pub fn reply_v6(
    header: &ipv6::Header,
    bytes: &[u8],
    ours: &Addresses,
    buf: &mut [u8],
) -> Result<usize, Silent> {
    let (source, destination) = (header.source, header.destination);
    let Ok((icmpv6::Message::EchoRequest { ident, seq }, data)) =
        icmpv6::Message::parse(source, destination, bytes)
    else {
        return Err(Silent::NotAnEcho);
    };
    if !is_one_host(IpAddr::V6(source), ours) && !source.is_loopback() {
        return Err(Silent::SourceNotUnique);
    }
    let from = if ours.is_local_v6(destination) {
        destination
    } else if ours.is_member(IpAddr::V6(destination)) {
        match ours.source_for(IpAddr::V6(source)) {
            Some(IpAddr::V6(from)) => from,
            _ => return Err(Silent::NoRoom),
        }
    } else {
        return Err(Silent::NotOurs);
    };
    let mut answer = ipv6::Header::new(Protocol::ICMPV6, from, source);
    answer.traffic_class = header.traffic_class;
    let (head, body) = buf
        .split_at_mut_checked(ipv6::HEADER_LEN)
        .ok_or(Silent::NoRoom)?;
    let len = icmpv6::Message::EchoReply { ident, seq }.emit(from, source, data, body);
    finish(len, answer.emit(len, head))
}

const fn finish(body: usize, head: usize) -> Result<usize, Silent> {
    if head == 0 || body == 0 {
        Err(Silent::NoRoom)
    } else {
        Ok(head + body)
    }
}
