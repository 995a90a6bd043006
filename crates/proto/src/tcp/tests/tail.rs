//! Losses among the last segments of a transfer, of which the very last is short and carries the FIN.

use super::*;
use std::vec;

/// Full segments before the short one.
const FULL: usize = 6;
const SHORT: usize = 88;

/// Sends seven segments of which `lost` (by index) do not arrive, the FIN with the last one.
fn transfer(lost: &[usize]) -> (Pair, Vec<u8>) {
    let mut pair = Pair::established(&Config::default(), &Config::default());
    let data = pair.rng.bytes(FULL * 1448 + SHORT);
    pair.ends[0].write(&data);
    pair.ends[0].conn().shutdown();
    let segments = pair.intercept();
    assert_eq!(segments.len(), FULL + 1);
    for (index, (to, header, text)) in segments.into_iter().enumerate() {
        if !lost.contains(&index) {
            pair.launch(to, header, text);
        }
    }
    for end in &mut pair.ends {
        end.sent.clear();
    }
    (pair, data)
}

/// However little the acknowledgment delivers that begins recovery (RFC 9937 §6 counts bytes), the first retransmission leaves at once; and what is
/// left of it, a short segment lets the next loss go, too. The FIN counts as what was sacked: it is not sent again.
#[test]
fn losses_before_a_short_last_segment() {
    for lost in [&[3][..], &[4], &[5], &[2, 3], &[1, 2], &[0, 2], &[4, 5]] {
        let (mut pair, data) = transfer(lost);
        pair.run_for(Duration::from_millis(100));
        assert!(pair.ends[1].received == data, "{lost:?}");
        assert!(pair.ends[1].events.contains(Events::PEER_CLOSED));
        let info = pair.ends[0].conn().info();
        assert_eq!(
            (info.timeouts, info.sending.tail_probes),
            (0, 0),
            "{lost:?}"
        );
        let again: Vec<u32> = pair.ends[0].sent.iter().map(|(_, t)| t.len).collect();
        assert_eq!(
            again,
            vec![1448; lost.len()],
            "{lost:?}: no more than what was lost"
        );
    }
    let (mut pair, _) = transfer(&[1, 2]);
    pair.run_for(Duration::from_millis(100));
    let times: Vec<Instant> = pair.ends[0].sent.iter().map(|(at, _)| *at).collect();
    assert_eq!(times[0], times[1], "both within one round trip");
}

/// The last segment and the one before it: the tail loss probe's answer reports the other.
#[test]
fn the_last_two() {
    let (mut pair, data) = transfer(&[5, 6]);
    pair.run_for(Duration::from_millis(150));
    assert!(pair.ends[1].received == data);
    let info = pair.ends[0].conn().info();
    assert_eq!((info.timeouts, info.sending.tail_probes), (0, 1));
    let again: Vec<u32> = pair.ends[0].sent.iter().map(|(_, t)| t.len).collect();
    assert_eq!(again, [SHORT as u32, 1448]);
}

/// The blocks that the receiver reported last.
fn told(pair: &Pair) -> Vec<(SeqNum, SeqNum)> {
    let (_, last) = pair.ends[1].sent.last().expect("an acknowledgment");
    last.header.options.sack.as_slice().to_vec()
}

/// RFC 2018 §3: a FIN behind a gap has been received, and is reported like text: with the text that it came with, by itself, with the text that
/// comes between, and no more once it counts.
#[test]
fn a_fin_behind_a_gap_is_sacked() {
    let mut pair = Pair::established(&Config::default(), &Config::default());
    let una = pair.ends[0].conn().snd.una;
    let data = pair.rng.bytes(3 * 1448);
    pair.ends[0].write(&data);
    let mut segments = pair.intercept();
    pair.ends[0].conn().shutdown();
    segments.extend(pair.intercept());
    assert_eq!(segments.len(), 4);
    let fin = una + 3 * 1448;
    let expected = [
        (3, vec![(fin, fin + 1)]),
        (1, vec![(una + 1448, una + 2 * 1448), (fin, fin + 1)]),
        (2, vec![(una + 1448, fin + 1)]),
    ];
    for (index, blocks) in expected {
        let (to, header, text) = segments[index].clone();
        pair.deliver(to, &header, text);
        pair.drain();
        assert_eq!(told(&pair), blocks, "after segment {index}");
    }
    let (to, header, text) = segments[0].clone();
    pair.deliver(to, &header, text);
    pair.drain();
    assert_eq!(told(&pair), []);
    assert!(pair.ends[1].received == data);
    assert!(pair.ends[1].events.contains(Events::PEER_CLOSED));
}

