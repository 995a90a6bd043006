//! poll's bits, and select's sets.

use libc::{POLLERR, POLLHUP, POLLIN, POLLOUT, POLLRDHUP, POLLRDNORM, POLLWRNORM};
use netchan::socket::Readiness;

use super::{Sets, answer, ask, interest};

#[test]
fn normal_bits_are_the_plain_ones() {
    assert_eq!(interest(POLLRDNORM), Readiness::READABLE);
    assert_eq!(
        interest(POLLIN | POLLWRNORM),
        Readiness::READABLE | Readiness::WRITABLE
    );
    assert_eq!(interest(0), Readiness::NONE);
    assert_eq!(interest(POLLRDHUP), Readiness::READ_HANGUP);
}

#[test]
fn answers_hold_what_was_asked_and_what_always_counts() {
    let ready = Readiness::READABLE | Readiness::WRITABLE | Readiness::HANGUP;
    assert_eq!(answer(ready, POLLIN), POLLIN | POLLHUP);
    assert_eq!(answer(ready, POLLRDNORM), POLLRDNORM | POLLHUP);
    assert_eq!(answer(ready, 0), POLLHUP);
    assert_eq!(answer(Readiness::ERROR, POLLOUT), POLLERR);
    assert_eq!(answer(Readiness::NONE, POLLIN | POLLOUT), 0);
}

#[test]
fn each_bit_becomes_one_entry() {
    let mut fds = Vec::new();
    ask(64, [0b101, 0b100, 0], &mut fds);
    assert_eq!(
        fds.iter().map(|entry| entry.fd).collect::<Vec<_>>(),
        [64, 66]
    );
    assert!(fds[0].events & POLLOUT == 0 && fds[1].events & POLLOUT != 0);
}

#[test]
fn bits_past_the_last_number_are_not_read() {
    let mut words = [u64::MAX; 16];
    let set = words.as_mut_ptr().cast();
    let mut seen = Vec::new();
    let sets = Sets {
        sets: [set, std::ptr::null_mut(), std::ptr::null_mut()],
        nfds: 70,
    };
    // SAFETY: a whole fd_set.
    unsafe { sets.each_word(|base, words| seen.push((base, words[0].count_ones()))) };
    assert_eq!(seen, [(0, 64), (64, 6)]);
}
