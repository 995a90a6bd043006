//! Wire format: udp.
