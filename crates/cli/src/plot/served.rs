//! The plot of a running stack's connection for `netchan web`: the parts of its page, and the data, which come one by one.

use std::{net::SocketAddr, time::Duration};

use netchan::control::Stack;

use super::{
    live,
    page::Page,
    subject::{Subject, captured},
};
use crate::failure::{Failure, failed};

pub use super::page::{LANGUAGE, SCRIPT, STYLE, UPLOT, UPLOT_STYLE, of_data, served as page};

/// Captures the connection of `stack` between these ends for `duration`, or until it `is_enough`; the page's data, as JSON.
///
/// # Errors
/// There is no such connection, or it was silent; the stack's.
pub fn data(
    stack: &Stack,
    ends: (SocketAddr, SocketAddr),
    duration: Duration,
    is_enough: &dyn Fn() -> bool,
) -> Result<String, Failure> {
    let mut subject = captured(live::of_ends(stack, ends, duration, is_enough)?)?;
    let directions = subject.directions();
    let Subject {
        source,
        connection,
        notes,
        ..
    } = &subject;
    let page = Page {
        source,
        number: None,
        begin: connection.begin,
        notes,
        directions: directions.iter().collect(),
        first: connection.busier(),
    };
    page.data().map_err(failed)
}
