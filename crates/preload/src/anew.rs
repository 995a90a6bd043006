//! A forked child that makes sockets of its own: it has a stack of its own from then on, a lease beside its parent's, or of its parent's
//! links.
//!
//! Its copy of the parent's stack is left alone: nothing is read from it, and nothing of it is dropped. What it inherited stays what it was, the parent's
//! sockets ([`crate::shared`]), each until it is used or closed.

use crate::{children, ending, lending, line, placeholder, process, region, relay};

/// [`process::is_configured`], before a socket or an epoll instance is made: a child begins anew with its first.
#[inline]
pub fn is_configured() -> bool {
    if process::may_begin_anew() {
        begin();
    }
    process::is_configured()
}

#[cold]
fn begin() {
    let _starting = process::starting();
    // Another thread was first; or its ancestors are too many: then what it makes is the kernel's.
    if !process::may_begin_anew() || !line::may_begin_anew() {
        return;
    }
    line::begin_anew();
    relay::begin_anew();
    lending::begin_anew();
    children::begin_anew();
    ending::begin_anew();
    placeholder::begin_anew();
    region::begin_anew();
    netchan::begin_anew();
    process::begin_anew();
}
