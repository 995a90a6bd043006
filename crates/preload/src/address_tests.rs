//! Tests of address.
