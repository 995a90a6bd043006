//! Losses found by counting (RFC 6675), with RACK-TLP switched off.

use super::loss::lose;
use super::*;

fn pair(rack: bool) -> Pair {
    let config = Config {
        rack,
        timestamps: false,
        nagle: false,
        congestion: CongestionControl::NewReno,
        ..Config::default()
    };
    Pair::established(&config, &config)
}

/// RFC 6675 §4, §5: what three segments overtook is sent again within a round trip, each once, and the window is halved once.
#[test]
fn overtaken_segments_are_lost() {
    let mut pair = pair(false);
    let (data, again) = lose(&mut pair, 20, &[2, 5, 9, 10]);
    let expected = [2, 5, 9, 10].map(|n| (SeqNum(n * 1460), 1460));
    assert_eq!(again, expected);
    assert!(pair.ends[1].received == data);
    let info = pair.ends[0].conn().info();
    assert_eq!((info.timeouts, info.recoveries), (0, 1));
}

/// RFC 6675 §4: two segments above a gap are no loss. RACK has waited long enough by then, counting has not.
#[test]
fn two_segments_say_nothing() {
    for rack in [true, false] {
        let mut pair = pair(rack);
        let (data, _) = lose(&mut pair, 3, &[0]);
        let info = pair.ends[0].conn().info();
        assert_eq!(info.timeouts, u32::from(!rack), "rack {rack}");
        pair.run_for(Duration::from_secs(1));
        assert!(pair.ends[1].received == data);
    }
}

/// RFC 8985 §7 off: a silent tail waits for the timeout.
#[test]
fn no_probe_asks_after_the_tail() {
    for rack in [true, false] {
        let mut pair = pair(rack);
        let (data, _) = lose(&mut pair, 10, &[8, 9]);
        pair.run_for(Duration::from_secs(1));
        assert!(pair.ends[1].received == data);
        let info = pair.ends[0].conn().info();
        assert_eq!(info.timeouts, u32::from(!rack), "rack {rack}");
        assert_eq!(info.sending.tail_probes, u32::from(rack), "rack {rack}");
    }
}

/// RFC 6675 §5: a segment goes out once in a recovery; that it was lost again is the timeout's to find.
#[test]
fn a_lost_retransmission_waits_for_the_timeout() {
    let mut pair = pair(false);
    pair.ends[0].conn().congestion.window.cwnd = 20 * 1460;
    let data = pair.rng.bytes(60 * 1460);
    pair.ends[0].write(&data);
    pair.unlucky = (pair.ends[0].conn().snd.una, 2);
    while pair.ends[1].received.len() < data.len() {
        assert!(pair.step(Instant::FAR));
    }
    assert_eq!(pair.unlucky.1, 0);
    assert_eq!(pair.ends[0].conn().info().timeouts, 1);
    assert!(pair.ends[1].received == data);
}
