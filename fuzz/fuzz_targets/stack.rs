//! Fuzzes a whole stack in virtual time: scripts of frames, calls and time; what it promises is asserted in `script`.
//! A stack serves many scripts, for it takes longer to make than to run one; after each nothing may be left of it.
#![no_main]

use std::cell::RefCell;

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/proto/tests/tcp_script/bytes.rs"]
mod bytes;
#[path = "../../lab/tests/system/frames.rs"]
#[allow(dead_code)]
mod frames;
#[path = "../../lab/tests/simulation/script.rs"]
mod script;

/// Scripts of one stack.
const SCRIPTS: u32 = 200;

thread_local! {
    static HOST: RefCell<Option<(script::Host, u32)>> = const { RefCell::new(None) };
}

fuzz_target!(|bytes: &[u8]| HOST.with_borrow_mut(|slot| {
    let (host, left) = slot.get_or_insert_with(|| (script::Host::new(), SCRIPTS));
    host.run(bytes);
    *left -= 1;
    if *left == 0 {
        *slot = None;
    }
}));
