//! The facade over `std::sync` that lets every primitive run under loom.
