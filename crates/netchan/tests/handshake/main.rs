//! Handshakes as a peer sees them that keeps to no rule: what a listener does under a flood, and what it keeps of each SYN.

mod ao;
mod configured;
mod cookies;
mod each_option;
mod fast_open;
mod icmp;
mod options;
mod raw;
