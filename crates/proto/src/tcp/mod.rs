//! TCP (RFC 9293): one connection as a state machine over segments, time and byte counts.