/// A peer whose blocks leave the FIN out: with a byte under way and 88 delivered, the first retransmission leaves whole all the same, the second one
/// waits.
#[test]
fn the_first_retransmission_leaves_whole() {
    let mut prr = prr::Prr::begin(4 * 1448 + 89, 2 * 1448);
    let told = |in_flight| prr::Told {
        delivered: 88,
        in_flight,
        is_safe: false,
    };
    assert_eq!(prr.window(told(1), 7 * 1448, 1448), 1 + 1448);
    prr.out = 1448;
    assert_eq!(prr.window(told(1449), 7 * 1448, 1448), 1449 + 88);
    // Nor does a share of less than a segment, where more is under way than shall be.
    let mut prr = prr::Prr::begin(10 * 1448, 2 * 1448);
    let first = prr::Told {
        delivered: 1000,
        in_flight: 8 * 1448,
        is_safe: false,
    };
    assert_eq!(prr.window(first, 7 * 1448, 1448), 9 * 1448);
}

/// Transmission times are known modulo 71 minutes: a loss after a silence of any length is found by what arrived, not by the timeout.
#[test]
fn a_loss_after_a_long_silence() {
    for minutes in [10, 40, 60, 80] {
        let mut pair = Pair::established(&Config::default(), &Config::default());
        pair.ends[0].write(&[7; 100]);
        pair.run_for(Duration::from_secs(60 * minutes));
        let (data, again) = loss::lose(&mut pair, 8, &[2]);
        assert_eq!(again.len(), 1, "after {minutes} minutes");
        assert!(pair.ends[1].received[100..] == data);
        let info = pair.ends[0].conn().info();
        assert_eq!(
            (info.timeouts, info.recoveries),
            (0, 1),
            "after {minutes} minutes"
        );
    }
}

/// RFC 8985 §7.4.2: the probe was not needed, since what it repeats had only been late. A peer reports it by D-SACK, or, without that, by a second
/// acknowledgment of the same, whether or not something new has been sent meanwhile. Told by neither, the probe has hidden a loss.
#[test]
fn a_probe_that_was_not_needed() {
    let cases = [
        (true, true, false),
        (false, true, false),
        (false, false, true),
    ];
    for ((dsack, twice, reduces), more_first) in cases.iter().flat_map(|&c| [(c, false), (c, true)])
    {
        // Else what is late is dropped by its timestamp.
        let config = Config {
            timestamps: false,
            ..Config::default()
        };
        let mut pair = Pair::established(&config, &config);
        pair.ends[0].write(&[7; 1000]);
        let (_, late, text) = pair.intercept().remove(0);
        pair.run_for(Duration::from_millis(500));
        let info = pair.ends[0].conn().info();
        assert_eq!((info.timeouts, info.sending.tail_probes), (0, 1));
        assert_eq!(pair.ends[1].received.len(), 1000, "the probe came");
        pair.deliver(1, &late, text);
        let (_, mut again, _) = pair.intercept().remove(0);
        assert!(!again.options.sack.is_empty());
        if !dsack {
            again.options.sack = Default::default();
        }
        let before = pair.ends[0].conn().cwnd();
        if more_first {
            pair.ends[0].write(&[8; 1000]);
            pair.drain();
        }
        if twice {
            pair.deliver(0, &again, Vec::new());
        }
        pair.ends[0].write(&[9; 1000]);
        pair.run_for(Duration::from_millis(100));
        let after = pair.ends[0].conn().cwnd();
        assert_eq!(
            after < before,
            reduces,
            "{dsack} {twice} {more_first}: {before}, {after}"
        );
    }
}
