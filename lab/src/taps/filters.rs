//! Filters as libpcap compiles them, and what running them takes. The programs are kept here, so that the figures do not depend on a library's version:
//! each is what `tcpdump -ddd -y EN10MB -s 262144` prints for its text, without the first line.

use std::hint::black_box;

use netchan::tap::{Filter, Instruction};

use super::{Effort, row};
use crate::{
    experiment::LabError,
    kit::{Sample, seconds},
    report::Row,
};

/// How many filters are measured.
pub(super) const COUNT: usize = 11;

/// A filter's text, and the program for it: code, jt, jf and k of each instruction.
type Compiled = (&'static str, &'static str);

/// What people ask for: from one term to many, both families, options, ranges, fragments, arithmetic.
const FILTERS: [Compiled; COUNT] = [
    ("ip", "40 0 0 12, 21 0 1 2048, 6 0 0 262144, 6 0 0 0"),
    (
        "tcp port 80",
        "40 0 0 12, 21 0 6 34525, 48 0 0 20, 21 0 15 6, 40 0 0 54, 21 12 0 80, 40 0 0 56, 21 10 11 80, 21 0 10 2048, 48 0 0 23, 21 0 8 6, \
         40 0 0 20, 69 6 0 8191, 177 0 0 14, 72 0 0 14, 21 2 0 80, 72 0 0 16, 21 0 1 80, 6 0 0 262144, 6 0 0 0",
    ),
    (
        "udp and not port 53",
        "40 0 0 12, 21 0 9 2048, 48 0 0 23, 21 0 18 17, 40 0 0 20, 69 15 0 8191, 177 0 0 14, 72 0 0 14, 21 13 0 53, 72 0 0 16, \
         21 11 10 53, 21 0 10 34525, 48 0 0 20, 21 0 4 17, 40 0 0 54, 21 6 0 53, 40 0 0 56, 21 4 3 53, 21 0 3 44, 48 0 0 54, 21 0 1 17, \
         6 0 0 262144, 6 0 0 0",
    ),
    (
        "host 10.0.0.1 and tcp",
        "40 0 0 12, 21 0 7 2048, 32 0 0 26, 21 2 0 167772161, 32 0 0 30, 21 0 3 167772161, 48 0 0 23, 21 0 1 6, 6 0 0 262144, 6 0 0 0",
    ),
    (
        "src net 10.0.0.0/8 and dst portrange 1000-2000",
        "40 0 0 12, 21 0 14 2048, 32 0 0 26, 84 0 0 4278190080, 21 0 11 167772160, 48 0 0 23, 21 2 0 132, 21 1 0 6, 21 0 7 17, 40 0 0 20, \
         69 5 0 8191, 177 0 0 14, 72 0 0 16, 53 0 2 1000, 37 1 0 2000, 6 0 0 262144, 6 0 0 0",
    ),
    (
        "tcp[tcpflags] & (tcp-syn|tcp-fin) != 0 and not src and dst net 192.168.0.0/16",
        "40 0 0 12, 21 0 14 2048, 48 0 0 23, 21 0 12 6, 40 0 0 20, 69 10 0 8191, 177 0 0 14, 80 0 0 27, 69 0 7 3, 32 0 0 26, \
         84 0 0 4294901760, 21 0 3 3232235520, 32 0 0 30, 84 0 0 4294901760, 21 1 0 3232235520, 6 0 0 262144, 6 0 0 0",
    ),
    (
        "ip6 and (tcp or udp or icmp6)",
        "40 0 0 12, 21 0 8 34525, 48 0 0 20, 21 5 0 6, 21 0 2 44, 48 0 0 54, 21 2 0 6, 21 1 0 17, 21 0 1 58, 6 0 0 262144, 6 0 0 0",
    ),
    (
        "icmp or arp",
        "40 0 0 12, 21 0 2 2048, 48 0 0 23, 21 1 2 1, 21 0 1 2054, 6 0 0 262144, 6 0 0 0",
    ),
    (
        "tcp port 80 and (((ip[2:2] - ((ip[0]&0xf)<<2)) - ((tcp[12]&0xf0)>>2)) != 0)",
        "40 0 0 12, 21 27 0 34525, 21 0 26 2048, 48 0 0 23, 21 0 24 6, 40 0 0 20, 69 22 0 8191, 177 0 0 14, 72 0 0 14, 21 2 0 80, \
         72 0 0 16, 21 0 17 80, 40 0 0 16, 2 0 0 1, 48 0 0 14, 84 0 0 15, 100 0 0 2, 7 0 0 5, 96 0 0 1, 28 0 0 0, 2 0 0 5, 177 0 0 14, \
         80 0 0 26, 84 0 0 240, 116 0 0 2, 7 0 0 9, 96 0 0 5, 29 1 0 0, 6 0 0 262144, 6 0 0 0",
    ),
    (
        "len > 100 and ether[0] & 1 = 0 and ip[6:2] & 0x1fff = 0",
        "128 0 0 0, 37 0 7 100, 48 0 0 0, 69 5 0 1, 40 0 0 12, 21 0 3 2048, 40 0 0 20, 69 1 0 8191, 6 0 0 262144, 6 0 0 0",
    ),
    (
        "vlan 5 and ip host 10.0.0.1 or ether host 02:00:00:00:00:01",
        "40 0 0 12, 21 2 0 33024, 21 1 0 34984, 21 0 9 37120, 40 0 0 14, 84 0 0 4095, 21 0 6 5, 40 0 0 16, 21 0 4 2048, 32 0 0 30, \
         21 10 0 167772161, 32 0 0 34, 21 8 0 167772161, 32 0 0 8, 21 0 2 1, 40 0 0 6, 21 4 0 512, 32 0 0 2, 21 0 3 1, 40 0 0 0, \
         21 0 1 512, 6 0 0 262144, 6 0 0 0",
    ),
];

