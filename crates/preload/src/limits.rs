//! `net.core.busy_poll` of this machine.

use std::{fs, sync::OnceLock, time::Duration};

/// How long poll and epoll look before they sleep; zero where it is not set, or not to be seen (in a network namespace).
pub fn busy_poll() -> Duration {
    static TIME: OnceLock<Duration> = OnceLock::new();
    let read = || {
        let text = fs::read_to_string("/proc/sys/net/core/busy_poll");
        text.ok().and_then(|text| text.trim().parse().ok())
    };
    *TIME.get_or_init(|| Duration::from_micros(read().unwrap_or(0)))
}
