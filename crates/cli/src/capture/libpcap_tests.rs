//! Our two ways of running filters against libpcap's own, packet by packet. `NETCHAN_PACKETS` says how many mutated packets each test takes (50,000; in
//! `make soak` 10 million), `NETCHAN_SEED` which.

#[path = "../../../netchan/tests/filters/programs.rs"]
mod programs;

use netchan::tap::Filter;
use programs::{both, numbers, packet, packets_or, program, said, seed};

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

/// A program as libpcap has it, and ours.
struct Programs {
    theirs: Vec<Instruction>,
    ours: [Filter; 2],
}

impl Programs {
    fn new(program: &[netchan::tap::Instruction]) -> Self {
        let of = |i: &netchan::tap::Instruction| {
            let netchan::tap::Instruction { code, jt, jf, k } = *i;
            Instruction { code, jt, jf, k }
        };
        Self {
            theirs: program.iter().map(of).collect(),
            ours: both(program),
        }
    }

    /// What all say of a packet that is so long on the link.
    fn said(&self, run: &Symbol<'_, Run>, packet: &[u8], length: u32) -> u32 {
        let there = u32::try_from(packet.len()).expect("short");
        // SAFETY: it is a program that passed our check, and so much of the packet is there.
        let expected = unsafe { run(self.theirs.as_ptr(), packet.as_ptr(), length, there) };
        let found = said(&self.ours, packet, length);
        assert_eq!(found, expected, "{:?} {packet:?} {length}", self.ours);
        expected
    }
}

/// A packet, and how long it was on the link.
fn seen(below: programs::Below<'_>) -> (Vec<u8>, u32) {
    let packet = packet(below);
    let length = u32::try_from(packet.len() + below(3) * 500).expect("short");
    (packet, length)
}

#[test]
fn filters_say_what_libpcap_says() {
    let Some(library) = library() else { return };
    // SAFETY: bpf_filter has this type.
    let run: Symbol<'_, Run> = unsafe { library.get(b"bpf_filter") }.expect("bpf_filter");
    let (mut below, packets) = (numbers(seed()), packets_or(50_000));
    let programs = FILTERS.map(|text| {
        let program = compile(text).expect(text);
        let instruction = |&(code, jt, jf, k)| netchan::tap::Instruction { code, jt, jf, k };
        Programs::new(&program.iter().map(instruction).collect::<Vec<_>>())
    });
    let mut passed = [0_usize; FILTERS.len()];
    for _ in 0..packets {
        let (packet, length) = seen(&mut below);
        for (programs, passed) in programs.iter().zip(&mut passed) {
            *passed += usize::from(programs.said(&run, &packet, length) > 0);
        }
    }
    println!("{packets} packets: {passed:?} passed");
    for (text, passed) in FILTERS.iter().zip(passed) {
        assert!(
            passed > 0 && passed < packets,
            "{text}: {passed} of {packets}"
        );
    }
}

/// Programs that no compiler would make.
#[test]
fn random_programs_say_what_libpcap_says() {
    const EACH: usize = 16;
    let Some(library) = library() else { return };
    // SAFETY: bpf_filter has this type.
    let run: Symbol<'_, Run> = unsafe { library.get(b"bpf_filter") }.expect("bpf_filter");
    let (mut below, packets) = (numbers(seed()), packets_or(50_000));
    let mut passed = 0;
    for _ in 0..packets.div_ceil(EACH) {
        let programs = Programs::new(&program(&mut below));
        for _ in 0..EACH {
            let (packet, length) = seen(&mut below);
            passed += usize::from(programs.said(&run, &packet, length) > 0);
        }
    }
    println!("{packets} packets: {passed} passed");
    assert!(passed > packets / 20, "{passed} of {packets}");
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
