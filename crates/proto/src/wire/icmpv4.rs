//! Wire format: icmpv4.
