//! What an acknowledgment does not say: when what lay behind a gap arrived, and whether a timeout was too early.

use super::*;

fn pair(timestamps: bool) -> Pair {
    let config = Config {
        sack: false,
        timestamps,
        nagle: false,
        congestion: CongestionControl::NewReno,
        ..Config::default()
    };
    Pair::established(&config, &config)
}

/// Sends `segments`, of which `lost` stay away, and loses every answer; the text.
fn send_without_answers(pair: &mut Pair, segments: usize, lost: &[usize]) -> Vec<u8> {
    let mss = usize::from(pair.ends[0].conn().send_mss());
    let data = pair.rng.bytes(segments * mss);
    pair.ends[0].write(&data);
    for (index, (to, header, text)) in pair.intercept().into_iter().enumerate() {
        if !lost.contains(&index) {
            pair.deliver(to, &header, text);
        }
    }
    pair.intercept();
    data
}

/// RFC 6298 §3: a retransmission closes a gap, and the acknowledgment covers what had waited behind it since before the timeout. That is no round
/// trip of so long, with or without timestamps.
#[test]
fn what_waited_behind_a_gap_is_not_measured() {
    for timestamps in [false, true] {
        let mut pair = pair(timestamps);
        let rtt = pair.ends[0].conn().info().rtt;
        let data = send_without_answers(&mut pair, 6, &[0]);
        pair.run_for(Duration::from_millis(600));
        assert!(pair.ends[1].received == data);
        let info = pair.ends[0].conn().info();
        assert_eq!((info.timeouts, info.retransmits), (1, 1));
        assert!(info.rtt <= rtt + Duration::from_millis(2), "{info:?}");
    }
}

/// RFC 5682 §3.1: without SACK what was never sent again may have arrived before the timeout as well as after it. The timeout was no error: what is
/// missing still goes out at once, not after the next one.
#[test]
fn a_gap_closed_after_a_timeout_excuses_nothing() {
    let mut pair = pair(true);
    let data = send_without_answers(&mut pair, 9, &[0, 3, 6]);
    let start = pair.now;
    while pair.ends[1].received.len() < data.len() {
        assert!(pair.step(Instant::FAR));
    }
    assert!(pair.ends[1].received == data);
    assert!(pair.now.since(start) < Duration::from_millis(400));
    let info = pair.ends[0].conn().info();
    assert_eq!((info.timeouts, info.sending.undos), (1, 0));
}
