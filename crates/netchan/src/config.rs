//! The configuration file and the short forms of the command line, checked.

pub(crate) mod units;
