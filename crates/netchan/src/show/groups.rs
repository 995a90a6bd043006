//! The groups of each link, as `netchan show groups` has them.

use std::net::IpAddr;

use proto::membership::{Mode, Version};
use serde_json::{Value, json};

use super::look::Look;
use crate::stack::Stack;

/// What `netchan show groups` says: each group of each link, and the version of IGMP or MLD that its routers want.
pub(crate) fn rows(stack: &Stack, look: &Look<'_>) -> Vec<Value> {
    let mut rows = Vec::new();
    let live = stack.control.host.live.read();
    for (number, facts) in live.net.interfaces.iter().enumerate() {
        let versions = look.interface(number, |interface| interface.membership_versions());
        for (group, filter) in live.groups.of(number) {
            let sources: Vec<_> = filter.sources().iter().map(IpAddr::to_string).collect();
            let version = |of: &[Version; 2]| name(of[usize::from(group.is_ipv6())], *group);
            rows.push(json!({
                "link": facts.name,
                "group": group.to_string(),
                "mode": match filter.mode() { Mode::Include => "include", Mode::Exclude => "exclude" },
                "sources": sources.join(" "),
                "spoken": versions.as_ref().ok().map(version),
            }));
        }
    }
    rows
}

const fn name(version: Version, group: IpAddr) -> &'static str {
    match (version, group.is_ipv4()) {
        (Version::First, _) => "IGMPv1",
        (Version::Second, true) => "IGMPv2",
        (Version::Third, true) => "IGMPv3",
        (Version::Second, false) => "MLDv1",
        (Version::Third, false) => "MLDv2",
    }
}
