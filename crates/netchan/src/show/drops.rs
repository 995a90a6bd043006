//! Why packets were dropped, and where in the code that is decided, as `netchan show drops` has it.

use serde_json::{Value, json};

use super::{look::Look, queue_names};
use crate::{counters::Counter, link::RxStatistics, stack::Stack};

/// Where each reason is decided on: files below `crates/netchan/src`, with spaces between. A test holds it against them.
#[rustfmt::skip]
const PLACES: &[(Counter, &str)] = &[
    (Counter::DropEthernet, "driver/steer.rs"),
    (Counter::DropNotForUs, "driver/steer.rs"),
    (Counter::DropEtherType, "driver/steer.rs"),
    (Counter::DropArp, "driver/interface/neighbors.rs"),
    (Counter::DropIpHeader, "driver/forward.rs driver/interface/onward.rs driver/steer.rs shard.rs"),
    (Counter::DropIpChecksum, "driver/steer.rs"),
    (Counter::DropIpSource, "driver/steer.rs"),
    (Counter::DropIpDestination, "driver/steer.rs"),
    (Counter::DropLinkGroup, "driver/steer.rs"),
    (Counter::DropIpOptions, "driver/interface/host_work.rs driver/steer.rs"),
    (Counter::DropForwardHops, "driver/forward.rs"),
    (Counter::DropForwardOptions, "driver/forward.rs"),
    (Counter::DropForwardTooBig, "driver/forward.rs"),
    (Counter::DropForwardQueue, "stack/forward.rs"),
    (Counter::DropProtocol, "driver/interface/host_work.rs"),
    (Counter::DropExtension, "driver/interface/host_work.rs driver/steer.rs"),
    (Counter::DropFragment, "driver/interface/host_work.rs"),
    (Counter::DropMembership, "driver/interface/groups.rs"),
    (Counter::DropIcmp, "driver/interface/host_work.rs shard/icmp.rs shard/udp/errors.rs shard/udp/ping.rs"),
    (Counter::DropNdp, "driver/interface/neighbors.rs"),
    (Counter::DropTcpHeader, "driver/steer.rs shard/tcp/input.rs"),
    (Counter::DropTcpChecksum, "shard/tcp/input.rs"),
    (Counter::DropTcpSignature, "shard/signed.rs"),
    (Counter::DropTcpAoRequired, "shard/signed.rs shard/signed/ao.rs"),
    (Counter::DropTcpAoKeyNotFound, "shard/signed.rs shard/signed/ao.rs"),
    (Counter::DropTcpAoBad, "shard/signed.rs"),
    (Counter::DropTcpAoIcmp, "shard/signed/ao.rs"),
    (Counter::DropTcpNoSocket, "shard/tcp/input.rs"),
    (Counter::DropTcpUnserved, "shard/listen.rs shard/tcp/input.rs"),
    (Counter::DropTcpUnacceptable, "shard/tcp/input.rs"),
    (Counter::DropSynQueue, "shard/listen.rs"),
    (Counter::DropSynCookie, "shard/listen/cookies.rs"),
    (Counter::DropAcceptQueue, "shard/listen.rs shard/listen/cookies.rs"),
    (Counter::DropConnectionTable, "shard/listen.rs shard/listen/cookies.rs"),
    (Counter::DropTcpMemory, "shard/tcp/input.rs shard/tcp/tell.rs"),
    (Counter::DropTcpLimit, "shard/tcp/input.rs shard/tcp/tell.rs"),
    (Counter::DropTcpSocketShare, "shard/memory.rs shard/tcp/tell.rs"),
    (Counter::DropTcpPeerShare, "shard/memory.rs shard/tcp/tell.rs"),
    (Counter::DropTcpPruned, "shard/memory.rs"),
    (Counter::DropUdpHeader, "driver/steer.rs shard/udp.rs"),
    (Counter::DropUdpChecksum, "shard/udp.rs"),
    (Counter::DropUdpNoSocket, "shard/group.rs shard/udp.rs"),
    (Counter::DropUdpQueue, "shard/udp.rs"),
    (Counter::DropPingNoSocket, "shard/udp/ping.rs"),
    (Counter::DropPingQueue, "shard/udp.rs"),
    (Counter::DropUdpCopy, "shard/group.rs"),
    (Counter::DropUdpLimit, "shard/memory.rs"),
    (Counter::DropUdpSocketShare, "shard/memory.rs"),
    (Counter::DropUdpPeerShare, "shard/memory.rs"),
    (Counter::DropUdpErrorQueue, "shard/udp/errors.rs shard/udp/notices.rs"),
    (Counter::DropUdpShared, "relay/datagrams.rs"),
    (Counter::DropNotice, "shard/tcp/notices.rs shard/tcp/output.rs"),
    (Counter::DropPacketChannelFull, "channel/packets.rs"),
    (Counter::DropPacketChannelBuffers, "channel/packets.rs"),
    (Counter::DropLeaseFull, "channel/lease.rs driver/steer/leases.rs"),
    (Counter::DropLeaseCopy, "driver/interface/leases/groups.rs"),
    (Counter::DropChannelFull, "stack/rx/hand_over.rs"),
    (Counter::DropBacklogFull, "stack/rx/hand_over.rs"),
    (Counter::DropLinkQueue, "driver/interface/next_hop.rs driver/interface/onward.rs driver/interface/transmit.rs"),
    (Counter::DropCheck, "driver/interface/leases.rs driver/interface/transmit.rs"),
    (Counter::DropNoRoute, "driver/forward.rs driver/interface/next_hop.rs driver/interface/onward.rs"),
    (Counter::DropNeighbor, "driver/interface/neighbors.rs driver/interface/next_hop.rs driver/interface/onward.rs"),
];

