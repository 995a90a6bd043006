//! Tests of poll.
