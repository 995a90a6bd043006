//! A stream of datagrams over loopback. UDP has no flow control: the reader grants a window at a time, so that none is lost.

use std::{
    io::{self, ErrorKind},
    thread,
};

use netchan::Net;

use super::{
    job::{Job, Outcome},
    place,
    role::{APPLICATION, GENERATOR},
    stream::SEGMENT,
    usage::Reading,
};
use crate::kit::Stopwatch;

/// Datagrams that are under way at once: they fit in each socket's receive buffer.
const WINDOW: usize = 32;

/// How a thread sends and receives: a pair of calls.
type Calls<A, B> = (A, B);

/// `packets` datagrams from `client` to `server`. Loopback runs the receiver in the sender's thread: only both ends together can be told.
///
/// # Errors
/// The calls'.
pub(super) fn datagrams(
    job: &Job,
    packets: usize,
    net: Option<&Net>,
    (send, granted): Calls<
        impl Fn(&[u8]) -> io::Result<usize> + Send,
        impl Fn(&mut [u8]) -> io::Result<usize> + Send,
    >,
    (grant, receive): Calls<
        impl Fn(&[u8]) -> io::Result<usize> + Send,
        impl Fn(&mut [u8]) -> io::Result<usize> + Send,
    >,
) -> io::Result<Outcome> {
    let windows = packets.div_ceil(WINDOW);
    let text = vec![0x5a; SEGMENT];
    let before = Reading::now(net)?;
    let watch = Stopwatch::start();
    thread::scope(|scope| {
        let generate = move || -> io::Result<()> {
            for _ in 0..windows {
                for _ in 0..WINDOW {
                    send(&text)?;
                }
                granted(&mut [0])?;
            }
            Ok(())
        };
        let read = move || -> io::Result<()> {
            let mut room = [0; SEGMENT];
            for _ in 0..windows {
                for _ in 0..WINDOW {
                    receive(&mut room)?;
                }
                grant(&[0])?;
            }
            Ok(())
        };
        let named = |name: &str| thread::Builder::new().name(format!("{name}0"));
        let generator = named(GENERATOR).spawn_scoped(scope, generate)?;
        let reader = named(APPLICATION).spawn_scoped(scope, read)?;
        place::pin(job)?;
        for thread in [generator, reader] {
            thread.join().map_err(|_| ErrorKind::Other)??;
        }
        Ok::<_, io::Error>(())
    })?;
    let seconds = watch.seconds();
    #[allow(clippy::cast_precision_loss)] // below 2^52
    let packets = (windows * WINDOW) as f64;
    #[allow(clippy::cast_precision_loss)] // as above
    let bytes = packets * SEGMENT as f64;
    Ok(Outcome {
        seconds,
        packets,
        bytes,
        ..Reading::now(net)?.since(&before)
    })
}
