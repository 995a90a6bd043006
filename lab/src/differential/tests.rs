//! netchan beside smoltcp, in virtual time: a seed gives the same run again.

#[path = "../../tests/skips/mod.rs"]
mod skips;

use netchan::{Clock, link::wire};
use proto::time::{Duration, Instant};

use super::{
    Run, Side,
    netchan_side::Netchan,
    plan::{FAITHFUL, FlowPlan, Group, Opening},
    smoltcp_side::Smoltcp,
};

/// A group as smoltcp can take it: it knows no urgent data, no simultaneous open, and has its own idea of sizes.
fn for_smoltcp(seed: u64) -> Group {
    let mut group = Group::random(seed, false);
    group.mtu = group.mtu.min(9_000);
    (group.theirs.sack, group.theirs.window_scale) = (true, true);
    for flow in &mut group.flows {
        flow.v6 &= group.mtu >= 1_280;
        if flow.opening == Opening::Both {
            flow.opening = Opening::Ours;
        }
        for end in &mut flow.ends {
            end.urgent = None;
        }
    }
    group
}

fn run(group: &Group) -> Result<Instant, String> {
    let clock = Clock::new_virtual();
    let options = wire::Options {
        mtu: group.mtu,
        ..wire::Options::default()
    };
    let (ours, theirs) = wire::pair(&options);
    let netchan = Netchan::new(group, Box::new(ours), &clock).map_err(|e| e.to_string())?;
    let smoltcp = Smoltcp::new(&group.theirs, theirs, group.mtu, group.seed, clock.now());
    let smoltcp = smoltcp.map_err(|e| e.to_string())?;
    let sides: [Box<dyn Side>; 2] = [Box::new(netchan), Box::new(smoltcp)];
    let mut run = Run::new(group, sides, clock.now())?;
    loop {
        let now = clock.now();
        match run.turn(now)? {
            None => return Ok(now),
            Some(true) => {}
            Some(false) => {
                let next = run.next_event(now);
                let least = Instant(now.0 + 1_000);
                clock.advance_to(next.min(now + Duration::from_millis(1)).max(least));
            }
        }
    }
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|v| v.parse().ok())
}

#[test]
fn netchan_and_smoltcp_understand_each_other() {
    let first = number("NETCHAN_SEED").unwrap_or(1);
    let count = skips::seeds_or(6).min(2_000);
    let failed: Vec<_> = (first..first + count)
        .filter_map(|seed| {
            let failed = run(&for_smoltcp(seed)).err()?;
            Some(format!("seed {seed}: {failed}"))
        })
        .collect();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

/// Flows of a group with an urgent byte that `writer` (0: netchan) sends to a reader that takes it out of line.
fn out_of_line(group: &Group, writer: usize) -> usize {
    let ends = |flow: &FlowPlan| (flow.ends[writer], flow.ends[1 - writer]);
    let has = |flow: &&FlowPlan| ends(flow).0.urgent.is_some() && !ends(flow).1.inline;
    group.flows.iter().filter(has).count()
}

/// Linux takes another byte on a way that loses or reorders: there it is told of none out of line, and of all on a faithful one; netchan is told
/// everywhere, and so are readers in line.
#[test]
fn urgent_bytes_go_where_they_can_be_told() {
    for rough in [false, true] {
        let mut in_line = 0;
        for seed in 0..200 {
            let group = Group::random(seed, rough);
            let is_faithful = group.shapes[0].is_faithful();
            assert!(is_faithful || out_of_line(&group, 0) == 0, "{seed}");
            let has = |flow: &&FlowPlan| flow.ends[0].urgent.is_some() && flow.ends[1].inline;
            in_line += group.flows.iter().filter(has).count();
        }
        let from_linux: usize = (0..200)
            .map(|seed| out_of_line(&Group::random(seed, rough), 1))
            .sum();
        assert!(in_line > 100 && from_linux > 100, "{in_line} {from_linux}");
        let faithful = Group::random(FAITHFUL, rough);
        assert!(faithful.shapes[0].is_faithful());
        assert!(out_of_line(&faithful, 0) > 1);
    }
}