/// All five terms are looked at for a datagram to another port than 9.
const FIVE_TERMS: Compiled = (
    "ip and udp and not src host 10.9.9.1 and not dst host 10.9.9.2 and dst port 9",
    "40 0 0 12, 21 0 12 2048, 48 0 0 23, 21 0 10 17, 32 0 0 26, 21 8 0 168364289, 32 0 0 30, 21 6 0 168364290, 40 0 0 20, 69 4 0 8191, \
         177 0 0 14, 72 0 0 16, 21 0 1 9, 6 0 0 262144, 6 0 0 0",
);

/// As if nothing were asked for that there is.
const NOTHING: Compiled = ("", "6 0 0 0");

fn filter((text, program): Compiled) -> Result<Filter, LabError> {
    let number = |word: &str| word.parse::<u32>().ok();
    let instruction = |line: &str| {
        let words: Option<Vec<u32>> = line.split_whitespace().map(number).collect();
        let [code, jt, jf, k] = words?[..] else {
            return None;
        };
        Some(Instruction {
            code: code.try_into().ok()?,
            jt: jt.try_into().ok()?,
            jf: jf.try_into().ok()?,
            k,
        })
    };
    let program: Option<Vec<_>> = program.split(',').map(instruction).collect();
    let bad = |why: &dyn std::fmt::Display| LabError::Failed(format!("filter \"{text}\": {why}"));
    let program = program.ok_or_else(|| bad(&"not four numbers each"))?;
    Filter::new(&program).map_err(|e| bad(&e))
}

/// Nothing passes.
pub(super) fn nothing() -> Result<Filter, LabError> {
    filter(NOTHING)
}

/// Five terms, the last of which no datagram of the lab's fulfils.
pub(super) fn five_terms() -> Result<Filter, LabError> {
    filter(FIVE_TERMS)
}

const ETHERNET: [u8; 12] = [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 3];

/// A frame over IPv4, of 142 bytes.
fn v4(protocol: u8, source: [u8; 4], ports: [u16; 2]) -> Vec<u8> {
    let mut frame = ETHERNET.to_vec();
    frame.extend([8, 0, 0x45, 0, 0, 128, 0, 1, 0x40, 0, 64, protocol, 0, 0]);
    frame.extend(source);
    frame.extend([10, 0, 0, 2]);
    frame.extend(ports.map(u16::to_be_bytes).concat());
    frame.extend([0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x10]); // no options, ACK
    frame.resize(142, 0x5a);
    frame
}

/// A TCP segment over IPv6.
fn v6() -> Vec<u8> {
    let mut frame = ETHERNET.to_vec();
    frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 88, 6, 64]);
    frame.extend(
        [[0xfd, 1], [0xfd, 2]]
            .map(|net| [&net[..], &[0; 14]].concat())
            .concat(),
    );
    frame.extend([0x04, 0, 0, 80, 0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x10]);
    frame.resize(142, 0x5a);
    frame
}

/// A mixture: segments of a web server, DNS, a ping, ARP, IPv6.
fn frames() -> Vec<Vec<u8>> {
    let mut arp = ETHERNET.to_vec();
    arp.extend([8, 6, 0, 1, 8, 0, 6, 4, 0, 1]);
    arp.resize(60, 0);
    vec![
        v4(6, [10, 0, 0, 1], [40_000, 80]),
        v4(6, [10, 0, 0, 3], [80, 1500]),
        v4(17, [10, 0, 0, 1], [40_000, 53]),
        v4(17, [192, 168, 0, 9], [5353, 7]),
        v4(1, [10, 0, 0, 1], [0x0800, 0]),
        v6(),
        v4(6, [10, 0, 0, 1], [40_000, 80]),
        arp,
    ]
}

