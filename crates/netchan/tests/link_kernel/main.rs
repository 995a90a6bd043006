//! The links that end in the kernel, against the real kernel, in network namespaces of their own.

mod datagrams;
mod fast_open;
mod firewall;
mod frames;
mod groups;
mod namespace;
mod packet;
mod packet_channels;
mod queues;
mod segments;
mod signed;
#[path = "../../../../lab/tests/skips/mod.rs"]
mod skips;
mod tap;
mod windows;
