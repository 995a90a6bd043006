//! The IP header in front of TCP's segments.

use percore::slab::Slab;
use proto::wire::tcp::Header;

use super::*;

/// RFC 3168 §5: two bits are TCP's, of the type of service and of the traffic class alike; RFC 2474 §3: the other six are the user's. The
/// header's checksum follows.
#[test]
fn the_ip_header_says_what_tcp_says_of_congestion() {
    let mut slab = Slab::new(1, 2048).unwrap();
    for (local, remote) in [("10.0.0.1", "10.0.0.2"), ("fd00::1", "fd00::2")] {
        for tos in [0, 0x28, 0xb9, 0xff] {
            for ecn in [Ecn::NotEct, Ecn::Ect1, Ecn::Ect0, Ecn::Ce] {
                let fields = IpFields {
                    ttl: 9,
                    tos,
                    hops: 9,
                    class: tos,
                    may_be_cut: false,
                };
                let key = FlowKey::between(local, remote);
                let (local, remote) = (key.local, key.remote);
                let template = Template::new(&key, fields);
                let fill = |text: &mut [u8]| {
                    text.fill(1);
                    Some(checksum::sum(text))
                };
                let header = Header::default();
                let buffer = slab.alloc().unwrap();
                let packet = template.packet(buffer, &header, 3, ecn, fill).unwrap();
                let bytes = packet.bytes();
                let seen = if local.is_ipv4() {
                    ipv4::Header::parse(bytes).unwrap().tos
                } else {
                    ipv6::Header::parse(bytes).unwrap().traffic_class
                };
                assert_eq!(seen, tos & !3 | ecn as u8);
                assert_eq!(Ecn::of_packet(bytes), ecn);
                let way =
                    match local {
                        IpAddr::V4(_) => ipv4::Header::parse(bytes)
                            .map(|h| (h.source.into(), h.destination.into())),
                        IpAddr::V6(_) => ipv6::Header::parse(bytes)
                            .map(|h| (h.source.into(), h.destination.into())),
                    };
                assert_eq!(way, Ok((local, remote)));
                assert_eq!(template.tuple().tcp_key(), key);
                let ip = ip_header_len(local);
                assert!(ip == 40 || checksum::is_valid(checksum::sum(&bytes[..ip])));
                assert!(template.is_valid(&bytes[ip..]));
            }
        }
    }
    assert_eq!(Ecn::of_packet(&[0x45]), Ecn::NotEct);
}

/// Long text that the kernel is to copy begins at a cache line where the buffer has room, and all headers have their place in front.
#[test]
fn long_text_begins_at_a_line() {
    let lengths = [(LONG - 1, false), (LONG, true), (65_535 - 100, true)];
    for (local, remote) in [("10.0.0.1", "10.0.0.2"), ("fd00::1", "fd00::2")] {
        let key = FlowKey::between(local, remote);
        let template = Template::new(&key, IpFields::default());
        let header = Header::default();
        let headers = template.ip_len() + header.len();
        let long = buffer_for(headers + 65_535 - 100).next_multiple_of(64);
        for (len, is_long) in lengths {
            for (size, fits) in [(long, true), (HEADROOM + headers + len, false)] {
                let mut slab = Slab::new(1, size).unwrap();
                let buffer = slab.alloc().unwrap();
                let fits = fits || TEXT_AT + len <= buffer.len(); // sizes are whole lines
                let fill = |text: &mut [u8]| {
                    text.fill(7);
                    Some(())
                };
                let packet = template.unfinished(buffer, &header, (len, 1000), Ecn::NotEct, fill);
                let mut packet = packet.unwrap();
                let text = &packet.bytes()[headers..];
                assert!(text.len() == len && text.iter().all(|&byte| byte == 7));
                let is_at_line = text.as_ptr().addr().is_multiple_of(64);
                assert_eq!(is_at_line, is_long && fits, "{len} bytes in {size}");
                assert!(packet.push(HEADROOM).is_some());
            }
        }
    }
}
