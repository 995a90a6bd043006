//! The one place where errno values are chosen.
