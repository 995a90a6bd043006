//! A peer that cuts: SACK blocks of single bytes, acknowledgments of pieces, tiny segments (CVE-2019-11478, CVE-2019-11479). What an
//! acknowledgment costs and what is remembered stay within bounds, and what is sent again is whole segments.

use super::super::sent::{Fate, Record};
use super::*;
use crate::wire::tcp::SackBlocks;

/// Of an acknowledgment, the records looked at beside those that it tells news of.
const MOST: u32 = 320;
const FLIGHT: usize = 1500;

/// `FLIGHT` full segments under way, in stretches of `burst` bytes.
fn flight(burst: u32, mss: u16) -> Pair {
    let config = Config {
        nagle: false,
        timestamps: false,
        burst,
        mss,
        congestion: CongestionControl::NewReno,
        ..Config::default()
    };
    let mut pair = Pair::established(&config, &config);
    let bytes = FLIGHT * usize::from(mss);
    let conn = pair.ends[0].conn();
    conn.congestion.window.cwnd = bytes as u32;
    conn.snd.scale = 7;
    conn.snd.wnd = 2 * bytes as u32;
    conn.snd.wnd_max = conn.snd.wnd;
    let text = pair.rng.bytes(bytes);
    pair.ends[0].write(&text);
    let sent: usize = pair.intercept().iter().map(|(_, _, text)| text.len()).sum();
    assert_eq!(sent, bytes);
    pair.ends[0].sent.clear();
    pair.now = pair.now + Duration::from_millis(20);
    pair
}

/// An acknowledgment of `ack` with `blocks`.
fn answer(pair: &mut Pair, ack: SeqNum, blocks: &[(SeqNum, SeqNum)]) {
    let mut header = pair.forge(0, Flags::ACK);
    header.ack = ack;
    header.window = 65_535;
    header.options.sack = SackBlocks::NONE;
    for &(left, right) in blocks {
        header.options.sack.push(left, right);
    }
    pair.deliver(0, &header, Vec::new());
}

fn records(pair: &mut Pair) -> Vec<(SeqNum, Record)> {
    let sent = &pair.ends[0].conn().sent;
    sent.iter().map(|(at, record)| (at, *record)).collect()
}

/// RFC 2018 §3: of a segment a part cannot have arrived. Blocks of it are nothing, and the records stay whole, however the text left.
#[test]
fn a_part_of_a_segment_is_not_sacked() {
    for burst in [0, 65_000] {
        let mut pair = flight(burst, 1460);
        let una = pair.ends[0].conn().snd.una;
        let before = records(&mut pair).len();
        for n in (0..FLIGHT as u32 - 4).step_by(4) {
            let one = |n: u32| (una + n * 1460 + 700, una + n * 1460 + 701);
            answer(
                &mut pair,
                una,
                &[one(n), one(n + 1), one(n + 2), one(n + 3)],
            );
        }
        assert_eq!(pair.ends[0].conn().sent.sacked(), 0, "burst {burst}");
        assert_eq!(records(&mut pair).len(), before, "burst {burst}");
        // The whole one within a block that is cut at both ends; then one behind it: they are one record.
        answer(&mut pair, una, &[(una + 1000, una + 4000)]);
        let sent = &pair.ends[0].conn().sent;
        assert_eq!((sent.sacked(), sent.sacked_segments()), (1460, 1));
        answer(&mut pair, una, &[(una + 2 * 1460, una + 4 * 1460)]);
        let sent = &pair.ends[0].conn().sent;
        assert_eq!((sent.sacked(), sent.sacked_segments()), (3 * 1460, 3));
        let sacked = records(&mut pair)
            .iter()
            .filter(|(_, r)| r.fate == Fate::Sacked)
            .count();
        assert_eq!(sacked, 1, "joined");
    }
}

/// Every second byte sacked, then holes that are real: what goes out again are segments.
#[test]
fn what_is_sent_again_is_whole_segments() {
    for burst in [0, 65_000] {
        let mut pair = flight(burst, 1460);
        let una = pair.ends[0].conn().snd.una;
        for n in 0..200 {
            let byte = |k: u32| (una + 1 + 8 * n + 2 * k, una + 2 + 8 * n + 2 * k);
            answer(&mut pair, una, &[byte(0), byte(1), byte(2), byte(3)]);
        }
        for n in (1..FLIGHT as u32 - 1).step_by(2) {
            answer(&mut pair, una, &[(una + n * 1460, una + (n + 1) * 1460)]);
            pair.intercept();
        }
        let again: Vec<u32> = pair.ends[0].sent.iter().map(|(_, t)| t.len).collect();
        assert!(again.len() > 50, "{} sent again", again.len());
        assert!(again.iter().all(|&len| len == 1460), "{again:?}");
    }
}

