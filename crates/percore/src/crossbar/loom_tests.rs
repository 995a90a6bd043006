//! The crossbar under loom: every message arrives, no wake-up is lost (a lost one is a deadlock, which loom reports).

use super::crossbar;
use loom::thread;

/// Two messages in one burst; the second core sleeps whenever there is nothing.
#[test]
fn a_burst_wakes_the_sleeper() {
    loom::model(|| {
        let mut ports = crossbar::<u32>(2, 2).unwrap();
        let (mut there, mut here) = (ports.pop().unwrap(), ports.pop().unwrap());
        let sender = thread::spawn(move || {
            assert!(here.to.send(1, 7).is_ok());
            assert!(here.to.send_passive(1, 8).is_ok());
            let woken = here.to.flush();
            assert!(woken <= 1);
        });
        let mut got = Vec::new();
        while got.len() < 2 {
            if there
                .from
                .receive(4, |from, message| got.push((from, message)))
                == 0
            {
                there.from.sleep(None, || false);
            }
        }
        assert_eq!(got, [(0, 7), (0, 8)]);
        sender.join().unwrap();
    });
}

/// Both ask and both answer, each asleep while it waits.
#[test]
fn question_and_answer() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(|| {
        let mut ports = crossbar::<u32>(2, 1).unwrap();
        let (mut there, mut here) = (ports.pop().unwrap(), ports.pop().unwrap());
        let other = thread::spawn(move || {
            let mut question = None;
            while question.is_none() {
                if there.from.receive(1, |_, message| question = Some(message)) == 0 {
                    there.from.sleep(None, || false);
                }
            }
            assert!(there.to.send(0, question.unwrap() + 1).is_ok());
            there.to.flush();
        });
        assert!(here.to.send(1, 1).is_ok());
        assert_eq!(here.to.send(1, 9), Err(9));
        here.to.flush();
        let mut answer = 0;
        while answer == 0 {
            if here.from.receive(1, |_, message| answer = message) == 0 {
                here.from.sleep(None, || false);
            }
        }
        assert_eq!(answer, 2);
        other.join().unwrap();
    });
}
