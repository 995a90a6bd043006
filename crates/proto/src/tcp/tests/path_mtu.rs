//! Each decision of path MTU discovery by itself, on both of its sides (RFC 1191, RFC 4821, RFC 5927); whole paths are in `path.rs`.

use super::*;
use crate::tcp::config::Config;

/// Ten minutes, in units of [`Instant::coarse`], which are 2^30 ns.
const TEN_MINUTES: u32 = 560;
const NOW: Instant = Instant(50 << 30);

/// An open connection without options in its segments, which link and peer allow 1460 bytes.
fn open(mtu_probing: MtuProbing) -> Connection {
    let config = Config {
        mtu_probing,
        timestamps: false,
        initial_cwnd: 100,
        ..Config::default()
    };
    let mut conn = Connection::open_active(&config, 1, 2, SeqNum(1_000), 0, NOW);
    conn.state = State::Established;
    conn.peer_mss = 1460;
    conn.sack = true;
    conn.snd.una = SeqNum(1_001);
    conn.snd.nxt = SeqNum(1_001);
    conn.snd.end = SeqNum(1_001);
    conn.snd.small = SeqNum(1_001);
    conn.begin_path();
    conn.update_send_mss();
    conn.congestion.open(100_000, conn.snd.mss.into());
    conn
}

/// RFC 4821 §7.3: the largest first, then by halves, until less than eight bytes would be gained.
#[test]
fn sizes_that_are_probed() {
    for (limit, high, size) in [
        (1024, u16::MAX, Some(1460)),
        (1024, 1461, Some(1460)),
        (1024, 1460, Some(1024 + 218)),
        (1024, 1459, Some(1024 + 217)),
        (1242, 1459, Some(1242 + 108)),
        (1451, 1459, Some(1455)),
        (1452, 1459, None),
        (1452, u16::MAX, Some(1460)),
        (1453, u16::MAX, None),
        (1460, u16::MAX, None),
    ] {
        let mut conn = open(MtuProbing::Always);
        conn.path.limit = limit;
        conn.path.high = high;
        assert_eq!(conn.probe_size(), size, "{limit}, {high}");
    }
}

/// What another connection found is kept, but no less than is believed of any path, and for ten minutes.
#[test]
fn a_size_found_by_another_connection() {
    for (state, size, limit, mss) in [
        (State::Established, 1000, Some(1000), 1000),
        (State::Established, 10, Some(64), 64),
        (State::Established, 1460, None, 1460),
        (State::Established, 1459, Some(1459), 1459),
        (State::SynSent, 1000, Some(1000), 1460),
    ] {
        let mut conn = open(MtuProbing::BlackHole);
        conn.state = state;
        conn.set_path_limit(size, NOW);
        assert_eq!(conn.path_limit(), limit);
        assert_eq!(
            (conn.send_mss(), conn.path.raise_at),
            (mss, 50 + TEN_MINUTES)
        );
        conn.begin_path();
        assert_eq!(
            conn.path.raise_at,
            50 + TEN_MINUTES,
            "the handshake keeps it"
        );
        assert_eq!(conn.path.limit, size.max(64));
    }
}

/// RFC 1191 §3, RFC 8201 §4: no path takes more than its first hop does now, whatever is found out of the rest; nor than the SYNs said.
#[test]
fn a_link_whose_mtu_changes() {
    let mut conn = open(MtuProbing::Off);
    for (link, mss) in [
        (1000, 1000),
        (1200, 1200),
        (2000, 1460),
        (10, 64),
        (960, 960),
    ] {
        conn.set_link_limit(link);
        assert_eq!(conn.send_mss(), mss, "{link}");
    }
    assert_eq!(conn.path_limit(), None, "the link says so, not the path");
    // What was learned of the path is as it was, and forgotten in its time; the link's size is not.
    conn.set_path_limit(800, NOW);
    assert_eq!((conn.send_mss(), conn.path_limit()), (800, Some(800)));
    conn.path_acknowledged(Instant(u64::from(51 + TEN_MINUTES) << 30));
    assert_eq!((conn.send_mss(), conn.path.limit), (960, u16::MAX));
    // Nor do probes go beyond, nor is it lost with what a router says.
    conn.path.limit = 500;
    assert_eq!(conn.probe_size(), Some(960));
    conn.path.limit = u16::MAX;
    conn.too_big(900, SeqNum(1_001));
    assert_eq!((conn.send_mss(), conn.path.link), (900, 960));
    conn.begin_path();
    assert_eq!(conn.path.link, 960, "the handshake keeps it");
    // Before the peer has said what it takes, too.
    let mut conn = open(MtuProbing::Off);
    conn.state = State::SynSent;
    conn.set_link_limit(700);
    assert_eq!(conn.send_mss(), 1460);
    conn.state = State::Established;
    conn.begin_path();
    conn.update_send_mss();
    assert_eq!(conn.send_mss(), 700);
}

