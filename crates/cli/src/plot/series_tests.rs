//! Made connections and what is drawn of them.

use super::super::made::Made;
use super::*;

const BOTH: [Option<u8>; 2] = [Some(7), Some(3)];

fn of_client(made: &Made) -> Series {
    made.direction(Side::Client).series
}

fn kinds(series: &Series) -> Vec<Kind> {
    series.bars.iter().map(|bar| bar.kind).collect()
}

const US: u64 = 1_000;

#[test]
fn text_in_order_has_round_trips_windows_and_rates() {
    let mut made = Made::begun(1000, 2000, BOTH);
    made.sent(20_000, 1, 500);
    made.sent(20_100, 501, 500);
    made.acked(28_000, 1001);
    made.sent(30_000, 1001, 100).flags = Flags::ACK.with(Flags::FIN, true);
    made.acked(38_000, 1102).window = 0;
    let series = of_client(&made);
    let bars: Vec<_> = series.bars.iter().map(|bar| (bar.begin, bar.end)).collect();
    assert_eq!(bars, [(0, 1), (1, 501), (501, 1001), (1001, 1102)]);
    assert!(series.bars.iter().all(|bar| bar.kind == Kind::New));
    // From the SYN, from the newest of two segments, and from the last.
    let trips = [(8_000, 8_000), (28_000, 7_900), (38_000, 8_000)];
    assert_eq!(
        series.round_trips,
        trips.map(|(at, rtt)| (at * US, rtt * US))
    );
    // The SYN's window is not shifted, the others are.
    let windows: Vec<u64> = series.answers.iter().map(|answer| answer.window).collect();
    assert_eq!(windows, [1000, 8000, 0]);
    let flight: Vec<u64> = series.flight.iter().map(|point| point.1).collect();
    assert_eq!(flight, [1, 0, 500, 1000, 0, 101, 0]);
    assert_eq!(
        (series.bytes, series.bytes_again, series.acked),
        (1100, 0, 1100)
    );
    let marks: Vec<_> = series
        .marks
        .iter()
        .map(|mark| (mark.what, mark.place))
        .collect();
    assert_eq!(
        marks,
        [(What::Syn, 0), (What::Fin, 1102), (What::ZeroWindow, 1102)]
    );
    let sum = |rate: &[Point]| -> u64 {
        let bytes = |point: &Point| point.1 * series.interval / SECOND;
        rate.iter().map(bytes).sum()
    };
    assert_eq!(
        (sum(&series.throughput), sum(&series.goodput)),
        (1100, 1100)
    );
    assert_eq!(series.interval, 500 * US, "38 ms in at most 121 parts");
}

#[test]
fn both_directions_are_drawn_of_one_capture() {
    let mut made = Made::begun(1000, 2000, BOTH);
    made.sent(20_000, 1, 10);
    made.add(28_000, Side::Server, 1, Some(11), 3000);
    made.add(36_000, Side::Client, 11, Some(3001), 0).window = 2;
    let (client, server) = (of_client(&made), made.direction(Side::Server).series);
    assert_eq!((client.bytes, server.bytes), (10, 3000));
    assert_eq!(
        server.answers.last().map(|a| (a.ack, a.window)),
        Some((3001, 256))
    );
    assert_eq!(
        (client.scale, server.scale),
        (Scale::Known(3), Scale::Known(7))
    );
    // The server's SYN is answered by the third segment.
    assert_eq!(
        server.round_trips,
        [(10_000 * US, 2_000 * US), (36_000 * US, 8_000 * US)]
    );
}

#[test]
fn lost_text_is_sent_again_and_gives_no_round_trip() {
    let mut made = Made::begun(1000, 2000, BOTH);
    made.sent(20_000, 1, 100);
    made.sent(20_100, 101, 100);
    made.sent(20_200, 201, 100);
    made.acked(28_000, 101);
    for us in [28_100, 28_200, 28_300] {
        made.acked(us, 101).add_sack((1000 + 201, 1000 + 301));
    }
    made.sent(29_000, 101, 100);
    made.acked(37_000, 301);
    made.sent(40_000, 301, 100);
    made.acked(48_000, 401);
    let series = of_client(&made);
    assert_eq!(series.count(Kind::Again), 1);
    assert_eq!(
        (series.bytes, series.bytes_again, series.acked),
        (500, 100, 400)
    );
    assert_eq!(series.marked(What::DuplicateAck), 3);
    assert_eq!(series.blocks.len(), 3);
    assert!(
        series
            .blocks
            .iter()
            .all(|b| (b.left, b.right, b.is_duplicate) == (201, 301, false))
    );
    let at: Vec<u64> = series.round_trips.iter().map(|trip| trip.0 / US).collect();
    assert_eq!(at, [8_000, 28_000, 48_000], "Karn's rule: none at 37,000");
    let most = series.flight.iter().map(|point| point.1).max();
    assert_eq!(most, Some(300));
}

