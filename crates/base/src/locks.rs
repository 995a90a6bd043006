//! Every lock of the stack, in the order in which they may be taken (F7).
//!
//! A thread that holds a lock takes only locks of a higher rank: from top to bottom. In a build with the feature `witness` each acquisition
//! is checked against this list, whether or not another thread is in the way ([`percore::witness`]); without it a class costs nothing.
//! ARCHITECTURE.md, *Threads*, says which threads there are.

use percore::lock::Class;

/// One thread at a time loads or unloads modules; it passes through all halves of interfaces meanwhile.
pub static CHANGING: Class = Class::new(10, "changing modules");
/// A socket's options and binding, while it becomes something. Held while a core's thread runs a call for it (`percpu`): that thread
/// does not take this lock.
pub static FRESH: Class = Class::new(20, "socket").across_sleep();
/// The homes of listeners that share a port, while one more gets its own.
pub static HOMES: Class = Class::new(30, "homes");
/// Giant, where the whole stack runs under it.
pub static GIANT: Class = Class::new(40, "giant");
/// The leases that stand side by side, while their ports for sockets that name none change.
pub static LEASE_SETS: Class = Class::new(34, "leases side by side").across_sleep();
/// The ports that a lease has. Held while one is bound, so while a core's thread runs a call for that (`percpu`).
pub static LENT_PORTS: Class = Class::new(35, "ports of a lease").across_sleep();
/// The receiving half of an interface.
pub static RECEIVE: Class = Class::new(50, "receive");
/// A shard, with whatever is its own.
pub static SHARD: Class = Class::new(60, "shard");
/// Where connections live that moved.
pub static MOVED: Class = Class::new(64, "moved connections");
/// The transmitting half of a further queue of a link, which sends by the first one what it does not know the next hop of.
pub static TRANSMIT_FURTHER: Class = Class::new(68, "transmit (further queue)");
/// The transmitting half of an interface.
pub static TRANSMIT: Class = Class::new(70, "transmit");
/// Giant, where only some modules and link drivers run under it.
pub static GIANT_INSIDE: Class = Class::new(80, "giant (inside)");
/// A firewall's rules, and the flows that it tracks.
pub static FLOWS: Class = Class::new(81, "flows");
/// The file that records a link, with what of the link is being recorded.
pub static CAPTURE: Class = Class::new(82, "capture");
/// A device that has one state for both directions.
pub static DEVICE: Class = Class::new(85, "device");
/// A point's end of a tap, until it takes it.
pub static TAP: Class = Class::new(86, "tap");
/// The application's end of a packet channel.
pub static PACKET_CHANNEL: Class = Class::new(87, "packet channel");
/// The names of in-memory wires.
pub static WIRE_NAMES: Class = Class::new(90, "wire names");
/// What the second opener of a wire leaves for the first.
pub static WIRE_SLOT: Class = Class::new(100, "wire slot");
/// The list of packet channels.
pub static PACKET_CHANNELS: Class = Class::new(105, "packet channels");
/// What was lent to this stack.
pub static BORROWED: Class = Class::new(106, "leases of this stack");
/// The list of leases.
pub static LENT: Class = Class::new(107, "leases");
/// The list of modules.
pub static MODULES: Class = Class::new(110, "modules");
/// What has to see each packet, and the leases.
pub static WATCHED: Class = Class::new(112, "watched");
/// The bound ports.
pub static BINDINGS: Class = Class::new(120, "bindings");
/// The ports that were asked for with a lease, while one more is: its lender answers within a second.
pub static LEASE: Class = Class::new(124, "lease").across_sleep();
/// The socket on which a lender is asked, until it has answered.
pub static LEASE_SOCKET: Class = Class::new(125, "lease socket").across_sleep();
/// The ports that were lent for sockets that name none.
pub static LEASE_PORTS: Class = Class::new(126, "lease ports");
/// What the receiving half of a lease has for the transmitting one.
pub static LEASE_PEERS: Class = Class::new(127, "lease peers");
/// What a lease's application is told by a word.
pub static LEASE_TOLD: Class = Class::new(128, "lease told");
/// The other leases to which connections have pipes.
pub static LEASE_PIPES: Class = Class::new(129, "lease pipes");
/// The connections with pipes to one of them.
pub static LEASE_STREAMS: Class = Class::new(130, "lease streams");
/// How the blocking calls of a socket wait.
pub static SETTINGS: Class = Class::new(140, "settings");
/// What the stack's threads are doing.
pub static PULSES: Class = Class::new(150, "pulses");
/// The stack's threads, to wait for them.
pub static THREADS: Class = Class::new(160, "threads");
/// The call server of a shard, until its thread has begun.
pub static CALL_SERVER: Class = Class::new(165, "call server");
/// The threads that answer questions from outside.
pub static COMPANIONS: Class = Class::new(170, "companions");
/// The name of a control socket, while it is chosen.
pub static NAMING: Class = Class::new(180, "naming");
/// Streams of a relay whose sockets may be ready.
pub static RELAY: Class = Class::new(190, "relay");

/// All of them, the outermost first.
pub static ALL: &[&Class] = &[
    &CHANGING,
    &FRESH,
    &HOMES,
    &LEASE_SETS,
    &LENT_PORTS,
    &GIANT,
    &RECEIVE,
    &SHARD,
    &MOVED,
    &TRANSMIT_FURTHER,
    &TRANSMIT,
    &GIANT_INSIDE,
    &FLOWS,
    &CAPTURE,
    &DEVICE,
    &TAP,
    &PACKET_CHANNEL,
    &WIRE_NAMES,
    &WIRE_SLOT,
    &PACKET_CHANNELS,
    &BORROWED,
    &LENT,
    &MODULES,
    &WATCHED,
    &BINDINGS,
    &LEASE,
    &LEASE_SOCKET,
    &LEASE_PORTS,
    &LEASE_PEERS,
    &LEASE_TOLD,
    &LEASE_PIPES,
    &LEASE_STREAMS,
    &SETTINGS,
    &PULSES,
    &THREADS,
    &CALL_SERVER,
    &COMPANIONS,
    &NAMING,
    &RELAY,
];

#[cfg(test)]
mod tests {
    use super::ALL;

    #[test]
    fn the_order_is_total_and_every_class_has_a_name_of_its_own() {
        for pair in ALL.windows(2) {
            assert!(pair[0].rank() < pair[1].rank(), "{pair:?}");
        }
        for (i, class) in ALL.iter().enumerate() {
            assert!(ALL[..i].iter().all(|other| other.name() != class.name()));
        }
    }
}
