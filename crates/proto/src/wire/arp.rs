//! Wire format: arp.