/// What is not looked at at once is later: of many losses each is found, in time, without a timeout.
#[test]
fn all_of_many_losses_are_found() {
    for burst in [0, 65_000] {
        let mut pair = flight(burst, 1460);
        let una = pair.ends[0].conn().snd.una;
        let all = FLIGHT as u32;
        answer(
            &mut pair,
            una,
            &[(una + (all - 5) * 1460, una + all * 1460)],
        );
        let mut again = 0;
        while again < all - 5 {
            let segments: Vec<_> = pair.intercept();
            assert!(segments.iter().all(|(_, _, text)| text.len() == 1460));
            again += segments.len() as u32;
            pair.now = pair.now + Duration::from_millis(2);
            let now = pair.now;
            pair.ends[0].conn().on_timer(now);
            for (_, header, _) in segments {
                answer(&mut pair, header.seq + 1460, &[]);
            }
        }
        let conn = pair.ends[0].conn();
        assert_eq!(
            (conn.info().timeouts, conn.snd.una),
            (0, una + all * 1460 - 5 * 1460)
        );
    }
}

/// Small pieces that are lost one behind the other go out again as one segment, but none across the end of a record (MSG_EOR).
#[test]
fn lost_pieces_leave_together() {
    lost_pieces(false, &[(0, 600)]);
    lost_pieces(true, &[(0, 300), (300, 300)]);
}

fn lost_pieces(ends_record: bool, expected: &[(u32, u32)]) {
    let config = Config {
        nagle: false,
        timestamps: false,
        ..Config::default()
    };
    let mut pair = Pair::established(&config, &config);
    for n in 0..10 {
        pair.ends[0].write(&[n; 100]);
        if ends_record && n == 2 {
            pair.ends[0].conn().end_record();
        }
        pair.intercept();
    }
    pair.ends[0].sent.clear();
    let una = pair.ends[0].conn().snd.una;
    pair.now = pair.now + Duration::from_millis(20);
    answer(&mut pair, una, &[(una + 600, una + 1000)]);
    pair.intercept();
    let again: Vec<(SeqNum, u32)> = pair.ends[0]
        .sent
        .iter()
        .map(|(_, t)| (t.header.seq, t.len))
        .collect();
    let expected: Vec<_> = expected.iter().map(|&(at, len)| (una + at, len)).collect();
    assert_eq!(again, expected);
    answer(&mut pair, una + 1000, &[]);
    assert!(records(&mut pair).is_empty());
    pair.ends[0].conn().check();
}

/// A random block: single bytes, segments, pieces of them, or nearly all.
fn block(rng: &mut Rng, una: SeqNum, nxt: SeqNum, mss: u32) -> (SeqNum, SeqNum) {
    let flight = (nxt - una).max(1).unsigned_abs();
    let at = 1 + rng.below(flight.into()) as u32;
    let (left, len) = match rng.below(6) {
        0 => (at, 1),
        1 => (at / mss * mss, mss),
        2 => (at / mss * mss, mss * (1 + rng.below(20) as u32)),
        3 => (at, rng.below(u64::from(mss) * 4) as u32),
        4 => (mss, flight - at),
        _ => (at / mss * mss, flight),
    };
    let right = una + left + len;
    (una + left.max(1), if right > nxt { nxt } else { right })
}

