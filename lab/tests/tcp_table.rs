//! The table of what one flow gets out of 100 Mbit/s over 100 ms, by loss and congestion control, to the byte: in virtual time nothing but a change of
//! the protocol changes it. A shorter run than `netchan lab run tcp`, of one seed.
//!
//! To change it on purpose, write the new one with `NETCHAN_TABLE=write` and say in the commit why it is better.

use std::{fmt::Write as _, fs, path::Path as File, time::Duration};

use netchan_lab::tcp::paths::{ENDLESS, Flow, Path, Stack, bytes_read, dumbbell};
use proto::tcp::CongestionControl;

const LOSSES: [(&str, u32); 4] = [("0", 0), ("0.1", 1_000), ("1", 10_000), ("5", 50_000)];
const STACKS: [(&str, Stack); 3] = [
    ("cubic", Stack::Netchan(CongestionControl::Cubic)),
    ("bbr", Stack::Netchan(CongestionControl::Bbr)),
    (
        "cubic without RACK-TLP",
        Stack::NetchanWithoutRack(CongestionControl::Cubic),
    ),
];

/// Bytes read from the second to the fifth second.
fn bytes(loss_ppm: u32, stack: Stack) -> u64 {
    let path = Path {
        loss_ppm,
        ..Path::WIDE
    };
    let (mut world, ends) = dumbbell(&path, stack, &[Flow::at_once(ENDLESS)], 1);
    let (from, to) = (Duration::from_secs(2), Duration::from_secs(5));
    let got = bytes_read(&mut world, &ends, from, to)[0];
    // Nothing overtakes anything here, and acknowledgments all arrive: a sender that takes a reduction back is wrong. But F-RTO only guesses.
    let info = world.end(ends[0] - 1).info().expect("a connection");
    let may_guess = info.timeouts > 0;
    assert!(
        info.sending.undos == 0 || may_guess,
        "{stack:?} at {loss_ppm} ppm"
    );
    got
}

#[test]
fn throughput_is_what_it_was() {
    let mut table = String::from("loss, bytes in 3 s: 100 Mbit/s, 100 ms\n");
    for (name, stack) in STACKS {
        for (percent, loss_ppm) in LOSSES {
            let got = bytes(loss_ppm, stack);
            // The path takes 37.5 MB, headers included.
            assert!(got < 37_500_000, "{name} at {percent} %: more than fits");
            writeln!(table, "{name:22} {percent:>3} % {got:>9}").expect("memory");
        }
    }
    let file = File::new(env!("CARGO_MANIFEST_DIR")).join("tests/tcp_table.txt");
    if std::env::var("NETCHAN_TABLE").is_ok_and(|what| what == "write") {
        fs::write(&file, &table).expect("a file that may be written");
    }
    let kept = fs::read_to_string(&file).expect("the kept table");
    assert_eq!(table, kept, "see the head of this test");
}
