//! ICMP while connecting: each code has the reason that Linux has, and ends what it ends there; the other mode waits, as RFC 1122 says.

use super::*;
use Error::{
    BadHeader, HostIsolated, HostUnknown, HostUnreachable, NetworkUnreachable, Prohibited,
    ProtocolUnreachable, Refused, SourceRoute,
};

/// Type, codes, what it is, whether no waiting mends it, and whether it ends a handshake that the peer began.
type Row = (u8, &'static [u8], Option<Error>, bool, bool);

/// `icmp_err_convert`, and `tcp_v4_err` for the rest.
const V4: &[Row] = &[
    (3, &[0], Some(NetworkUnreachable), false, true),
    (3, &[1], Some(HostUnreachable), false, true),
    (3, &[2], Some(ProtocolUnreachable), true, false),
    (3, &[3], Some(Refused), true, false),
    (3, &[5], Some(SourceRoute), false, false),
    (3, &[6, 11], Some(NetworkUnreachable), false, false),
    (3, &[7], Some(HostUnknown), false, false),
    (3, &[8], Some(HostIsolated), false, false),
    (3, &[9], Some(NetworkUnreachable), true, false),
    (3, &[10, 13], Some(HostUnreachable), true, false),
    (3, &[12, 14, 15], Some(HostUnreachable), false, false),
    (3, &[4, 16, 255], None, false, false),
    (11, &[0, 1], Some(HostUnreachable), false, true),
    (12, &[0, 1, 2], Some(BadHeader), false, true),
    (4, &[0], None, false, false),
    (5, &[0], None, false, false),
];

/// `icmpv6_err_convert`.
const V6: &[Row] = &[
    (1, &[0], Some(NetworkUnreachable), false, false),
    (1, &[1, 5, 6], Some(Prohibited), true, true),
    (1, &[2, 3], Some(HostUnreachable), false, false),
    (1, &[4], Some(Refused), true, true),
    (1, &[7, 255], Some(BadHeader), true, true),
    (3, &[0, 1], Some(HostUnreachable), false, false),
    (4, &[0, 1, 2], Some(BadHeader), true, true),
    (100, &[0], Some(BadHeader), false, false),
    (2, &[0], None, false, false),
    (128, &[0], None, false, false),
];

/// What an error is, the reason, whether it is hard, whether it ends a request.
fn for_each(mut check: impl FnMut(IcmpError, Error, bool, bool)) {
    for (of, rows) in [
        (IcmpError::v4 as fn(u8, u8) -> Option<IcmpError>, V4),
        (IcmpError::v6, V6),
    ] {
        for &(kind, codes, reason, hard, ends) in rows {
            for &code in codes {
                let error = of(kind, code);
                assert_eq!(error.is_some(), reason.is_some(), "{kind} {code}");
                if let (Some(error), Some(reason)) = (error, reason) {
                    check(error, reason, hard, ends);
                }
            }
        }
    }
}

fn config(mode: IcmpWhileConnecting) -> Config {
    Config {
        icmp_while_connecting: mode,
        ..Config::default()
    }
}

/// What `error` makes of the connection of this end, about its oldest segment.
fn strike(pair: &mut Pair, end: usize, error: IcmpError, held: bool) -> Events {
    let conn = pair.ends[end].conn();
    let una = conn.snd.una;
    conn.on_icmp(error, una, held)
}

/// The connection ended, for that reason; or it goes on, and the reason is noted.
fn is_so(pair: &mut Pair, end: usize, events: Events, reason: Error, ends: bool) {
    let conn = pair.ends[end].conn();
    let gone = Events::RESET | Events::CLOSED;
    if ends {
        assert_eq!((events, conn.error()), (gone, Some(reason)));
        assert_eq!(conn.state(), State::Closed);
        assert_eq!(conn.output(Instant(0)), None, "in silence");
    } else {
        assert_eq!((events, conn.error()), (Events::NONE, None));
        assert_eq!(conn.soft_error(), Some(reason));
    }
}

/// RFC 5461 §4.1, RFC 1122 §4.2.3.9: of a SYN, alone or with the peer's SYN.
#[test]
fn an_attempt_to_connect_ends_at_once_or_patiently() {
    for mode in IcmpWhileConnecting::ALL {
        for_each(|error, reason, hard, _| {
            let ends = hard || mode == IcmpWhileConnecting::End;
            let config = config(mode);
            let mut pair = Pair::listening(1, &config, &config);
            pair.intercept();
            let events = strike(&mut pair, 0, error, true);
            is_so(&mut pair, 0, events, reason, ends);
            let mut pair = Pair::simultaneous(1, &config);
            pair.run_for(Duration::from_millis(7));
            assert_eq!(pair.ends[0].state(), State::SynReceived);
            let events = strike(&mut pair, 0, error, true);
            is_so(&mut pair, 0, events, reason, ends);
        });
    }
}

/// What is noted is the reason given in the end, and forgotten if the host answers after all.
#[test]
fn an_attempt_that_goes_on_fails_with_what_was_said_or_succeeds() {
    let config = config(IcmpWhileConnecting::Note);
    for answers in [false, true] {
        let mut pair = Pair::listening(1, &config, &config);
        if !answers {
            pair.intercept();
            pair.faults.loss = 1000;
        }
        pair.drain();
        let unreachable = IcmpError::v4(3, 0).unwrap();
        let events = strike(&mut pair, 0, unreachable, true);
        is_so(&mut pair, 0, events, NetworkUnreachable, false);
        pair.run_for(Duration::from_secs(200));
        let state = pair.ends[0].state();
        assert_eq!(state == State::Established, answers, "{state:?}");
        let error = (!answers).then_some(NetworkUnreachable);
        assert_eq!(pair.ends[0].error, error);
    }
}

/// A handshake that a peer began goes back to LISTEN without a word to the application.
#[test]
fn a_peers_handshake_ends_as_on_linux_or_with_what_no_waiting_mends() {
    for mode in IcmpWhileConnecting::ALL {
        for_each(|error, reason, hard, ends_request| {
            let config = config(mode);
            let mut pair = Pair::listening(1, &config, &config);
            pair.run_for(Duration::from_millis(6));
            assert_eq!(pair.ends[1].state(), State::SynReceived);
            let events = strike(&mut pair, 1, error, false);
            let conn = pair.ends[1].conn();
            let ends = match mode {
                IcmpWhileConnecting::End => ends_request,
                IcmpWhileConnecting::Note => hard,
            };
            if ends {
                assert_eq!(events, Events::RESET | Events::CLOSED);
                assert_eq!((conn.error(), conn.state()), (None, State::Closed));
            } else {
                is_so(&mut pair, 1, events, reason, false);
            }
        });
    }
}

/// RFC 5927 §5.2: open connections never end by ICMP; RFC 5927 §4.1: nor anything by what it did not send.
#[test]
fn an_open_connection_and_a_wrong_quotation_end_nothing() {
    for_each(|error, reason, _, _| {
        let config = Config::default();
        let mut pair = Pair::established(&config, &config);
        pair.ends[0].write(b"text");
        pair.intercept();
        let events = strike(&mut pair, 0, error, true);
        is_so(&mut pair, 0, events, reason, false);
        let mut pair = Pair::listening(1, &config, &config);
        pair.intercept();
        for at in [ISS[0] - 1, ISS[0] + 1, ISS[1]] {
            let conn = pair.ends[0].conn();
            assert_eq!(conn.on_icmp(error, at, true), Events::NONE);
            assert_eq!(conn.soft_error(), None);
        }
    });
}