#[test]
fn lost_before_the_capture_is_sent_again_too() {
    let mut made = Made::begun(1000, 2000, BOTH);
    made.sent(20_000, 101, 100);
    made.sent(31_000, 1, 100);
    assert_eq!(
        kinds(&of_client(&made))[1..],
        [Kind::New, Kind::Again],
        "a round trip later"
    );
    let mut made = Made::begun(1000, 2000, BOTH);
    made.sent(20_000, 1, 100);
    made.sent(20_100, 201, 100);
    made.sent(20_200, 101, 100);
    made.acked(28_000, 301);
    let series = of_client(&made);
    assert_eq!(
        kinds(&series)[1..],
        [Kind::New, Kind::New, Kind::Late],
        "soon: out of order"
    );
    assert_eq!((series.bytes_again, series.acked), (0, 300));
}

#[test]
fn sack_of_text_that_came_twice_is_told_apart() {
    let mut made = Made::begun(1000, 2000, BOTH);
    made.sent(20_000, 1, 100);
    made.sent(30_000, 1, 100);
    made.acked(38_000, 101).add_sack((1001, 1101));
    // Inside of the second block (RFC 2883 4.3).
    made.sent(40_000, 201, 100);
    let header = made.acked(48_000, 101);
    header.add_sack((1211, 1221));
    header.add_sack((1201, 1301));
    // Blocks that are none.
    let header = made.acked(49_000, 101);
    header.add_sack((1301, 1201));
    header.add_sack((1, 1 << 31));
    let series = of_client(&made);
    let twice: Vec<bool> = series
        .blocks
        .iter()
        .map(|block| block.is_duplicate)
        .collect();
    assert_eq!(twice, [true, true, false]);
    assert_eq!(series.strays, 2);
}

#[test]
fn text_that_was_there_before_its_ack_gives_no_round_trip() {
    let mut made = Made::begun(1000, 2000, BOTH);
    made.sent(20_000, 101, 100);
    made.acked(28_000, 1).add_sack((1101, 1201));
    made.sent(29_000, 1, 100); // out of order, within a round trip
    made.acked(60_000, 201);
    let series = of_client(&made);
    assert_eq!(kinds(&series)[1..], [Kind::New, Kind::Late]);
    assert_eq!(series.round_trips.len(), 1, "that of the SYN");
}

#[test]
fn numbers_wrap() {
    for first in [u32::MAX - 300, u32::MAX, 0, u32::MAX / 2] {
        let mut made = Made::begun(first, u32::MAX - 2, BOTH);
        for i in 0..10_u32 {
            let us = 20_000 + u64::from(i) * 1_000;
            made.sent(us, 1 + i * 100, 100);
            made.acked(us + 500, 101 + i * 100).add_sack((
                first.wrapping_add(201 + i * 100),
                first.wrapping_add(301 + i * 100),
            ));
        }
        let series = of_client(&made);
        let last = series.bars.last().map(|bar| (bar.begin, bar.end));
        assert_eq!(last, Some((901, 1001)), "{first}");
        assert_eq!(series.answers.last().map(|answer| answer.ack), Some(1001));
        assert_eq!((series.strays, series.count(Kind::Again)), (0, 0));
        assert_eq!(series.blocks.last().map(|block| block.right), Some(1201));
    }
}

#[test]
fn more_than_four_gigabytes_go_on_counting() {
    let mut made = Made::begun(77, 88, BOTH);
    let step = 1_u32 << 29;
    for i in 0..20_u32 {
        let us = 20_000 + u64::from(i) * 1_000;
        made.sent(us, 1_u32.wrapping_add(i.wrapping_mul(step)), step);
        made.acked(us + 500, 1_u32.wrapping_add((i + 1).wrapping_mul(step)));
    }
    let series = of_client(&made);
    let end = 1 + 20 * i64::from(step);
    assert_eq!(series.bars.last().map(|bar| bar.end), Some(end));
    assert_eq!(series.acked, 20 * u64::from(step));
}

#[test]
fn capture_that_begins_in_the_middle() {
    let mut made = Made::new(1_000_000, 2_000_000);
    made.acked(0, 500); // of text that was sent before
    made.sent(1_000, 1_000, 100);
    made.sent(1_100, 1_100, 100);
    made.acked(9_000, 1_200);
    made.sent(9_500, 900, 100); // from before the first segment of the capture
    let direction = made.direction(Side::Client);
    let series = &direction.series;
    assert_eq!(series.scale, Scale::Unknown);
    let windows: Vec<u64> = series.answers.iter().map(|answer| answer.window).collect();
    assert_eq!(windows, [1000, 1000], "as it is in the header");
    assert_eq!(series.answers.first().map(|answer| answer.ack), Some(1));
    let bars: Vec<_> = series
        .bars
        .iter()
        .map(|bar| (bar.begin, bar.kind))
        .collect();
    assert_eq!(
        bars,
        [(501, Kind::New), (601, Kind::New), (401, Kind::Again)]
    );
    assert_eq!(
        series.acked, 700,
        "what was acknowledged while it was watched"
    );
    assert_eq!(direction.facts()["window_scale"], serde_json::Value::Null);
}

