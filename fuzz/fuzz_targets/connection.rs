//! Fuzzes a TCP connection in each state: scripts of segments, calls and time; what it promises is asserted in `tcp_script`.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/proto/tests/tcp_script/mod.rs"]
mod tcp_script;

fuzz_target!(|script: &[u8]| tcp_script::run(script));
