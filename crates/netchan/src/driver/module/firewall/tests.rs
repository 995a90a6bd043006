//! Tests of the firewall.
