//! Tests of the crossbar.

use super::{Port, crossbar};
use std::{thread, time::Duration};

fn all<T>(port: &mut Port<T>, max: usize) -> Vec<(usize, T)> {
    let mut got = Vec::new();
    port.from
        .receive(max, |from, message| got.push((from, message)));
    got
}

#[test]
fn every_pair_has_its_ring() {
    let mut ports = crossbar(3, 4).unwrap();
    for (from, port) in ports.iter_mut().enumerate() {
        for to in 0..3 {
            assert!(port.to.send(to, 10 * from + to).is_ok());
        }
        assert!(port.from.is_empty() || from > 0);
        assert_eq!(port.to.flush(), 0, "no core sleeps");
    }
    for (core, port) in ports.iter_mut().enumerate() {
        let mut got = all(port, 4);
        got.sort_unstable();
        assert_eq!(got, [0, 1, 2].map(|from| (from, 10 * from + core)));
        assert_eq!((port.from.core(), port.from.cores()), (core, 3));
    }
}

#[test]
fn nothing_is_seen_before_the_flush() {
    let mut ports = crossbar(2, 4).unwrap();
    assert!(ports[0].to.send(1, ()).is_ok() && ports[0].to.send_passive(1, ()).is_ok());
    assert!(ports[1].from.is_empty());
    ports[0].to.flush();
    assert_eq!((ports[1].from.waiting(0), ports[1].from.waiting(1)), (2, 0));
}

#[test]
fn full_gives_the_message_back_and_counts_it() {
    let mut ports = crossbar(2, 2).unwrap();
    assert_eq!(
        [1, 2, 3].map(|n| ports[0].to.send(1, n)),
        [Ok(()), Ok(()), Err(3)]
    );
    assert_eq!((ports[0].to.refused(1), ports[0].to.refused(0)), (1, 0));
    ports[0].to.flush();
    assert_eq!(all(&mut ports[1], 1), [(0, 1)]);
    assert!(ports[0].to.send(1, 3).is_ok());
    ports[0].to.flush();
    assert_eq!(all(&mut ports[1], 9), [(0, 2), (0, 3)]);
}

#[test]
fn each_ring_is_first_in_turn() {
    let mut ports = crossbar(3, 8).unwrap();
    for port in &mut ports {
        (0..7).for_each(|_| assert!(port.to.send(0, ()).is_ok()));
        port.to.flush();
    }
    let firsts: Vec<_> = (0..7).map(|_| all(&mut ports[0], 1)[0].0).collect();
    assert_eq!(firsts, [0, 1, 2, 0, 1, 2, 0]);
}

#[test]
fn one_system_call_for_a_burst_and_none_for_passive_messages() {
    let mut ports = crossbar(2, 64).unwrap();
    let (mut there, mut here) = (ports.pop().unwrap(), ports.pop().unwrap());
    let sleeper = thread::spawn(move || {
        let mut got = 0;
        while got < 32 {
            got += there.from.receive(64, |_, ()| ());
            if got < 32 {
                there.from.sleep(None, || false);
            }
        }
        there
    });
    thread::sleep(Duration::from_millis(30)); // asleep by now, in all likelihood
    (0..16).for_each(|_| assert!(here.to.send_passive(1, ()).is_ok()));
    assert_eq!(here.to.flush(), 0);
    (0..16).for_each(|_| assert!(here.to.send(1, ()).is_ok()));
    assert!(here.to.flush() <= 1);
    let there = sleeper.join().unwrap();
    assert!(!here.to.is_gone(1));
    drop(there);
    assert!(here.to.is_gone(1) && !here.to.is_gone(0));
}

#[test]
fn a_sleep_ends_by_time_or_because_of_something_else() {
    let mut ports = crossbar::<()>(1, 1).unwrap();
    assert!(
        !ports[0]
            .from
            .sleep(Some(Duration::from_micros(50)), || false)
    );
    assert!(ports[0].from.sleep(None, || true));
    assert!(ports[0].to.send(0, ()).is_ok());
    ports[0].to.flush();
    assert!(ports[0].from.sleep(None, || false), "a message to itself");
}

#[test]
fn what_was_staged_is_sent_at_the_end() {
    let mut ports = crossbar(2, 2).unwrap();
    let (mut there, mut here) = (ports.pop().unwrap(), ports.pop().unwrap());
    assert!(here.to.send(1, 5).is_ok());
    drop(here);
    assert_eq!(all(&mut there, 2), [(0, 5)]);
}

#[test]
fn a_sleeper_is_woken_and_counted() {
    use crate::doorbell::Sleep;
    let mut ports = crossbar(3, 4).unwrap();
    for core in 1..3 {
        ports[core].from.doorbell().arm(Sleep::Futex);
        assert!(ports[0].to.send(core, ()).is_ok());
    }
    assert_eq!(ports[0].to.flush(), 2);
    assert!(ports[0].to.send(1, ()).is_ok());
    assert_eq!(ports[0].to.flush(), 0, "it is awake already");
    ports[1..]
        .iter()
        .for_each(|port| port.from.doorbell().disarm());
}
