//! What this machine grants its programs, which know the figures' place: how large SO_RCVBUF and SO_SNDBUF may be made, how long they look
//! before they sleep.

use std::{fs, sync::OnceLock, time::Duration};

/// Linux's before 6.18.
const USUAL: usize = 212_992;

fn number<T: std::str::FromStr>(name: &str) -> Option<T> {
    let text = fs::read_to_string(format!("/proc/sys/net/core/{name}"));
    text.ok().and_then(|text| text.trim().parse().ok())
}

fn read(name: &str) -> usize {
    // As Linux: twice as much is an int.
    number(name).unwrap_or(USUAL).min(i32::MAX as usize / 2)
}

/// `net.core.busy_poll`: how long poll and epoll look; zero where it is not set, or not to be seen (in a network namespace).
pub fn busy_poll() -> Duration {
    static TIME: OnceLock<Duration> = OnceLock::new();
    *TIME.get_or_init(|| Duration::from_micros(number("busy_poll").unwrap_or(0)))
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