/// Every reason, with what it has cost; then what modules dropped, and what links lost before the stack saw it.
pub(crate) fn rows(stack: &Stack, look: &Look<'_>) -> Vec<Value> {
    let of_stack = PLACES.iter().map(|&(counter, places)| {
        let reason = counter.name().trim_start_matches("drop_");
        row(
            reason,
            stack.control.counters.read(counter),
            counter.meaning(),
            places,
        )
    });
    let mut rows: Vec<Value> = of_stack.collect();
    for module in stack.control.modules.entries() {
        let reason = format!("module_{}", module.name);
        let place = "driver/module/registry.rs";
        rows.push(row(
            &reason,
            module.dropped(),
            "Drop: the module says so.",
            place,
        ));
    }
    for (number, name) in queue_names(stack).iter().enumerate() {
        match look.receive(number, |receive| receive.link.statistics()) {
            Ok(lost) => rows.extend(lost_by_link(name, &lost)),
            Err(busy) => rows.push(busy.row("reason", json!(name))),
        }
    }
    rows
}

fn lost_by_link(link: &str, lost: &RxStatistics) -> [Value; 3] {
    let place = "the link (crates/link/src)";
    [
        (
            "no_buffer",
            lost.no_buffer,
            "Drop: no receive buffer was free.",
        ),
        ("missed", lost.missed, "Drop: the kernel's queue was full."),
        (
            "length",
            lost.length,
            "Drop: too short, or too long for a buffer.",
        ),
    ]
    .map(|(reason, packets, meaning)| row(&format!("{link} {reason}"), packets, meaning, place))
}

fn row(reason: &str, packets: u64, meaning: &str, place: &str) -> Value {
    let meaning = meaning
        .trim_start_matches("Drop: ")
        .trim_start_matches("Drop ");
    json!({ "reason": reason, "value": packets, "meaning": meaning, "decided_in": place })
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::*;

    /// Names of counters in the files below `directory`, without tests.
    fn named(directory: &Path, prefix: &str, found: &mut Vec<(String, String)>) {
        for entry in fs::read_dir(directory).expect("a directory").flatten() {
            let name = entry.file_name().into_string().expect("a name");
            let place = format!("{prefix}{name}");
            if entry.path().is_dir() {
                named(&entry.path(), &format!("{place}/"), found);
            } else if !place.contains("tests") && place != "counters.rs" && place != "show/drops.rs"
            {
                let text = fs::read_to_string(entry.path()).expect("a source");
                for (at, mark) in text.match_indices("Counter::Drop") {
                    let rest = text.get(at + mark.len()..).unwrap_or_default();
                    let end = rest
                        .find(|c: char| !c.is_alphanumeric())
                        .unwrap_or(rest.len());
                    found.push((format!("Drop{}", &rest[..end]), place.clone()));
                }
            }
        }
    }

    #[test]
    fn places_are_where_the_code_says() {
        let mut found = Vec::new();
        named(
            Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src")),
            "",
            &mut found,
        );
        found.sort();
        found.dedup();
        let drops = Counter::ALL
            .iter()
            .filter(|counter| counter.name().starts_with("drop_"));
        for &counter in drops {
            let name = format!("{counter:?}");
            let files = found.iter().filter(|(found, _)| *found == name);
            let files: Vec<&str> = files.map(|(_, file)| file.as_str()).collect();
            let listed = PLACES.iter().find(|(listed, _)| *listed == counter);
            let listed = listed.map_or("", |(_, places)| places);
            assert_eq!(listed, files.join(" "), "{name}");
        }
    }
}
