//! Short exchanges, each about one thing, written out in full.

use super::*;

const MS: fn(u64) -> Duration = Duration::from_millis;

fn config() -> Config {
    Config {
        congestion: CongestionControl::NewReno,
        ..Config::default()
    }
}

/// An open connection whose first end may have `segments` in flight.
fn wide(config: &Config, segments: u32) -> Pair {
    let mut pair = Pair::established(config, config);
    pair.ends[0].conn().congestion.window.cwnd = segments * 1460;
    pair
}

/// What the first end sends now arrives but for those that are `lost`, and those `late` come last.
fn flight(recorder: &mut Recorder, pair: &mut Pair, bytes: usize, lost: &[usize], late: &[usize]) {
    pair.ends[0].write(&std::vec![7; bytes]);
    let segments = pair.intercept();
    recorder.note(pair);
    let mut behind = Vec::new();
    for (index, (to, header, text)) in segments.into_iter().enumerate() {
        if late.contains(&index) {
            behind.push((to, header, text));
        } else if !lost.contains(&index) {
            pair.launch(to, header, text);
        }
    }
    if !behind.is_empty() {
        recorder.run(pair, MS(4));
    }
    for (to, header, text) in behind {
        pair.launch(to, header, text);
    }
}

/// RFC 6675, RFC 8985, RFC 9937: holes, one behind the other, and the last segment, too.
#[test]
fn holes_are_mended_within_a_round_trip() {
    let mut pair = wide(&config(), 20);
    let mut recorder = Recorder::new(&pair);
    flight(&mut recorder, &mut pair, 16 * 1448, &[1, 4, 5, 9, 15], &[]);
    recorder.run(&mut pair, MS(400));
    compare("holes", &recorder.lines);
}

/// RFC 6582: without SACK a hole each round trip.
#[test]
fn holes_are_mended_one_by_one_without_sack() {
    let plain = Config {
        sack: false,
        timestamps: false,
        ..config()
    };
    let mut pair = wide(&plain, 20);
    let mut recorder = Recorder::new(&pair);
    flight(&mut recorder, &mut pair, 16 * 1460, &[1, 4, 9], &[]);
    recorder.run(&mut pair, MS(20));
    flight(&mut recorder, &mut pair, 3 * 1460, &[], &[]);
    recorder.run(&mut pair, MS(400));
    compare("holes-without-sack", &recorder.lines);
}

/// RFC 8985 §6.2: the first time reordering looks like loss and is taken back (RFC 3708), later RACK waits longer.
#[test]
fn reordering_is_learnt() {
    let mut pair = wide(&config(), 20);
    pair.faults.delay = MS(10);
    let mut recorder = Recorder::new(&pair);
    for late in [&[0_usize][..], &[2, 3], &[1]] {
        flight(&mut recorder, &mut pair, 8 * 1448, &[], late);
        recorder.run(&mut pair, MS(300));
    }
    compare("reordering", &recorder.lines);
}

/// RFC 6298, RFC 5682: all acknowledgments are lost for a while; new text tells that nothing else was. Then all text is.
#[test]
fn timeouts_with_and_without_a_cause() {
    for (name, sack, lost) in [
        ("timeout-spurious", true, 1),
        ("timeout-spurious-without-sack", false, 1),
        ("timeout", true, 0),
        ("timeout-without-sack", false, 0),
    ] {
        let plain = Config {
            sack,
            timestamps: false,
            ..config()
        };
        let mut pair = wide(&plain, 8);
        let mut recorder = Recorder::new(&pair);
        pair.ends[0].write(&[1; 20 * 1460]);
        let segments = pair.intercept();
        recorder.note(&mut pair);
        if lost == 1 {
            for (to, header, text) in segments {
                pair.deliver(to, &header, text);
            }
            let answers = pair.intercept();
            recorder.note(&mut pair);
            pair.faults.loss = 1000;
            recorder.run(&mut pair, MS(230));
            pair.faults.loss = 0;
            for (to, header, text) in answers {
                pair.launch(to, header, text);
            }
        } else {
            recorder.run(&mut pair, MS(100));
            pair.faults.loss = 1000;
            recorder.run(&mut pair, MS(500));
            pair.faults.loss = 0;
        }
        recorder.run(&mut pair, MS(900));
        compare(name, &recorder.lines);
    }
}

