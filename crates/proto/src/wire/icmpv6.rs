//! Wire format: icmpv6.
