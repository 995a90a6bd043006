//! Wire format: ethernet.
