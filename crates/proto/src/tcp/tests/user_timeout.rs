//! The user timeout option (RFC 5482).

use super::*;

const S: fn(u64) -> Duration = Duration::from_secs;

fn config(option: UserTimeoutOption, timeout: u64) -> Config {
    Config {
        user_timeout_option: option,
        retry_timeout: S(timeout),
        ..Config::default()
    }
}

/// R2 of both ends, and what their SYNs said.
fn after(client: &Config, server: &Config) -> [(u32, u16); 2] {
    let mut pair = Pair::listening(1, client, server);
    pair.run_for(Duration::from_millis(100));
    [0, 1].map(|end| {
        let syn = pair.ends[end].sent[0].1.header;
        assert!(syn.flags.contains(Flags::SYN));
        let ms = pair.ends[end].conn().settings.retry_ms;
        (ms / 1000, syn.options.user_timeout)
    })
}

/// RFC 5482 §3.1: the more patient one counts, at both ends, but not less than L_LIMIT nor more than U_LIMIT.
#[test]
fn the_more_patient_end_counts() {
    use UserTimeoutOption::Negotiable;
    for (ours, theirs, both) in [
        (200, 400, 400),
        (400, 200, 400),
        (5, 9, 100),
        (600, 9_000, 3_600),
    ] {
        let [client, server] = after(&config(Negotiable, ours), &config(Negotiable, theirs));
        let said = |seconds: u64| u16::try_from(seconds).unwrap();
        assert_eq!(client, (both, said(ours)));
        assert_eq!(server, (both, said(theirs)));
    }
}

/// RFC 5482 §3.1: ENABLED is false unless asked for, and CHANGEABLE once the application has set a timeout itself.
#[test]
fn user_timeout_is_adapted_only_by_negotiation() {
    use UserTimeoutOption::{Fixed, Negotiable, Off};
    let [client, server] = after(&config(Off, 200), &config(Negotiable, 400));
    assert_eq!((client, server), ((200, 0), (400, 400)));
    let [client, server] = after(&config(Fixed, 200), &config(Negotiable, 400));
    assert_eq!((client, server), ((200, 200), (400, 400)));
    let [client, _] = after(&config(Fixed, 200), &config(Off, 400));
    assert_eq!(client, (200, 200));
}

/// RFC 5482 §3.2: a change is told at once, in any segment; zero is no timeout (§3.3).
#[test]
fn a_change_is_told() {
    let both = config(UserTimeoutOption::Negotiable, 200);
    let mut pair = Pair::established(&both, &both);
    pair.run_for(S(1));
    let before = pair.ends[0].sent.len();
    pair.ends[0].conn().set_user_timeout(S(40_000));
    pair.run_for(S(1));
    let said: Vec<_> = (pair.ends[0].sent[before..].iter())
        .map(|(_, t)| t.header.options.user_timeout)
        .collect();
    assert_eq!(said, [0x8000 | 667], "once, in minutes");
    assert_eq!(pair.ends[1].conn().settings.retry_ms, 3_600_000, "U_LIMIT");
    for value in [0, 0x8000] {
        let mut header = pair.forge(1, Flags::ACK);
        header.options.user_timeout = value;
        pair.deliver(1, &header, b"x".to_vec());
        assert_eq!(pair.ends[1].conn().settings.retry_ms, 3_600_000);
    }
    // In a segment with text, too.
    let mut header = pair.forge(1, Flags::ACK);
    header.options.user_timeout = 700;
    pair.deliver(1, &header, b"x".to_vec());
    assert_eq!(pair.ends[1].conn().settings.retry_ms, 700_000);
}

/// RFC 5482 §3.3: kind 28, four bytes, in a SYN and in any other segment; the first of two counts, another length is passed over.
#[test]
fn on_the_wire() {
    for flags in [Flags::SYN, Flags::ACK] {
        let mut header = Header {
            flags,
            ..Header::default()
        };
        header.options.user_timeout = 0x8123;
        let mut bytes = [0; 24];
        assert_eq!(header.emit(&mut bytes), 24);
        assert_eq!(bytes[20..], [28, 4, 0x81, 0x23]);
        assert_eq!(Header::parse(&bytes), Ok((header, 24)));
    }
    let mut bytes = [0; 32];
    Header::default().emit(&mut bytes);
    bytes[12] = 8 << 4;
    bytes[20..].copy_from_slice(&[28, 3, 9, 28, 4, 0, 7, 28, 4, 0, 8, 1]);
    let (header, _) = Header::parse(&bytes).unwrap();
    assert_eq!(header.options.user_timeout, 7);
}
