//! Files of every kind, whole and damaged.

use pcap_file::pcapng::{
    PcapNgWriter,
    blocks::{
        enhanced_packet::EnhancedPacketBlock, interface_description::InterfaceDescriptionBlock,
        simple_packet::SimplePacketBlock,
    },
};

use super::*;

const TIME: Duration = Duration::new(1_700_000_000, 123_456_789);

/// A pcap file with this magic, of this link, with `count` packets of 4 bytes that had 1,000.
fn pcap_bytes(magic: u32, link: u32, count: u32) -> Vec<u8> {
    let mut file = Vec::new();
    // A snap length of 2, to which the writer did not keep.
    for word in [magic, 0x0004_0002, 0, 0, 2, link] {
        file.extend(word.to_le_bytes());
    }
    let part = match magic {
        0xa1b2_3c4d => TIME.subsec_nanos(),
        _ => TIME.subsec_micros(),
    };
    for i in 0..count {
        for word in [1_700_000_000, part, 4, 1000, i] {
            file.extend(word.to_le_bytes());
        }
    }
    file
}

fn ng_bytes(links: &[DataLink]) -> Vec<u8> {
    let mut writer = PcapNgWriter::new(Vec::new()).expect("begun");
    for &linktype in links {
        let interface = InterfaceDescriptionBlock {
            linktype,
            snaplen: 0,
            options: vec![],
        };
        writer.write_pcapng_block(interface).expect("written");
    }
    for i in (0..).take(links.len()) {
        let packet = EnhancedPacketBlock {
            interface_id: i,
            timestamp: TIME,
            original_len: 1000,
            data: vec![1, 2, 3, 4].into(),
            options: vec![],
        };
        writer.write_pcapng_block(packet).expect("written");
    }
    let packet = SimplePacketBlock {
        original_len: 4,
        data: vec![9; 4].into(),
    };
    writer.write_pcapng_block(packet).expect("written");
    writer.into_inner()
}

type Seen = Vec<(Layer, Duration, u32, Vec<u8>)>;

fn all(file: &[u8]) -> Result<(Passed, Seen), String> {
    let mut seen = Vec::new();
    let passed = read_from(file, &mut |packet: &Packet<'_>| {
        seen.push((
            packet.layer,
            packet.time,
            packet.length,
            packet.bytes.to_vec(),
        ));
    })?;
    Ok((passed, seen))
}

#[test]
fn pcap_is_read_with_its_resolution() {
    let (passed, seen) = all(&pcap_bytes(0xa1b2_3c4d, 1, 2)).expect("read");
    assert_eq!((passed.packets, passed.broken), (2, None));
    assert_eq!(seen[1], (Layer::Ethernet, TIME, 1000, vec![1, 0, 0, 0]));
    let (_, seen) = all(&pcap_bytes(0xa1b2_c3d4, 101, 1)).expect("read");
    let micros = Duration::from_micros(1_700_000_000_123_456);
    assert_eq!((seen[0].0, seen[0].1), (Layer::Ip, micros));
    let layers = [
        (113, Layer::Cooked),
        (276, Layer::Cooked2),
        (0, Layer::Loopback),
    ];
    for (link, layer) in layers {
        let (_, seen) = all(&pcap_bytes(0xa1b2_c3d4, link, 1)).expect("read");
        assert_eq!(seen[0].0, layer);
    }
}

#[test]
fn pcapng_is_read_with_the_layer_of_each_interface() {
    let links = [DataLink::ETHERNET, DataLink::LINUX_SLL2, DataLink::PPP];
    let (passed, seen) = all(&ng_bytes(&links)).expect("read");
    assert_eq!((passed.packets, seen.len()), (4, 3));
    assert_eq!(passed.unknown.values().sum::<u64>(), 1);
    let layers: Vec<Layer> = seen.iter().map(|packet| packet.0).collect();
    assert_eq!(layers, [Layer::Ethernet, Layer::Cooked2, Layer::Ethernet]);
    assert_eq!((seen[0].1.as_secs(), seen[0].2), (TIME.as_secs(), 1000));
    assert_eq!(
        seen[2].1, seen[1].1,
        "a packet without a time has the one before"
    );
}

#[test]
fn files_that_are_cut_off_are_used_as_far_as_they_go() {
    for file in [
        pcap_bytes(0xa1b2_c3d4, 1, 5),
        ng_bytes(&[DataLink::ETHERNET; 4]),
    ] {
        let (_, whole) = all(&file).expect("read");
        assert_eq!(whole.len(), 5);
        for end in 32..file.len() {
            match all(&file[..end]) {
                Ok((passed, seen)) => {
                    assert_eq!(passed.packets, seen.len() as u64);
                    assert_eq!(seen[..], whole[..seen.len()]);
                }
                Err(why) => assert!(why.contains("is no capture"), "{why}"),
            }
        }
        let (passed, seen) = all(&file[..file.len() - 3]).expect("read");
        assert_eq!(seen.len(), 4);
        let why = passed.broken.expect("said");
        assert!(why.contains("after packet 4"), "{why}");
    }
}

#[test]
fn what_is_no_capture_is_refused() {
    let text = vec![b'x'; 4096];
    let unknown = pcap_bytes(0xa1b2_c3d4, 147, 3);
    for (file, why) in [
        (&b""[..], "too short"),
        (b"abc", "too short"),
        (&text, "neither pcap nor pcapng"),
        (&[0x1f, 0x8b, 8, 0, 0], "gunzip"),
        (&PCAPNG, "is no capture"),
        (&unknown, "is a capture of"),
    ] {
        let said = all(file).map(|(passed, _)| passed).expect_err(why);
        assert!(said.contains(why), "{said}");
    }
    let said = read(Path::new("/nonexistent/x"), &mut |_| {}).expect_err("missing");
    assert!(matches!(said, Failure::Failed(why) if why.contains("/nonexistent/x: No such file")));
    let said = read(Path::new("/proc"), &mut |_| {}).expect_err("a folder");
    assert!(matches!(said, Failure::Failed(why) if why.contains("is a directory")));
}

#[test]
fn damaged_files_do_no_harm() {
    let mut longest = pcap_bytes(0xa1b2_c3d4, 1, 1);
    longest[24 + 8..24 + 12].fill(255); // a packet of 4 GiB
    let (passed, seen) = all(&longest).expect("read");
    assert!(seen.is_empty() && passed.broken.is_some());
    for whole in [
        pcap_bytes(0xa1b2_c3d4, 1, 2),
        ng_bytes(&[DataLink::ETHERNET; 2]),
    ] {
        for at in 0..whole.len() {
            for value in [0, 127, 255] {
                let mut wrong = whole.clone();
                wrong[at] = value;
                let _ = all(&wrong);
            }
        }
    }
}
