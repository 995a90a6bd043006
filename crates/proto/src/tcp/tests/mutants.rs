//! What mutation testing found alive (docs/mutants.md): each of these fails with a small change of the code that nothing else noticed.

use super::*;
use crate::wire::tcp::Timestamps;

fn plain(receive_buffer: u32) -> Config {
    Config {
        timestamps: false,
        sack: false,
        receive_buffer,
        ..Config::default()
    }
}

fn pair(receive_buffer: u32) -> Pair {
    Pair::established(&plain(1 << 20), &plain(receive_buffer))
}

/// A quarter of the buffer is worth a window update where two segments are in it.
#[test]
fn a_quarter_of_the_buffer_is_told_of() {
    let mut pair = pair(40_000);
    pair.ends[1].paused = true;
    pair.ends[0].write(&[1; 20_000]);
    pair.run_for(Duration::from_secs(2));
    pair.ends[1].sent.clear();
    pair.ends[1].read(9_000);
    pair.drain();
    assert_eq!(pair.ends[1].sent.len(), 0, "less than a quarter of 40,000");
    pair.ends[1].read(2_000);
    pair.drain();
    assert_eq!(pair.ends[1].sent.len(), 1, "more than a quarter");
}

/// RFC 9293 MUST-61 is about text: a FIN alone has nothing to push.
#[test]
fn a_fin_alone_pushes_nothing() {
    let mut pair = pair(1 << 20);
    assert!(!pair.ends[0].conn().wants_output());
    pair.ends[0].conn().shutdown();
    assert!(pair.ends[0].conn().wants_output());
    pair.drain();
    let (_, fin) = pair.ends[0].sent.last().expect("a FIN");
    assert!(fin.header.flags.contains(Flags::FIN) && !fin.header.flags.contains(Flags::PSH));
}

/// A peer that could be offered more is found when memory is freed; one that has enough, or has closed, is not.
#[test]
fn peer_short_of_window_is_known() {
    let mut pair = pair(14_600);
    assert!(
        !pair.ends[1].conn().is_short_of_window(),
        "it has all of it"
    );
    assert!(!pair.ends[1].conn().is_window_nearly_closed());
    pair.ends[1].paused = true;
    pair.ends[0].write(&[1; 14_600]);
    pair.run_for(Duration::from_secs(1));
    assert!(
        !pair.ends[1].conn().is_short_of_window(),
        "there is no room"
    );
    assert!(pair.ends[1].conn().is_window_nearly_closed());
    pair.ends[1].conn().limit_window(1000);
    pair.ends[1].read(8000);
    pair.run_for(Duration::from_millis(20));
    assert!(
        pair.ends[1].conn().is_short_of_window(),
        "only memory is missing"
    );
    pair.ends[0].conn().shutdown();
    pair.run_for(Duration::from_secs(5));
    pair.ends[1].read(usize::MAX);
    pair.run_for(Duration::from_secs(60));
    assert_eq!(pair.ends[1].state(), State::CloseWait);
    assert!(
        !pair.ends[1].conn().is_short_of_window(),
        "nothing comes any more"
    );
}

/// Only what waited for its pace finds the tokens of a turn that came late, and only once.
#[test]
fn lateness_is_made_up_for_once() {
    let (rate, start) = (1_000_000, Instant(10_000_000_000));
    let late = |ms: u64| Instant(start.0 + ms * 1_000_000);
    let mut pacer = pacing::Pacer::new();
    pacer.held(true);
    pacer.sent(50_000, rate, start); // 50 ms, of which 20 ms are made up for
    assert_eq!(pacer.wait(rate, start), Some(late(30)));
    pacer.sent(50_000, rate, late(100)); // nothing waited: 1 ms
    assert_eq!(pacer.wait(rate, late(100)), Some(late(149)));
    pacer.held(true);
    pacer.sent(10_000, rate, late(200)); // paid for with what gathered: it goes on waiting
    pacer.sent(20_000, rate, late(200));
    assert_eq!(pacer.wait(rate, late(200)), Some(late(210)));
}

/// RFC 4987: a cookie's timestamp brings back each option that the SYN had, and none that it had not.
#[test]
fn a_cookie_keeps_each_option() {
    use core::net::{IpAddr, Ipv4Addr, SocketAddr};
    let config = Config {
        ecn: EcnMode::Classic,
        ..Config::default()
    };
    let (template, now) = (Template::new(&config), Instant(100_000_000_000));
    let address = |n, port| SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, n)), port);
    let flow = CookieFlow {
        secret: &[7; 16],
        local: address(1, 80),
        remote: address(2, 1000),
    };
    let start = Start::new(&config, (80, 1000), SeqNum(0), 12345);
    for (scale, sack, ecn) in [
        (Some(3), true, true),
        (Some(0), false, false),
        (None, true, false),
        (None, false, true),
    ] {
        let mut syn = Header {
            source_port: 1000,
            destination_port: 80,
            seq: SeqNum(77),
            flags: if ecn {
                Flags::SYN | Flags::ECE | Flags::CWR
            } else {
                Flags::SYN
            },
            window: 1000,
            ..Header::default()
        };
        syn.options.mss = Some(1460);
        syn.options.window_scale = scale;
        syn.options.sack_permitted = sack;
        syn.options.timestamps = Some(Timestamps { value: 5, echo: 0 });
        let answer = template
            .cookie_answer(&start, &syn, &flow, now)
            .expect("an answer");
        let echo = answer.options.timestamps.expect("timestamps").value;
        let mut ack = Header {
            seq: syn.seq + 1,
            ack: answer.seq + 1,
            flags: Flags::ACK,
            ..syn
        };
        ack.options = crate::wire::tcp::Options {
            timestamps: Some(Timestamps { value: 6, echo }),
            ..Default::default()
        };
        let connection = template
            .from_cookie(&start, &ack, &flow, now)
            .expect("our cookie");
        assert_eq!(connection.scaling, scale.is_some(), "{scale:?}");
        assert_eq!(connection.snd.scale, scale.unwrap_or(0));
        assert_eq!(connection.sack, sack, "SACK");
        assert_eq!(answer.flags.contains(Flags::ECE), ecn, "ECN is answered");
        ack.ack = ack.ack + 8;
        assert!(
            template.from_cookie(&start, &ack, &flow, now).is_none(),
            "forged"
        );
    }
}
