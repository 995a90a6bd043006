//! Wire format: checksum.