/// One acknowledgment, however it is made, and what follows it: few records are looked at but those of which it tells news.
fn hostile(seed: u64, burst: u32, mss: u16) {
    let mut pair = flight(burst, mss);
    let mut rng = Rng(seed);
    let (mut answers, mut all, mut news) = (0, 0, 0);
    for _ in 0..400 {
        let conn = pair.ends[0].conn();
        let (una, nxt) = (conn.snd.una, conn.snd.nxt);
        if una == nxt {
            break;
        }
        let step = [0, 0, 0, 0, 0, 0, 1, 700, u32::from(mss)][rng.below(9) as usize];
        let ack = if una + step > nxt { nxt } else { una + step };
        let blocks: Vec<_> = (0..rng.below(5))
            .map(|_| block(&mut rng, ack, nxt, mss.into()))
            .collect();
        let (was, delivered) = (conn.sent.visits.0.get(), conn.rate.delivered);
        let lost = conn.sent.lost() / u32::from(mss);
        answer(&mut pair, ack, &blocks);
        let conn = pair.ends[0].conn();
        let visits = conn.sent.visits.0.get() - was;
        let told = (conn.rate.delivered - delivered) / u32::from(mss);
        // If nothing was lost after all: what acknowledgments before it found lost.
        let revived = if conn.sent.lost() == 0 { lost } else { 0 };
        assert!(
            visits <= MOST + 3 * (told + revived),
            "seed {seed}: {visits} records looked at for {told}"
        );
        answers += 1;
        all += visits;
        news += told;
        conn.check();
        let most = (conn.snd.nxt - conn.snd.una).unsigned_abs() + 8192;
        assert!(
            conn.heap_bytes() <= 3 * most as usize,
            "{}",
            conn.heap_bytes()
        );
        pair.now = pair.now + Duration::from_micros(rng.below(3000));
        let now = pair.now;
        if conn.deadline() <= now {
            pair.ends[0].conn().on_timer(now);
        }
        let was = pair.ends[0].conn().sent.visits.0.get();
        let left = pair.intercept().len() as u32;
        let visits = pair.ends[0].conn().sent.visits.0.get() - was;
        assert!(visits <= 8 * left + MOST, "{visits} for {left} segments");
    }
    let sent = all / answers;
    assert!(
        answers > 100 && sent < 64 + 3 * news / answers,
        "{sent} each"
    );
}

/// However SACK blocks are made, an acknowledgment costs what it tells and little more; and what is remembered is bounded by what is under way.
#[test]
fn no_acknowledgment_is_dear() {
    for seed in 0..24 {
        hostile(
            seed,
            [0, 65_000][seed as usize % 2],
            [1460, 200][seed as usize / 2 % 2],
        );
    }
    for (seed, burst, mss) in [(2, 0, 64), (21, 65_000, 200)] {
        hostile(seed, burst, mss);
    }
}

/// An application that writes single bytes to a peer that acknowledges nothing: records are bounded by segments, not by writes.
#[test]
fn small_pieces_are_remembered_together() {
    let config = Config {
        nagle: false,
        ..Config::default()
    };
    let mut pair = Pair::established(&config, &config);
    let conn = pair.ends[0].conn();
    conn.congestion.window.cwnd = 1 << 20;
    conn.snd.wnd = 1 << 20;
    for _ in 0..20_000 {
        pair.ends[0].write(&[1]);
        let now = pair.now;
        assert!(pair.ends[0].conn().output(now).is_some());
    }
    assert!(
        records(&mut pair).len() < 150,
        "{}",
        records(&mut pair).len()
    );
    let conn = pair.ends[0].conn();
    assert!(conn.heap_bytes() < 20_000, "{}", conn.heap_bytes());
    conn.check();
    let una = conn.snd.una;
    answer_with_time(&mut pair, una + 20_000);
    assert!(records(&mut pair).is_empty());
}

fn answer_with_time(pair: &mut Pair, ack: SeqNum) {
    let mut header = pair.forge(0, Flags::ACK);
    header.ack = ack;
    pair.deliver(0, &header, Vec::new());
}

/// A connection whose peer announced `mss`, with a window of `wnd` bytes.
fn to_a_peer_of(mss: u16, timestamps: bool, wnd: u32) -> Pair {
    let config = Config {
        nagle: false,
        timestamps,
        ..Config::default()
    };
    let mut pair = Pair::established(&config, &config);
    let conn = pair.ends[0].conn();
    let now = conn.last_sent;
    let mut syn = pair.forge(0, Flags::SYN);
    syn.options.mss = Some(mss);
    syn.options.sack_permitted = true;
    let conn = pair.ends[0].conn();
    conn.negotiate(&syn, now);
    (conn.timestamps, conn.snd.wnd, conn.snd.wnd_max) = (timestamps, wnd, wnd);
    conn.snd.scale = 7;
    conn.update_send_mss();
    conn.congestion.window.cwnd = 1 << 24;
    pair
}

