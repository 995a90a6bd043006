//! How much text leaves together, and that a burst ends with PSH.

use super::*;

/// Two ends `delay` from each other, and how the first sends 14,600 bytes, its initial window: bytes of each transmission, and whether it
/// is pushed.
fn sent(client: Config, server: Config, delay: Duration) -> Vec<(u32, bool)> {
    let mut pair = Pair::listening(1, &client, &server);
    pair.faults.delay = delay;
    pair.run_for(Duration::from_secs(1));
    assert_eq!(pair.ends[0].state(), State::Established);
    pair.ends[0].sent.clear();
    // One segment more than may leave: none of these is the last of the text.
    pair.ends[0].write(&[7; 16_060]);
    pair.intercept();
    let of = |transmit: &Transmit| (transmit.len, transmit.header.flags.contains(Flags::PSH));
    pair.ends[0].sent.iter().map(|(_, t)| of(t)).collect()
}

fn large() -> Config {
    Config {
        timestamps: false,
        burst: 65_000,
        ..Config::default()
    }
}

const NEAR: Duration = Duration::from_micros(10);
const FAR: Duration = Duration::from_millis(50);

/// Of the congestion window: while one half is under way, the acknowledgment of the other lets more leave. A burst's last segment is
/// pushed although there is more text.
#[test]
fn a_burst_is_half_the_congestion_window() {
    let bursts = sent(large(), Config::default(), NEAR);
    assert_eq!(bursts, [(7300, true), (7300, true)]);
}

/// Segments that leave one by one are pushed only where the text ends (RFC 9293 MUST-61), as before.
#[test]
fn a_single_segment_is_no_burst() {
    let client = Config {
        burst: 0,
        ..large()
    };
    let bursts = sent(client, Config::default(), NEAR);
    assert_eq!(bursts, [(1460, false); 10]);
}

/// The most that the peer ever offered counts; where it offers no more than a small segment, that is not divided.
#[test]
fn a_burst_is_half_the_peers_window() {
    let server = |receive_buffer| Config {
        receive_buffer,
        window_scale: false,
        ..Config::default()
    };
    let bursts = sent(large(), server(9000), NEAR);
    assert_eq!(bursts, [(4380, true), (4380, true)]);
    let tiny = Config {
        mss: 100,
        ..large()
    };
    let bursts = sent(tiny, server(500), NEAR);
    assert_eq!(bursts, [(500, true)]);
}

/// On a slow path a burst is two segments, or what the setting says, up to half the window.
#[test]
fn a_far_peers_bursts_are_small() {
    let least = |burst_segments_min| Config {
        burst_segments_min,
        ..large()
    };
    let lens = |n| {
        let bursts = sent(least(n), Config::default(), FAR);
        assert!(bursts.iter().all(|(len, pushed)| *pushed == (*len > 1460)));
        bursts
            .iter()
            .map(|(len, _)| *len / 1460)
            .collect::<Vec<_>>()
    };
    assert_eq!(lens(2), [2, 2, 2, 2, 2]);
    assert_eq!(lens(4), [4, 4, 2]);
    assert_eq!(lens(100), [5, 5]);
    assert_eq!(lens(0), [1; 10]);
}
