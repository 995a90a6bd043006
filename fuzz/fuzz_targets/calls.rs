//! Fuzzes sequences of socket calls on two stacks in virtual time; what they promise is asserted in `calls`.
//! The stacks serve many sequences, for it takes longer to make them than to run one; after each nothing may be left of it.
#![no_main]

use std::cell::RefCell;

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/proto/tests/tcp_script/bytes.rs"]
#[allow(dead_code)]
mod bytes;
#[path = "../../lab/tests/simulation/calls.rs"]
mod calls;

/// Sequences of two stacks.
const SEQUENCES: u32 = 200;

thread_local! {
    static HOSTS: RefCell<Option<(calls::Hosts, u32)>> = const { RefCell::new(None) };
}

fuzz_target!(|bytes: &[u8]| HOSTS.with_borrow_mut(|slot| {
    let (hosts, left) = slot.get_or_insert_with(|| (calls::Hosts::new(), SEQUENCES));
    hosts.run(bytes);
    *left -= 1;
    if *left == 0 {
        *slot = None;
    }
}));
