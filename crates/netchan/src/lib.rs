//! The path: the only place where packets meet cores; the library that users name.