#[test]
fn one_end_alone_is_drawn_as_far_as_it_goes() {
    let mut made = Made::new(5, 6);
    made.sent(0, 1, 1000);
    made.sent(10_000, 1001, 1000);
    let series = of_client(&made);
    assert_eq!((series.bars.len(), series.answers.len()), (2, 0));
    assert!(series.flight.is_empty() && series.round_trips.is_empty() && series.goodput.is_empty());
    let server = made.direction(Side::Server).series;
    assert_eq!((server.bars.len(), server.answers.len()), (0, 2));
    assert!(made.direction(Side::Client).facts()["goodput_bytes_per_s"].is_null());
}

#[test]
fn scale_is_of_both_options_or_none() {
    let of = |client, server| {
        let made = Made::begun(1, 2, [client, server]);
        (
            made.direction(Side::Client).series.scale,
            made.direction(Side::Server).series.scale,
        )
    };
    assert_eq!(of(Some(5), Some(9)), (Scale::Known(9), Scale::Known(5)));
    assert_eq!(of(Some(5), None), (Scale::Known(0), Scale::Known(0)));
    assert_eq!(of(None, None), (Scale::Known(0), Scale::Known(0)));
    // The option may be in what was cut off.
    let mut made = Made::begun(1, 2, [Some(5), None]);
    made.segments[1].header.is_cut = true;
    assert_eq!(of_client(&made).scale, Scale::Unknown);
    made.segments.remove(1);
    assert_eq!(
        of_client(&made).scale,
        Scale::Unknown,
        "the SYN was never answered"
    );
}

#[test]
fn resets_are_marked_and_far_numbers_left_out() {
    let mut made = Made::begun(1000, 2000, BOTH);
    made.sent(20_000, 1, 100);
    made.sent(21_000, 1 << 31, 100); // no window is as large
    made.acked(22_000, (1 << 31) + 5);
    made.add(23_000, Side::Server, 1, Some(101), 0).flags = Flags::RST.with(Flags::ACK, true);
    made.sent(24_000, 101, 0).flags = Flags::RST;
    let series = of_client(&made);
    assert_eq!(series.strays, 2);
    assert_eq!(series.marked(What::Reset), 2);
    assert_eq!(series.bars.len(), 2);
    let top = series.bars.iter().map(|bar| bar.end).max();
    assert_eq!(top, Some(101));
}

#[test]
fn keep_alive_is_no_retransmission() {
    let mut made = Made::begun(1000, 2000, BOTH);
    made.sent(20_000, 1, 100);
    made.sent(21_000, 100, 1); // not yet acknowledged
    made.acked(28_000, 101);
    made.sent(7_000_000, 100, 1);
    let series = of_client(&made);
    assert_eq!(kinds(&series)[1..], [Kind::New, Kind::Again, Kind::Probe]);
}

#[test]
fn times_that_go_back_and_hostile_headers_do_no_harm() {
    let mut made = Made::begun(1000, 2000, BOTH);
    let mut state = 0x1234_5678_9abc_def0_u64;
    for _ in 0..20_000 {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let bits = state >> 16;
        let [a, b, c, d, e, f, ..] = bits.to_le_bytes();
        let from = if a & 1 == 0 {
            Side::Client
        } else {
            Side::Server
        };
        let number = u32::from_le_bytes([b, c, d, e]) >> (a & 31);
        let text = u32::from(f) << (a & 15);
        let header = made.add(
            bits % 1_000_000_000,
            from,
            number,
            Some(number ^ text),
            text,
        );
        header.flags =
            [Flags::ACK, SYN_ACK, Flags::RST, Flags::FIN, Flags::PSH][usize::from(b) % 5];
        header.window = u16::from_le_bytes([c, d]);
        header.add_sack((number, number.wrapping_add(text)));
        header.scale = Some(a & 15);
    }
    for side in [Side::Client, Side::Server] {
        let series = made.direction(side).series;
        assert!(series.throughput.len() <= 122 && !series.bars.is_empty());
    }
}

const SYN_ACK: Flags = Flags::ACK.with(Flags::SYN, true);

#[test]
fn intervals_are_round() {
    assert_eq!(interval(0), 1_000);
    assert_eq!(interval(SECOND), 10_000_000);
    assert_eq!(interval(12 * SECOND), 100_000_000);
    assert_eq!(interval(13 * SECOND), 200_000_000);
    assert!(interval(u64::MAX) >= u64::MAX / INTERVALS);
    let far = rate(&[(u64::MAX, 5)], interval(u64::MAX), u64::MAX);
    assert!(far.len() <= 121);
}
