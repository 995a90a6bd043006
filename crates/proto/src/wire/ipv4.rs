//! Wire format: ipv4.