/// `always` begins small (RFC 4821 §7.2: 1024), or with what is known to be less, or with what the family guarantees.
#[test]
fn what_a_search_begins_with() {
    for (probing, known, default_mss, begins, searches) in [
        (MtuProbing::Always, u16::MAX, 536, 1024, true),
        (MtuProbing::Always, 900, 536, 900, true),
        (MtuProbing::Always, u16::MAX, 1220, 1220, true),
        (MtuProbing::BlackHole, u16::MAX, 536, u16::MAX, false),
        (MtuProbing::Off, 900, 536, 900, false),
    ] {
        let mut conn = open(MtuProbing::Off);
        conn.settings.mtu_probing = probing;
        conn.settings.default_mss = default_mss;
        conn.path.limit = known;
        conn.begin_path();
        assert_eq!((conn.path.limit, conn.path.may_probe()), (begins, searches));
        assert_eq!(conn.path.mark, conn.snd.nxt);
    }
}

/// A probe of 1400 bytes under way from 5,000 on.
fn probing() -> Connection {
    let mut conn = open(MtuProbing::Always);
    conn.path.low = 1_100;
    conn.path.high = 1_450;
    conn.snd.nxt = SeqNum(5_000);
    conn.begin_probe(1_400);
    conn.snd.nxt = SeqNum(6_400);
    conn
}

/// RFC 8201 §4: a message about a probe ends probes as long and says nothing of other segments; the probe is what lies in its sequence numbers.
#[test]
fn messages_about_a_probe() {
    for (quoted, size, high) in [
        (5_000, 1_300, Some(1_300)),
        (6_399, 1_300, Some(1_300)),
        (5_000, 1_000, Some(1_100)), // as long ones have arrived
        (5_000, 1_500, Some(1_450)),
        (4_999, 1_300, None),
        (6_400, 1_300, None),
    ] {
        let mut conn = probing();
        conn.too_big(size, SeqNum(quoted));
        let (found, failures) = match high {
            Some(high) => (high, PROBES_MAX),
            None => (1_450, 0),
        };
        assert_eq!(
            (conn.path.high, conn.path.failures),
            (found, failures),
            "{quoted}"
        );
        assert_eq!(
            conn.path.limit, 1024,
            "nothing is shortened, 1300 is no news"
        );
    }
}

/// RFC 1191, RFC 5927 §7.2: news are smaller than what is in use; what longer segments have contradicted waits for a timeout.
#[test]
fn which_messages_are_believed() {
    for (state, low, size, limit, claim) in [
        (State::Established, 0, 1_460, u16::MAX, 0),
        (State::Established, 0, 1_459, 1_459, 0),
        (State::Established, 0, 20, 64, 0),
        (State::Established, 1_200, 1_200, 1_200, 0),
        (State::Established, 1_200, 1_199, u16::MAX, 1_199),
        (State::SynReceived, 1_200, 1_199, 1_199, 0),
    ] {
        let mut conn = open(MtuProbing::BlackHole);
        conn.state = state;
        conn.path.low = low;
        conn.last_sent = NOW;
        conn.too_big(size, SeqNum(1_001));
        assert_eq!((conn.path.limit, conn.cold.claim), (limit, claim), "{size}");
        if limit < u16::MAX {
            assert_eq!((conn.path.high, conn.path.low), (limit, low.min(limit)));
            assert_eq!(conn.path.raise_at, 50 + TEN_MINUTES);
        }
    }
}

