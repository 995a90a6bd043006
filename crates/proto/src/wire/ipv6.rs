//! Wire format: ipv6.
