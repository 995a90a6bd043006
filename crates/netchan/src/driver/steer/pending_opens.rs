//! Pending opens: connections that peers begin, each given a shard of its own by the classifier, which sees the SYN before any shard does.
//!
//! The flow is entered in the flow table at once, with a mark; the shard's own request (`channel::Request::Add`) takes the mark away. Where the
//! request does not come in time (no listener, a full queue, a forged SYN, whose SYN-ACK is not answered) the entry is taken out again.
//! At most one waits in each shard, and only shards without sockets take them: a flood of SYNs fills these, and whatever comes
//! after goes by its hash, as in every regime with several shards.

use proto::time::{Duration, Instant};

use crate::assignment::ShardAssignment;
use crate::driver::steer::table::FlowTable;

/// In the flow table: the shard has not yet said that the flow is its own.
const MARK: u16 = 1 << 15;
/// A shard takes its packets within two of the background poller's ticks; a peer repeats its SYN after a second (RFC 6298 §2.1).
const PATIENCE: Duration = Duration::from_secs(1);

/// Those of one classifier.
#[derive(Debug)]
pub struct PendingOpens(Vec<Option<PendingOpen>>);

#[derive(Clone, Copy, Debug)]
struct PendingOpen {
    flow: u64,
    since: Instant,
}

/// The shard that an entry of the flow table names.
pub const fn shard_of(entry: u16) -> u16 {
    entry & !MARK
}

impl PendingOpens {
    /// None yet.
    pub fn new(shards: usize) -> Self {
        Self(vec![None; shards])
    }

    /// Chooses a shard for a flow that begins; `None`: none is free.
    pub fn begin(
        &mut self,
        flow: u64,
        assignment: &ShardAssignment,
        flows: &mut FlowTable,
        now: Instant,
    ) -> Option<usize> {
        let shard = assignment.claim().or_else(|| {
            self.expire(assignment, flows, now);
            assignment.claim()
        })?;
        let entry = u16::try_from(shard).ok()? | MARK;
        // A shard that can be claimed has no socket: what is left of an older opening is over.
        self.end(shard, flows);
        if !flows.insert(flow, entry) {
            assignment.give_back(shard);
            return None;
        }
        self.0[shard] = Some(PendingOpen { flow, since: now });
        Some(shard)
    }

    /// The shard says that the flow is its own.
    pub fn confirm(&mut self, flow: u64, shard: usize) {
        if let Some(pending) = self.0.get_mut(shard)
            && pending.is_some_and(|o| o.flow == flow)
        {
            *pending = None;
        }
    }

    /// Gives up what took too long.
    fn expire(&mut self, assignment: &ShardAssignment, flows: &mut FlowTable, now: Instant) {
        for shard in 0..self.0.len() {
            if self.0[shard].is_some_and(|o| now.since(o.since) >= PATIENCE) {
                self.end(shard, flows);
                assignment.give_back(shard);
            }
        }
    }

    fn end(&mut self, shard: usize, flows: &mut FlowTable) {
        if let Some(pending) = self.0[shard].take()
            && flows
                .get(pending.flow)
                .is_some_and(|entry| entry & MARK != 0)
        {
            flows.remove(pending.flow);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Case {
        pending_opens: PendingOpens,
        assignment: ShardAssignment,
        flows: FlowTable,
    }

    impl Case {
        fn new() -> Self {
            Self {
                pending_opens: PendingOpens::new(2),
                assignment: ShardAssignment::new(2),
                flows: FlowTable::new(16).expect("memory"),
            }
        }
        fn begin(&mut self, flow: u64, at_ms: u64) -> Option<usize> {
            let now = Instant(at_ms * 1_000_000);
            self.pending_opens
                .begin(flow, &self.assignment, &mut self.flows, now)
        }
        fn shard(&self, flow: u64) -> Option<u16> {
            self.flows.get(flow).map(shard_of)
        }
    }

    #[test]
    fn a_flood_fills_the_free_shards_and_no_more() {
        let mut case = Case::new();
        assert_eq!((case.begin(1, 0), case.begin(3, 1)), (Some(0), Some(1)));
        for flow in 0..100 {
            assert_eq!(case.begin(5 + 2 * flow, 2), None);
        }
        assert_eq!((case.flows.len(), case.shard(3)), (2, Some(1)));
        // Not confirmed: after a second others have their turn.
        assert_eq!((case.begin(7, 1000), case.shard(1)), (Some(0), None));
        assert_eq!((case.begin(9, 1000), case.shard(3)), (None, Some(1)));
    }

    #[test]
    fn what_is_confirmed_stays() {
        let mut case = Case::new();
        assert_eq!(case.begin(1, 0), Some(0));
        // What `Steer::heed` does for the shard's request.
        case.pending_opens.confirm(1, 0);
        assert!(case.flows.insert(1, 0));
        case.assignment.publish(0, 1);
        assert_eq!((case.begin(3, 1), case.begin(5, 5000)), (Some(1), Some(1)));
        assert_eq!(
            (case.shard(1), case.shard(3), case.shard(5)),
            (Some(0), None, Some(1))
        );
    }

    /// An entry without the mark is a shard's own: an opening that took too long does not take it out.
    #[test]
    fn what_a_shard_took_is_not_taken_back() {
        let mut case = Case::new();
        assert_eq!((case.begin(1, 0), case.begin(3, 0)), (Some(0), Some(1)));
        assert!(case.flows.insert(1, 1));
        assert_eq!(case.begin(5, 2000), Some(0));
        assert_eq!((case.shard(1), case.shard(3)), (Some(1), None));
    }
}