/// RFC 5927 §7.2: a claim is believed with a timeout if what it quotes is still not acknowledged, and if it is still news.
#[test]
fn a_claim_after_a_timeout() {
    for (quoted, claim, limit) in [
        (1_001, 900, 900),
        (1_000, 900, u16::MAX),
        (1_001, 1_460, u16::MAX),
        (1_001, 1_459, 1_459),
        (1_001, 0, u16::MAX),
    ] {
        let mut conn = open(MtuProbing::Off);
        conn.cold.claim = claim;
        conn.cold.quoted = SeqNum(quoted);
        conn.path_timed_out(NOW);
        assert_eq!(
            (conn.path.limit, conn.cold.claim),
            (limit, 0),
            "{quoted} {claim}"
        );
        if limit < u16::MAX {
            assert_eq!(conn.congestion.window.cwnd, u32::from(limit), "one segment");
        }
    }
}

/// Most connections receive no claim, and hold no memory for one.
#[test]
fn no_claim_takes_no_memory() {
    let mut conn = open(MtuProbing::Off);
    conn.path_timed_out(NOW);
    assert!(!conn.cold.is_made());
}

/// RFC 4821 §7.7: with the third timeout in a row, 1024 bytes, with the fifth, 512, if so much waits; then larger ones are looked for.
#[test]
fn silence_shortens() {
    for (probing, attempts, waits, default_mss, limit) in [
        (MtuProbing::BlackHole, 2, 2_000, 536, None),
        (MtuProbing::BlackHole, 3, 2_000, 536, Some(1_024)),
        (MtuProbing::BlackHole, 4, 2_000, 536, Some(1_024)),
        (MtuProbing::BlackHole, 5, 2_000, 536, Some(536)),
        (MtuProbing::BlackHole, 5, 2_000, 100, Some(512)),
        (MtuProbing::BlackHole, 3, 1_025, 536, Some(1_024)),
        (MtuProbing::BlackHole, 3, 1_024, 536, None),
        (MtuProbing::BlackHole, 3, 2_000, 1_460, None),
        (MtuProbing::BlackHole, 3, 2_000, 1_459, Some(1_459)),
        (MtuProbing::Off, 5, 2_000, 536, None),
    ] {
        let mut conn = open(probing);
        conn.settings.default_mss = default_mss;
        conn.attempts = attempts;
        conn.path.low = 1_300;
        conn.snd.nxt = conn.snd.una + waits;
        conn.path.probe = Probe {
            start: SeqNum(7),
            len: 9,
            size: 9,
        };
        conn.path_timed_out(NOW);
        assert_eq!(conn.path_limit(), limit, "{attempts} {waits}");
        assert_eq!(conn.path.probe, Probe::NONE, "it tells nothing now");
        if limit.is_some() {
            let path = &conn.path;
            assert_eq!((path.high, path.low, path.failures), (u16::MAX, 0, 0));
            assert!(path.may_probe() && path.watches);
        }
    }
}

/// Without SACK a suspicion is held for two seconds, and for good after three of them: five timeouts confirm none.
#[test]
fn suspicions_without_sack() {
    for (attempts, before, failures, raise_at) in [
        (3, 0, 1, 52),
        (4, 1, 2, 52),
        (3, 2, 3, 50 + TEN_MINUTES),
        (3, 9, 3, 50 + TEN_MINUTES),
        (5, 1, 1, 52),
    ] {
        let mut conn = open(MtuProbing::BlackHole);
        conn.sack = false;
        conn.attempts = attempts;
        conn.path.failures = before;
        conn.snd.nxt = conn.snd.una + 2_000;
        conn.path_timed_out(NOW);
        assert_eq!(
            (conn.path.failures, conn.path.raise_at),
            (failures, raise_at)
        );
        assert!(!conn.path.may_probe());
    }
}

