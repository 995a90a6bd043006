//! Our execution of filters against libpcap's own, packet by packet. `NETCHAN_PACKETS` says how many mutated packets (100,000).

use netchan::tap::Filter;

use super::*;
use crate::skips::skipped_here;

/// What people ask for: from one term to many, both families, options, ranges, fragments, arithmetic.
const FILTERS: [&str; 11] = [
    "ip",
    "tcp port 80",
    "udp and not port 53",
    "host 10.0.0.1 and tcp",
    "src net 10.0.0.0/8 and dst portrange 1000-2000",
    "tcp[tcpflags] & (tcp-syn|tcp-fin) != 0 and not src and dst net 192.168.0.0/16",
    "ip6 and (tcp or udp or icmp6)",
    "icmp or arp",
    "tcp port 80 and (((ip[2:2] - ((ip[0]&0xf)<<2)) - ((tcp[12]&0xf0)>>2)) != 0)",
    "len > 100 and ether[0] & 1 = 0 and ip[6:2] & 0x1fff = 0",
    "vlan 5 and ip host 10.0.0.1 or ether host 02:00:00:00:00:01",
];

/// `bpf_filter`: the program, a packet, its length on the link, and how much of it is there.
type Run = unsafe extern "C" fn(*const Instruction, *const u8, c_uint, c_uint) -> c_uint;

fn library() -> Option<Library> {
    // SAFETY: as in `compile`.
    let found = NAMES
        .iter()
        .find_map(|name| unsafe { Library::new(*name) }.ok());
    if found.is_none() {
        skipped_here("libpcap is not installed");
    }
    found
}

struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        usize::try_from(self.0 >> 33).expect("31 bits") % n
    }
}

/// A packet that some filter is about, mutated a little and cut at times.
fn packet(random: &mut Random) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
    if random.below(6) == 0 {
        frame.extend([0x81, 0, 0, 5]);
    }
    let addresses = [[10, 0, 0, 1], [10, 0, 0, 2], [192, 168, 1, 1], [1, 2, 3, 4]];
    let protocol = [6, 17, 1, 47][random.below(4)];
    match random.below(8) {
        0 => frame.extend([8, 6, 0, 1, 8, 0, 6, 4, 0, 1]),
        1 | 2 => {
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 40]);
            frame.extend([[6, 17, 58, 44][random.below(4)], 64]);
            frame.extend([0; 32]);
        }
        _ => {
            let words = 5 + random.below(3);
            let head = 0x40 | u8::try_from(words).expect("small");
            frame.extend([8, 0, head, 0, 0, 60, 0, 0]);
            frame.extend([
                [0, 0x20, 0x40][random.below(3)],
                [0, 0, 7][random.below(3)],
                64,
                protocol,
                0,
                0,
            ]);
            frame.extend(addresses[random.below(4)]);
            frame.extend(addresses[random.below(4)]);
            frame.extend(vec![1; (words - 5) * 4]);
        }
    }
    for _ in 0..2 {
        let port = [80_u16, 53, 1500, 443][random.below(4)];
        frame.extend(port.to_be_bytes());
    }
    frame.extend([
        0,
        0,
        0,
        1,
        0,
        0,
        0,
        2,
        0x50,
        [0x02, 0x10, 0x11, 0x18][random.below(4)],
        1,
        0,
        0,
        0,
        0,
        0,
    ]);
    frame.extend(vec![0xaa; random.below(120)]);
    for _ in 0..random.below(4) {
        let at = random.below(frame.len());
        frame[at] = u8::try_from(random.below(256)).expect("a byte");
    }
    if random.below(4) == 0 {
        frame.truncate(random.below(frame.len()) + 1);
    }
    frame
}

#[test]
fn filters_say_what_libpcap_says() {
    let Some(library) = library() else { return };
    // SAFETY: bpf_filter has this type.
    let run: Symbol<'_, Run> = unsafe { library.get(b"bpf_filter") }.expect("bpf_filter");
    let packets =
        std::env::var("NETCHAN_PACKETS").map_or(100_000, |n| n.parse().expect("a number"));
    let mut random = Random(1);
    let programs: Vec<_> = FILTERS
        .iter()
        .map(|text| {
            let program = compile(text).expect(text);
            let ours = program
                .iter()
                .map(|&(code, jt, jf, k)| netchan::tap::Instruction { code, jt, jf, k });
            let ours = Filter::new(&ours.collect::<Vec<_>>()).expect(text);
            let theirs: Vec<Instruction> = program
                .iter()
                .map(|&(code, jt, jf, k)| Instruction { code, jt, jf, k })
                .collect();
            (ours, theirs)
        })
        .collect();
    let mut passed = [0_u64; FILTERS.len()];
    for _ in 0..packets {
        let packet = packet(&mut random);
        let length = u32::try_from(packet.len() + random.below(3) * 500).expect("short");
        let there = u32::try_from(packet.len()).expect("short");
        for (i, (ours, theirs)) in programs.iter().enumerate() {
            // SAFETY: libpcap compiled the program, and so much of the packet is there.
            let expected = unsafe { run(theirs.as_ptr(), packet.as_ptr(), length, there) };
            assert_eq!(
                ours.run(&packet, length),
                expected,
                "{} {packet:?}",
                FILTERS[i]
            );
            passed[i] += u64::from(expected > 0);
        }
    }
    for (text, passed) in FILTERS.iter().zip(passed) {
        assert!(
            passed > 0 && passed < packets,
            "{text}: {passed} of {packets}"
        );
    }
}

#[test]
fn filter_that_does_not_compile_says_why() {
    if library().is_none() {
        return;
    }
    for (text, why) in [
        ("tcp prot 80", "syntax error"),
        ("host nowhere.invalid.", "nowhere"),
        ("(ip", "syntax error"),
    ] {
        let said = compile(text).expect_err(text);
        assert!(said.contains(why) && said.contains(text), "{said}");
    }
    assert!(compile("ip\0tcp").is_err());
}