/// The least segment that a peer can ask for, options included, is longer than Linux's (48 bytes, CVE-2019-11479), and whatever stands in
/// its header, 24 bytes of text fit.
#[test]
fn tiny_segments_are_bounded() {
    let mut least = u32::MAX;
    for mss in (0..=100).chain([536, 1460]) {
        for (timestamps, signature) in [(false, 0), (true, 0), (false, 20), (true, 20)] {
            let mut pair = to_a_peer_of(mss, timestamps, 65_535);
            let conn = pair.ends[0].conn();
            conn.keep_free(signature);
            let options = 12 * u16::from(timestamps) + u16::from(signature);
            assert_eq!(conn.send_mss(), mss.clamp(64, 1460) - options);
            for blocks in 0..=4 {
                conn.cold.sack_blocks.len = blocks;
                least = least.min(conn.full_segment());
            }
        }
    }
    assert_eq!(least, 24);
}

/// Single bytes to a peer that acknowledges nothing, whatever MSS it announced, also where most of a header is options: what is remembered
/// of them takes six times as much at most.
#[test]
fn records_are_bounded_whatever_the_mss() {
    for mss in [
        0, 1, 2, 3, 4, 8, 48, 64, 65, 80, 100, 128, 200, 400, 536, 1460,
    ] {
        for (timestamps, blocks, signature) in
            [(false, 0, 0), (true, 3, 0), (true, 3, 20), (false, 4, 20)]
        {
            let mut pair = to_a_peer_of(mss, timestamps, 1 << 20);
            let conn = pair.ends[0].conn();
            conn.keep_free(signature);
            let mut most = 0;
            for n in 1..=12_000_usize {
                pair.ends[0].write(&[1]);
                let now = pair.now;
                let conn = pair.ends[0].conn();
                conn.cold.sack_blocks.len = blocks;
                assert!(conn.output(now).is_some());
                most = most.max((conn.records_bytes() - 4096.min(conn.records_bytes())) * 100 / n);
            }
            assert!(
                most <= 600,
                "mss {mss}: {most} per cent of what is under way"
            );
            pair.ends[0].conn().check();
        }
    }
}

/// Windows of a few bytes, tiny segments, and SACK blocks: what is remembered is a few times what is under way, for a peer of any MSS.
#[test]
fn records_are_bounded_whatever_is_acknowledged() {
    for seed in 0..40 {
        let mss = [0, 1, 64, 90, 536][seed as usize % 5];
        let mut pair = to_a_peer_of(mss, seed % 2 == 0, 1 << 16);
        let mut rng = Rng(seed);
        let mut most = 0;
        for _ in 0..600 {
            let len = [1, 1, 10, 60, 1000][rng.below(5) as usize];
            pair.ends[0].write(&[7; 1000][..len]);
            pair.intercept();
            pair.now = pair.now + Duration::from_micros(rng.below(20_000));
            let now = pair.now;
            let conn = pair.ends[0].conn();
            let full = conn.full_segment();
            let (una, nxt) = (conn.snd.una, conn.snd.nxt);
            let step = [0, 0, 0, 1, full][rng.below(5) as usize];
            let ack = if una + step > nxt { nxt } else { una + step };
            let mut header = pair.forge(0, Flags::ACK);
            header.ack = ack;
            header.window = [0, 1, 2, 7, 64, 65_535][rng.below(6) as usize];
            pair.ends[0].conn().snd.scale = 0;
            header.options.sack = SackBlocks::NONE;
            for _ in 0..rng.below(4) {
                let (left, right) = block(&mut rng, ack, nxt, full);
                header.options.sack.push(left, right);
            }
            pair.deliver(0, &header, Vec::new());
            let conn = pair.ends[0].conn();
            if conn.deadline() <= now {
                conn.on_timer(now);
            }
            conn.check();
            let under_way = (conn.snd.nxt - conn.snd.una).max(0) as usize;
            most = most.max(conn.records_bytes().saturating_sub(8192) * 100 / under_way.max(1));
        }
        assert!(
            most <= 600,
            "seed {seed}, mss {mss}: {most} per cent of what is under way"
        );
    }
}