/// RFC 4821 §7.4: a probe goes while the connection is steady, with SACK, if windows have room for it and five segments wait behind it.
#[test]
fn when_a_probe_goes() {
    let due = |change: &dyn Fn(&mut Connection), text, room| {
        let mut conn = open(MtuProbing::Always);
        change(&mut conn);
        conn.probe_due(text, room)
    };
    let nothing = |_: &mut Connection| {};
    let text = 1_460 + 5 * 1_024;
    assert_eq!(due(&nothing, text, 1_460), Some(1_460));
    assert_eq!(due(&nothing, text - 1, 1_460), None);
    assert_eq!(due(&nothing, text, 1_459), None);
    assert_eq!(due(&|conn| conn.sack = false, text, 1_460), None);
    assert_eq!(due(&|conn| conn.fin_queued = true, text, 1_460), None);
    let blocks = |conn: &mut Connection| {
        conn.cold.sack_blocks.push(SeqNum(1), SeqNum(2));
    };
    assert_eq!(due(&blocks, text, 1_460), None);
    // Options in each segment leave less of it to text.
    let signed = |conn: &mut Connection| {
        conn.signature = 20;
        conn.update_send_mss();
    };
    let text = 1_440 + 5 * 1_004;
    assert_eq!(due(&signed, text, 1_440), Some(1_440));
    assert_eq!(due(&signed, text - 1, 1_440), None);
    // Nothing to gain: the search is over.
    let mut conn = open(MtuProbing::Always);
    conn.path.high = 1_031;
    assert!(conn.path.may_probe());
    assert_eq!(conn.probe_due(1 << 20, 1 << 20), None);
    assert!(!conn.path.may_probe());
}

/// A probe is known by where it begins; what is sent again there is none.
#[test]
fn a_probe_is_known_by_its_place() {
    let mut conn = open(MtuProbing::Always);
    conn.signature = 20;
    conn.update_send_mss();
    conn.snd.nxt = SeqNum(5_000);
    assert!(!conn.path.is_probe(SeqNum(0)) && conn.path.may_probe());
    conn.begin_probe(1_400);
    let path = &mut conn.path;
    let probe = Probe {
        start: SeqNum(5_000),
        len: 1_400,
        size: 1_420,
    };
    assert_eq!((path.probe, path.may_probe()), (probe, false));
    assert_eq!(path.segment(SeqNum(5_000), 1_004), 1_400);
    assert_eq!(path.segment(SeqNum(5_001), 1_004), 1_004);
    path.resent(SeqNum(5_001));
    assert!(path.is_probe(SeqNum(5_000)));
    path.resent(SeqNum(5_000));
    assert_eq!(path.probe, Probe::NONE);
}

/// Acknowledgments are looked at if a full segment was acknowledged, a probe is under way, or a larger size waits for its time.
#[test]
fn which_acknowledgments_tell() {
    for (watches, acked, probe, raise_at, learns) in [
        (true, 1_460, 0, NEVER, true),
        (true, 1_459, 0, NEVER, false),
        (true, 0, 1, NEVER, true),
        (true, 0, 0, NEVER - 1, true),
        (false, 5_000, 1, 0, false),
    ] {
        let mut conn = open(MtuProbing::BlackHole);
        conn.path.watches = watches;
        conn.snd.una = conn.snd.small + acked;
        conn.path.probe.len = probe;
        conn.path.raise_at = raise_at;
        assert_eq!(conn.path_learns(), learns);
    }
}

/// A full segment since the last small one, and since the size in use began, shows that its size passes.
#[test]
fn full_segments_show_that_their_size_passes() {
    for (una, small, mark, low) in [
        (2_460, 1_000, 1_000, 1_460),
        (2_459, 1_000, 1_000, 0),
        (2_460, 1_001, 1_000, 0),
        (2_460, 1_000, 1_001, 0),
        (9_000, 1_001, 1_001, 1_460),
    ] {
        let mut conn = open(MtuProbing::BlackHole);
        conn.snd.una = SeqNum(una);
        conn.snd.small = SeqNum(small);
        conn.path.mark = SeqNum(mark);
        conn.path_acknowledged(NOW);
        assert_eq!(conn.path.low, low, "{una} {small} {mark}");
        assert_eq!(conn.path.watches, low == 0);
    }
    // Without SACK that also ends suspicions, unless shorter segments are in use.
    for (sack, limit, failures) in [(false, u16::MAX, 0), (false, 1_000, 2), (true, u16::MAX, 2)] {
        let mut conn = open(MtuProbing::BlackHole);
        (conn.sack, conn.path.limit, conn.path.failures) = (sack, limit, 2);
        conn.snd.una = SeqNum(9_000);
        conn.path_acknowledged(NOW);
        assert_eq!(conn.path.failures, failures);
    }
}

