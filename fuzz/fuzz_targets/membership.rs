//! Fuzzes the igmp and mld parsers; what they promise is asserted in the probe.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/proto/tests/wire_common/probe.rs"]
mod probe;

fuzz_target!(|bytes: &[u8]| probe::membership(bytes));
