//! Frames of every layer, whole and cut, and what is found in them.

use etherparse::{PacketBuilder, TcpOptionElement as Element, VlanId};

use super::*;

const OPTIONS: [Element; 3] = [
    Element::MaximumSegmentSize(1460),
    Element::WindowScale(7),
    Element::SelectiveAcknowledgementPermitted,
];

/// An Ethernet frame with a SYN from 10.0.0.1:4242 to 10.0.0.2:80 and `text` bytes.
fn frame(text: usize) -> Vec<u8> {
    let builder = PacketBuilder::ethernet2([1; 6], [2; 6]).ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64);
    let builder = builder.tcp(4242, 80, 1234, 5000).syn();
    let mut frame = Vec::new();
    let builder = builder.options(&OPTIONS).expect("room for them");
    builder.write(&mut frame, &vec![7; text]).expect("written");
    frame
}

fn found(layer: Layer, bytes: &[u8]) -> Found {
    let length = u32::try_from(bytes.len()).expect("short");
    find(layer, Duration::ZERO, length, bytes)
}

fn is_it(found: &Found, text: u32) {
    let Found::Segment(segment) = found else {
        panic!("{found:?}");
    };
    let header = segment.header;
    assert_eq!((header.seq, header.window, header.text), (1234, 5000, text));
    assert!(header.flags.has(Flags::SYN) && !header.flags.has(Flags::ACK));
    assert_eq!(header.span(), i64::from(text) + 1);
    assert_eq!((segment.from.port(), segment.to.port()), (4242, 80));
}

#[test]
fn every_layer_is_read() {
    let whole = frame(100);
    let packet = &whole[14..];
    is_it(&found(Layer::Ethernet, &whole), 100);
    is_it(&found(Layer::Ip, packet), 100);
    is_it(
        &found(Layer::Loopback, &[&[2, 0, 0, 0], packet].concat()),
        100,
    );
    let mut cooked = vec![0; SLL];
    cooked[14..].copy_from_slice(&[8, 0]);
    is_it(&found(Layer::Cooked, &[&cooked, packet].concat()), 100);
    let mut cooked = vec![0; SLL2];
    cooked[..2].copy_from_slice(&[8, 0]);
    is_it(&found(Layer::Cooked2, &[&cooked, packet].concat()), 100);
    // Ethernet pads what is short; the IP header tells.
    let mut padded = frame(0);
    padded.resize(90, 0);
    is_it(&found(Layer::Ethernet, &padded), 0);
}

#[test]
fn vlan_and_version_6_are_read() {
    let mut tagged = Vec::new();
    PacketBuilder::ethernet2([1; 6], [2; 6])
        .single_vlan(VlanId::try_new(5).expect("a number"))
        .ipv6([1; 16], [2; 16], 64)
        .tcp(4242, 80, 1234, 5000)
        .syn()
        .write(&mut tagged, &[7; 10])
        .expect("written");
    is_it(&found(Layer::Ethernet, &tagged), 10);
}

#[test]
fn options_are_read() {
    let Found::Segment(segment) = found(Layer::Ethernet, &frame(0)) else {
        panic!("no segment");
    };
    assert_eq!(
        (segment.header.scale, segment.header.is_cut),
        (Some(7), false)
    );
    let sack = Element::SelectiveAcknowledgement((1, 2), [Some((3, 4)), Some((5, 6)), None]);
    let mut bytes = Vec::new();
    PacketBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64)
        .tcp(1, 2, 3, 4)
        .options(&[Element::WindowScale(200), sack])
        .expect("room for them")
        .write(&mut bytes, &[])
        .expect("written");
    let Found::Segment(segment) = found(Layer::Ip, &bytes) else {
        panic!("no segment");
    };
    assert_eq!(segment.header.sacks(), [(1, 2), (3, 4), (5, 6)]);
    assert_eq!(segment.header.scale, Some(SCALE_MAX), "RFC 7323 2.3");
}

#[test]
fn cut_frames_count_by_their_ip_length() {
    let whole = frame(1000);
    let length = u32::try_from(whole.len()).expect("short");
    let cut = |at: usize| find(Layer::Ethernet, Duration::ZERO, length, &whole[..at]);
    for at in 54..whole.len() {
        is_it(&cut(at), 1000);
    }
    // Behind the scale option, and before it.
    let scale = |at| match cut(at) {
        Found::Segment(segment) => (segment.header.scale, segment.header.is_cut),
        other => panic!("{other:?}"),
    };
    assert_eq!(scale(66), (Some(7), false));
    assert_eq!((scale(62), scale(58)), ((Some(7), true), (None, true)));
    assert_eq!(cut(53), Found::Unreadable, "less than a header");
    assert_eq!(cut(20), Found::Other, "less than an IP header");
    assert_eq!(cut(0), Found::Other);
}

#[test]
fn packets_that_are_longer_than_ip_can_say_count_by_their_frame() {
    let mut bytes = frame(1000);
    bytes[16..18].fill(0); // total length: of a link with offload
    let frame = find(Layer::Ethernet, Duration::ZERO, 150_000, &bytes[..80]);
    is_it(&frame, 150_000 - 14 - 20 - 32);
}

#[test]
fn hostile_lengths_are_bounded() {
    let mut bytes = frame(10);
    bytes[16..18].copy_from_slice(&[0, 41]); // as if half of the options were text
    is_it(&found(Layer::Ethernet, &bytes), 0);
    bytes[16..18].copy_from_slice(&[0, 21]); // less than both headers
    assert_eq!(found(Layer::Ethernet, &bytes), Found::Unreadable);
    bytes[16..18].copy_from_slice(&[255, 255]);
    is_it(&found(Layer::Ethernet, &bytes), 65_535 - 52);
    bytes[46] = 0x10; // a TCP header of 16 bytes
    assert_eq!(found(Layer::Ethernet, &bytes), Found::Unreadable);
    // Every byte of a frame once as large as it gets: whatever it is then, it is no panic.
    for layer in [
        Layer::Ethernet,
        Layer::Ip,
        Layer::Cooked,
        Layer::Cooked2,
        Layer::Loopback,
    ] {
        for at in 0..bytes.len() {
            let mut wrong = frame(10);
            wrong[at] = 255;
            for length in [0, 60, u32::MAX] {
                find(layer, Duration::MAX, length, &wrong);
                find(layer, Duration::MAX, length, &wrong[..at]);
            }
        }
    }
}

#[test]
fn fragments_and_other_packets_are_told_apart() {
    let mut bytes = frame(10);
    bytes[20] |= 0x20; // more fragments
    assert_eq!(found(Layer::Ethernet, &bytes), Found::Fragment);
    let mut bytes = frame(10);
    bytes[21] = 5; // a later fragment
    assert_eq!(found(Layer::Ethernet, &bytes), Found::Fragment);
    let mut bytes = frame(10);
    bytes[23] = 17;
    assert_eq!(found(Layer::Ethernet, &bytes), Found::Other);
    bytes[12..14].copy_from_slice(&[8, 6]);
    assert_eq!(found(Layer::Ethernet, &bytes), Found::Other);
}
