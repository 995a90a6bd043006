//! How large SO_RCVBUF and SO_SNDBUF may be made: what this machine grants its programs, who know the figures' place.

use std::{fs, sync::OnceLock};

/// Linux's before 6.18.
const USUAL: usize = 212_992;

fn read(name: &str) -> usize {
    let text = fs::read_to_string(format!("/proc/sys/net/core/{name}"));
    let number = text.ok().and_then(|text| text.trim().parse().ok());
    // As Linux: twice as much is an int.
    number.unwrap_or(USUAL).min(i32::MAX as usize / 2)
}

/// `net.core.rmem_max`, bytes.
pub fn receive_buffer() -> usize {
    static MOST: OnceLock<usize> = OnceLock::new();
    *MOST.get_or_init(|| read("rmem_max"))
}

/// `net.core.wmem_max`, bytes.
pub fn send_buffer() -> usize {
    static MOST: OnceLock<usize> = OnceLock::new();
    *MOST.get_or_init(|| read("wmem_max"))
}