/// Nanoseconds for each packet.
#[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation)] // few frames, all short
fn each_ns(filter: &Filter, frames: &[Vec<u8>], runs: usize) -> f64 {
    let passes = runs.div_ceil(frames.len());
    let took = seconds(|| {
        for _ in 0..passes {
            for frame in black_box(frames) {
                black_box(filter.run(frame, frame.len() as u32));
            }
        }
    });
    took * 1e9 / (passes * frames.len()) as f64
}

/// Each filter as a tap runs it, which is as machine code where there is some, and interpreted.
pub(super) fn rows(effort: &Effort) -> Result<Vec<Row>, LabError> {
    let filters: Result<Vec<_>, _> = FILTERS.into_iter().map(filter).collect();
    let (interpreted, frames) = (filters?, frames());
    let compiled = interpreted.iter().cloned().map(Filter::compiled).collect();
    let ways: [Vec<Filter>; 2] = [compiled, interpreted];
    // The filters take turns; the first round is thrown away.
    let turn = |_| {
        let one = |filter| each_ns(filter, &frames, effort.runs);
        (ways.each_ref()).map(|filters| filters.iter().map(one).collect::<Vec<_>>())
    };
    let turns: Vec<[Vec<f64>; 2]> = (0..=effort.rounds).map(turn).skip(1).collect();
    let mut rows = Vec::new();
    for (way, infix) in ["", "interpreted_"].into_iter().enumerate() {
        let turns: Vec<_> = turns.iter().map(|turn| &turn[way]).collect();
        let middles = turns
            .iter()
            .map(|turn| [Sample::of(turn.to_vec()).median()]);
        let middles: Vec<_> = middles.collect();
        let middle = row(&format!("filter_{infix}ns"), &middles, |[middle]| *middle);
        let middle = if way == 0 {
            middle.target("6 to 12.5 ns")
        } else {
            middle
        };
        rows.push(middle.reference("libpcap 8-48 ns"));
        for (number, (text, _)) in FILTERS.iter().enumerate() {
            let values = turns.iter().map(|turn| turn[number]).collect();
            let id = format!("filter_{infix}{}_ns", number + 1);
            rows.push(Row::new(&id, &Sample::of(values)).reference(text));
        }
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Which frames pass each filter, by their places.
    #[test]
    fn filters_let_through_what_they_say() {
        let passing: [&[usize]; COUNT] = [
            &[0, 1, 2, 3, 4, 6],
            &[0, 1, 5, 6],
            &[3],
            &[0, 6],
            &[1],
            &[],
            &[5],
            &[4, 7],
            &[0, 1, 6],
            &[0, 1, 2, 3, 4, 6],
            &[],
        ];
        let frames = frames();
        for (compiled, passing) in FILTERS.into_iter().zip(passing) {
            let filter = filter(compiled).expect("a program");
            for filter in [filter.clone(), filter.compiled()] {
                let passes = |at: &usize| filter.run(&frames[*at], 142) > 0;
                let found: Vec<usize> = (0..frames.len()).filter(passes).collect();
                assert_eq!(found, passing, "{} {}", filter.engine(), compiled.0);
            }
        }
        let [five, nothing] = [five_terms(), nothing()].map(|f| f.expect("a program"));
        assert!(
            frames
                .iter()
                .all(|f| five.run(f, 142) == 0 && nothing.run(f, 142) == 0)
        );
        let discard = v4(17, [10, 0, 0, 1], [1, 9]);
        assert!(five.run(&discard, 142) > 0, "all five terms hold");
        assert!(filter(("x", "6 0 0")).is_err());
    }

    /// What is measured says the same interpreted and as machine code: of frames with any byte changed, and cut anywhere.
    #[test]
    fn machine_code_says_what_the_interpreter_says() {
        for compiled in FILTERS.into_iter().chain([FIVE_TERMS, NOTHING]) {
            let filter = filter(compiled).expect("a program");
            let both = [filter.clone(), filter.compiled()];
            assert_eq!(both[1].engine() == "compiled", cfg!(target_arch = "x86_64"));
            let same = |frame: &[u8]| {
                let [one, other] = both.each_ref().map(|filter| filter.run(frame, 142));
                assert_eq!(one, other, "{} {frame:?}", compiled.0);
            };
            for frame in frames() {
                for at in 0..frame.len() {
                    same(&frame[..at]);
                    for value in [0, 1, 6, 17, 0x45, 0x4f, 80, 0x86, 0xff] {
                        let mut frame = frame.clone();
                        frame[at] = value;
                        same(&frame);
                    }
                }
            }
        }
    }
}
