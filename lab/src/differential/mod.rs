//! netchan beside others' TCP: connections between a netchan and another stack through a lossy [relay](crate::relay), in both roles, with every
//! option. What is read must be what was written, each end must end as it has to, and nothing may hang.
//!
//! Nothing here knows what the right segments are: the other stack says so. A seed and a number give a [`plan::Group`]; what
//! happens in real time against Linux is nearly, against smoltcp in virtual time exactly, the same again.

pub mod flow;
pub mod linux;
pub mod netchan_side;
pub mod plan;
pub mod smoltcp_side;
#[cfg(test)]
mod tests;

use std::{io, net::SocketAddr};

use proto::time::{Duration, Instant};

use flow::Flow;
use plan::Group;

/// Addresses: netchan's and the other's, of each family.
pub const OURS: [&str; 2] = ["10.77.0.2", "fd77::2"];
/// The other's.
pub const THEIRS: [&str; 2] = ["10.77.0.1", "fd77::1"];

/// One end of a connection, as an application holds it. Nothing waits; dropped, it closes.
pub trait End {
    /// Whether connect(2) is done; its error.
    ///
    /// # Errors
    /// What became of the attempt.
    fn connected(&mut self) -> io::Result<bool>;
    /// Writes some.
    ///
    /// # Errors
    /// `WouldBlock`, or how the connection ended.
    fn write(&mut self, text: &[u8]) -> io::Result<usize>;
    /// Writes one byte, as urgent.
    ///
    /// # Errors
    /// As for `write`.
    fn write_urgent(&mut self, byte: u8) -> io::Result<usize>;
    /// Reads some; 0: the peer's end.
    ///
    /// # Errors
    /// As for `write`.
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize>;
    /// What `read` would read now, left where it is.
    ///
    /// # Errors
    /// As for `write`.
    fn peek(&mut self, room: &mut [u8]) -> io::Result<usize>;
    /// The urgent byte, if there is one to be had by itself.
    fn read_urgent(&mut self) -> Option<u8>;
    /// Writes no more.
    ///
    /// # Errors
    /// As for `write`.
    fn shut(&mut self) -> io::Result<()>;
    /// Dropped after this, it gives the connection up (SO_LINGER of 0).
    fn abort(&mut self);
    /// Options agreed on, where it can tell.
    fn agreed(&self) -> Option<Agreed> {
        None
    }
}

/// What a handshake came to, as netchan sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // the names say it
pub struct Agreed {
    pub timestamps: bool,
    pub sack: bool,
    pub window_scale: bool,
    pub receive_scale: u8,
}

/// A stack that opens connections.
pub trait Side {
    /// Listens.
    ///
    /// # Errors
    /// The stack's.
    fn listen(&mut self, at: SocketAddr, ends: &plan::Manners) -> io::Result<usize>;
    /// What came to the listener of this number.
    ///
    /// # Errors
    /// The stack's.
    fn accept(&mut self, listener: usize) -> io::Result<Option<Box<dyn End>>>;
    /// Begins to connect.
    ///
    /// # Errors
    /// The stack's.
    fn connect(
        &mut self,
        from: SocketAddr,
        to: SocketAddr,
        ends: &plan::Manners,
    ) -> io::Result<Box<dyn End>>;
    /// Turns the stack, if it does not turn itself; whether something moved.
    fn turn(&mut self, now: Instant) -> bool;
    /// When it has something to do by time alone.
    fn next_event(&self) -> Instant;
    /// Connections that are neither gone nor in TIME-WAIT.
    fn left_over(&self) -> Vec<String>;
}

/// Two stacks and the connections between them.
pub struct Run<'a> {
    group: &'a Group,
    sides: [Box<dyn Side>; 2],
    flows: Vec<Flow>,
    began: Instant,
    over: Option<Instant>,
}

/// How long closed sockets may take to say goodbye.
const GOODBYE_MS: u64 = 20_000;

impl<'a> Run<'a> {
    /// The connections of `group` between netchan (first) and another.
    ///
    /// # Errors
    /// What a stack says to the first calls.
    pub fn new(
        group: &'a Group,
        mut sides: [Box<dyn Side>; 2],
        now: Instant,
    ) -> Result<Self, String> {
        let mut flows = Vec::new();
        for (number, plan) in (0..).zip(&group.flows) {
            let flow = Flow::new(plan, number, &mut sides, now);
            flows.push(flow.map_err(|e| format!("flow {number}, {plan:?}: {e}"))?);
        }
        Ok(Self {
            group,
            sides,
            flows,
            began: now,
            over: None,
        })
    }

    /// All ends act. `Ok(None)`: all is over and well; else whether something moved.
    ///
    /// # Errors
    /// What went wrong, in words.
    pub fn turn(&mut self, now: Instant) -> Result<Option<bool>, String> {
        let mut moved = false;
        for side in &mut self.sides {
            moved |= side.turn(now);
        }
        for (number, flow) in self.flows.iter_mut().enumerate() {
            moved |= flow
                .step(&mut self.sides, now)
                .map_err(|e| format!("flow {number}: {e}"))?;
        }
        let limit = self.began + self.group.limit;
        if self.flows.iter().all(Flow::is_over) {
            let since = *self.over.get_or_insert(now);
            let left: Vec<_> = self.sides.iter().flat_map(|s| s.left_over()).collect();
            if left.is_empty() {
                return self.check_agreed().map(|()| None);
            }
            if now.since(since) > Duration::from_millis(GOODBYE_MS) {
                return Err(format!("not closed: {}", left.join("\n  ")));
            }
        } else if now > limit {
            let open = self.flows.iter().filter(|f| !f.is_over());
            let open: Vec<_> = open.map(Flow::describe).collect();
            return Err(format!(
                "not over after {:?}:\n  {}",
                self.group.limit,
                open.join("\n  ")
            ));
        }
        Ok(Some(moved))
    }

    /// An option is in use if both sides want it, and netchan's window scale follows from its buffer (RFC 7323 §2.2, RFC 2018 §2).
    fn check_agreed(&self) -> Result<(), String> {
        let (ours, theirs) = (&self.group.ours, &self.group.theirs);
        for (flow, plan) in self.flows.iter().zip(&self.group.flows) {
            let Some(agreed) = flow.agreed() else {
                continue;
            };
            let scales = ours.window_scale && theirs.window_scale;
            let usual = plan.ends[0].receive_buffer.is_none() && scales;
            let scale = (0..=14).find(|scale| 65_535 << scale >= ours.receive_buffer);
            let wanted = Agreed {
                timestamps: ours.timestamps && theirs.timestamps,
                sack: ours.sack && theirs.sack,
                window_scale: scales,
                receive_scale: scale.filter(|_| usual).unwrap_or(agreed.receive_scale),
            };
            if agreed != wanted {
                return Err(format!("agreed on {agreed:?}, not {wanted:?}: {plan:?}"));
            }
        }
        Ok(())
    }

    /// When something happens by time alone, after `now`.
    #[must_use]
    pub fn next_event(&self, now: Instant) -> Instant {
        let sides = self.sides.iter().map(|s| s.next_event());
        let flows = self.flows.iter().flat_map(Flow::next_events);
        let all = sides.chain(flows).filter(|at| *at > now);
        all.min().unwrap_or(Instant::FAR)
    }
}
