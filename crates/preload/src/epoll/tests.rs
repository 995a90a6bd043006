//! Tests of epoll.
