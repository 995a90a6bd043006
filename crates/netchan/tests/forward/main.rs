//! A stack between two others passes their packets on (RFC 1812, RFC 8200): bytes arrive under every regime, and hand-made packets get what the
//! RFCs say.

mod firewall;
mod loopback;
mod modules;
mod path;
mod raw;
mod router;
mod streams;
