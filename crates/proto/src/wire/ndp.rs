//! Wire format: ndp.
