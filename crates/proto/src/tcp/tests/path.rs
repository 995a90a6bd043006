//! What a path takes, told by routers or found out: RFC 1191, RFC 8201, RFC 5927, RFC 4821.

use super::*;

fn config(mtu_probing: MtuProbing) -> Config {
    Config {
        mtu_probing,
        nagle: false,
        ..Config::default()
    }
}

/// An open connection whose path loses longer text than `most` bytes; `tells`: and says so.
fn narrow(config: &Config, most: usize, tells: bool) -> Pair {
    let server = Config {
        receive_buffer: 100_000,
        ..Config::default()
    };
    let mut pair = Pair::established(config, &server);
    pair.narrow = Some((most, tells));
    pair
}

/// Sends `total` bytes and waits until they are read, for `seconds` at most.
fn transfer(pair: &mut Pair, total: usize, seconds: u64) -> bool {
    let bytes = pair.rng.bytes(total);
    let before = pair.ends[1].received.len();
    pair.ends[0].write(&bytes);
    for _ in 0..seconds * 10 {
        if pair.ends[1].received.len() == before + total {
            assert!(pair.ends[1].received[before..] == bytes);
            return true;
        }
        pair.run_for(Duration::from_millis(100));
    }
    false
}

/// RFC 1191 §6.3: believed at once where nothing longer has arrived yet; ten minutes later longer segments are tried, not before.
#[test]
fn a_router_is_believed_for_ten_minutes() {
    let mut pair = narrow(&config(MtuProbing::Off), 1000, true);
    assert!(transfer(&mut pair, 100_000, 5));
    assert_eq!(pair.ends[0].conn().send_mss(), 1000);
    assert_eq!(pair.ends[0].conn().path_limit(), Some(1012));
    pair.narrow = None;
    pair.run_for(Duration::from_secs(290));
    assert!(transfer(&mut pair, 100_000, 5));
    assert_eq!(
        pair.ends[0].conn().send_mss(),
        1000,
        "five minutes are the least"
    );
    pair.run_for(Duration::from_secs(320));
    assert!(transfer(&mut pair, 100_000, 5));
    assert_eq!(pair.ends[0].conn().send_mss(), 1448);
    assert_eq!(pair.ends[0].conn().path_limit(), None);
}

/// RFC 5927 §7.2: a claim that the path takes less than what has just been acknowledged waits until the segment it quotes stays away.
#[test]
fn a_claim_below_what_arrived_waits_for_a_timeout() {
    let mut pair = Pair::established(&config(MtuProbing::Off), &Config::default());
    assert!(transfer(&mut pair, 100_000, 5));
    // Forged: all goes on, and the claim is forgotten with the segment that it quoted.
    let bytes = pair.rng.bytes(20_000);
    pair.ends[0].write(&bytes);
    pair.drain();
    let una = pair.ends[0].conn().snd.una;
    pair.ends[0]
        .conn()
        .on_icmp(IcmpError::TooBig { mss: 600 }, una, true);
    assert_eq!(pair.ends[0].conn().send_mss(), 1448);
    pair.run_for(Duration::from_secs(5));
    assert_eq!(pair.ends[0].conn().send_mss(), 1448);
    // True: the path has become narrower.
    pair.narrow = Some((588, true));
    assert!(transfer(&mut pair, 50_000, 20));
    assert_eq!(pair.ends[0].conn().send_mss(), 588);
}

/// RFC 4821 §7.7: repeated timeouts without a word from any router; shorter segments pass, and the search ends near what fits.
#[test]
fn a_black_hole_is_found_and_measured() {
    for (most, base) in [(1100, 1012), (800, 500)] {
        let mut pair = narrow(&config(MtuProbing::BlackHole), most, false);
        assert!(transfer(&mut pair, 1_500_000, 60), "{most}");
        let mss = usize::from(pair.ends[0].conn().send_mss());
        assert!(
            mss >= base && mss <= most && mss + 8 >= most,
            "{mss} of {most}"
        );
    }
    let mut pair = narrow(&config(MtuProbing::Off), 1100, false);
    assert!(!transfer(&mut pair, 300_000, 60), "no probe looks for it");
}

/// RFC 8200 §5: IPv6 paths take 1280 bytes, so that nothing shorter is tried.
#[test]
fn no_path_is_asked_for_less_than_its_family_guarantees() {
    let six = Config {
        default_mss: 1220,
        ..config(MtuProbing::BlackHole)
    };
    let mut pair = narrow(&six, 0, false);
    assert!(!transfer(&mut pair, 50_000, 30));
    assert_eq!(pair.ends[0].conn().send_mss(), 1220 - 12);
}

/// RFC 4821 §7.6, §7.7: with `always` a connection begins small and finds what fits; a lost probe is no congestion.
#[test]
fn path_probes_find_mtu_without_congestion() {
    for most in [1448, 1300, 1200] {
        let mut pair = narrow(&config(MtuProbing::Always), most, false);
        assert_eq!(pair.ends[0].conn().send_mss(), 1012);
        assert!(transfer(&mut pair, 1_500_000, 30), "{most}");
        let conn = pair.ends[0].conn();
        let mss = usize::from(conn.send_mss());
        assert!(mss <= most && mss + 8 >= most, "{mss} of {most}");
        let info = conn.info();
        assert_eq!(info.timeouts, 0, "{most}");
        assert_eq!(
            info.ssthresh_bytes,
            u32::MAX,
            "no window was reduced: {most}"
        );
    }
}

/// RFC 8201 §4: no message makes segments longer; and one about a probe only ends the probing of such sizes.
#[test]
fn messages_about_probes_shorten_nothing_else() {
    let mut pair = narrow(&config(MtuProbing::Always), 1300, true);
    assert!(transfer(&mut pair, 1_500_000, 30));
    let mss = pair.ends[0].conn().send_mss();
    assert!((1292..=1300).contains(&mss), "{mss}");
    assert_eq!(pair.ends[0].conn().info().timeouts, 0);
}

/// RFC 4821 §7.7: losses in a row are no black hole. Without SACK, which probes need, full segments are simply tried again soon; where those stay
/// away every time, shorter ones remain.
#[test]
fn losses_are_taken_for_a_black_hole_for_moments_only() {
    let without_sack = Config {
        sack: false,
        ..config(MtuProbing::BlackHole)
    };
    let mut pair = narrow(&without_sack, usize::MAX, false);
    pair.faults.loss = 1000;
    pair.ends[0].write(&[7; 10_000]);
    pair.run_for(Duration::from_millis(2_000));
    assert_eq!(pair.ends[0].conn().send_mss(), 1012);
    pair.faults.loss = 0;
    pair.run_for(Duration::from_secs(5));
    assert_eq!(pair.ends[0].conn().info().in_flight_bytes, 0);
    pair.ends[1].received.clear();
    assert!(transfer(&mut pair, 10_000, 1));
    assert_eq!(pair.ends[0].conn().send_mss(), 1448);

    let mut pair = narrow(&without_sack, 1100, false);
    for _ in 0..4 {
        assert!(transfer(&mut pair, 100_000, 60));
        pair.run_for(Duration::from_secs(3));
    }
    assert!(transfer(&mut pair, 100_000, 1), "found, and believed");
    assert_eq!(pair.ends[0].conn().send_mss(), 1012);
}