/// RFC 9293 §3.8.6.1, §3.8.6.2: the reader stops, reads a little, then all.
#[test]
fn a_window_closes_and_opens() {
    let small = Config {
        receive_buffer: 8000,
        window_scale: false,
        ..config()
    };
    let mut pair = Pair::established(&small, &small);
    let mut recorder = Recorder::new(&pair);
    pair.ends[1].paused = true;
    pair.ends[0].write(&[1; 30_000]);
    recorder.run(&mut pair, MS(2000));
    for bytes in [100, 1000, 2000, 6000] {
        pair.ends[1].read(bytes);
        recorder.run(&mut pair, MS(900));
    }
    pair.ends[1].paused = false;
    pair.ends[1].read(usize::MAX);
    recorder.run(&mut pair, MS(900));
    compare("window", &recorder.lines);
}

/// RFC 9293 §3.6, §3.8.4: small writes, corks, urgent text, a keep-alive, and both closings, with a FIN lost.
#[test]
fn a_conversation() {
    let mut pair = Pair::established(&config(), &config());
    let mut recorder = Recorder::new(&pair);
    for (from, bytes) in [(0, 10), (1, 2000), (0, 10), (0, 20), (1, 1)] {
        pair.ends[from].write(&std::vec![1; bytes]);
        recorder.run(&mut pair, MS(3));
    }
    pair.ends[0].conn().set_cork(true);
    pair.ends[0].write(&[2; 1500]);
    recorder.run(&mut pair, MS(300));
    pair.ends[0].write(&[3; 5]);
    pair.ends[0].conn().mark_urgent();
    pair.ends[0].conn().set_cork(false);
    pair.ends[1].write(&[4; 9]);
    pair.ends[1].conn().end_record();
    pair.ends[1].write(&[5; 9]);
    recorder.run(&mut pair, MS(100));
    let now = pair.now;
    let keepalive = crate::tcp::Keepalive {
        idle: MS(1000),
        interval: MS(300),
        probes: 2,
    };
    pair.ends[0].conn().set_keepalive(Some(keepalive), now);
    recorder.run(&mut pair, MS(2500));
    pair.ends[0].conn().shutdown();
    pair.faults.loss = 1000;
    recorder.run(&mut pair, MS(1));
    pair.faults.loss = 0;
    recorder.run(&mut pair, MS(600));
    pair.ends[1].write(&[6; 100]);
    recorder.run(&mut pair, MS(100));
    pair.ends[1].conn().shutdown();
    recorder.run(&mut pair, MS(70_000));
    compare("conversation", &recorder.lines);
}

/// RFC 9768, RFC 3168: marks, reported and obeyed.
#[test]
fn marks_are_told_of() {
    for (name, ecn) in [
        ("marks", EcnMode::Accurate),
        ("marks-classic", EcnMode::Classic),
    ] {
        let config = Config { ecn, ..config() };
        let mut pair = Pair::listening(1, &config, &config);
        let mut recorder = Recorder::new(&pair);
        recorder.run(&mut pair, MS(50));
        for marks in [0, 2, 0, 9] {
            pair.marks = marks;
            pair.ends[0].write(&[1; 8 * 1448]);
            recorder.run(&mut pair, MS(60));
        }
        compare(name, &recorder.lines);
    }
}

/// Opening while everything is lost for a while, from one side and from both.
#[test]
fn handshakes_are_repeated() {
    for (name, both) in [("handshake", false), ("handshake-both", true)] {
        let mut pair = if both {
            Pair::simultaneous(1, &config())
        } else {
            Pair::listening(1, &config(), &config())
        };
        let mut recorder = Recorder::new(&pair);
        pair.ends[0].write(&[1; 3000]);
        for (loss, time) in [(1000, 3500), (0, 3502), (1000, 5000), (0, 20_000)] {
            pair.faults.loss = loss;
            recorder.run(&mut pair, MS(time));
        }
        compare(name, &recorder.lines);
    }
}