/// RFC 1191 §6.3: when its time is over a larger size is tried, by a search where that is possible, else at once.
#[test]
fn larger_sizes_are_tried_in_time() {
    for (probing, sack, raise_at, limit, searches, left) in [
        (MtuProbing::Off, true, 50, u16::MAX, false, NEVER),
        (MtuProbing::Off, true, 51, 1_000, false, 51),
        (MtuProbing::BlackHole, false, 49, u16::MAX, false, NEVER),
        (MtuProbing::BlackHole, true, 50, 1_000, true, NEVER),
    ] {
        let mut conn = open(probing);
        conn.path.limit = 1_000;
        (conn.sack, conn.path.raise_at, conn.path.high) = (sack, raise_at, 1_000);
        conn.path_acknowledged(NOW);
        let path = &conn.path;
        assert_eq!(
            (path.limit, path.may_probe(), path.raise_at),
            (limit, searches, left)
        );
        assert_eq!(path.high, if left == NEVER { u16::MAX } else { 1_000 });
        assert!(path.watches, "all of these go on");
    }
}

/// A probe that arrived is the size from now on; the search goes on as long as it may gain.
#[test]
fn a_probe_that_arrived() {
    for (una, len, limit, low, searches, raise_at) in [
        (6_399, 1_400, 1_024, 0, true, NEVER),
        (6_400, 1_400, 1_400, 1_400, true, NEVER),
        (6_460, 1_460, 1_460, 1_460, false, NEVER),
    ] {
        let mut conn = open(MtuProbing::Always);
        conn.snd.nxt = SeqNum(5_000);
        conn.begin_probe(len);
        conn.path.failures = 2;
        conn.snd.nxt = SeqNum(8_000);
        conn.snd.una = SeqNum(una);
        conn.snd.small = SeqNum(una);
        conn.path_acknowledged(NOW);
        let path = &conn.path;
        assert_eq!((path.limit, path.low), (limit, low), "{una}");
        assert_eq!((path.searches, path.raise_at), (searches, raise_at));
        assert_eq!(path.failures == 0, una >= 6_400);
        if limit > 1_024 {
            assert_eq!((path.mark, conn.send_mss()), (SeqNum(8_000), limit));
        }
    }
    // Longer ones were lost before: the search ends, and begins again ten minutes later.
    let mut conn = probing();
    conn.path.high = 1_405;
    conn.snd.una = SeqNum(6_400);
    conn.path_acknowledged(NOW);
    assert_eq!(
        (conn.path.searches, conn.path.raise_at),
        (false, 50 + TEN_MINUTES)
    );
    assert!(conn.path.watches);
}

/// RFC 8899 §5.1.3: three probes of a size, then it does not pass; RFC 4821 §7.6.2.
#[test]
fn probes_that_were_lost() {
    for (before, high, failures, found) in [
        (0, 1_450, 1, 1_450),
        (1, 1_450, 2, 1_450),
        (2, 1_450, 0, 1_399),
        (2, 1_300, 0, 1_300),
    ] {
        let mut conn = probing();
        (conn.path.failures, conn.path.high) = (before, high);
        conn.probe_lost(NOW);
        let path = &conn.path;
        assert_eq!((path.failures, path.high), (failures, found));
        assert!(path.may_probe() && path.raise_at == NEVER);
    }
    let mut conn = probing();
    (conn.path.failures, conn.path.limit) = (2, 1_395);
    conn.probe_lost(NOW);
    assert_eq!(
        (conn.path.searches, conn.path.raise_at),
        (false, 50 + TEN_MINUTES)
    );
    // No probe, no news.
    conn.path.failures = 1;
    conn.probe_lost(NOW);
    assert_eq!(conn.path.failures, 1);
}
