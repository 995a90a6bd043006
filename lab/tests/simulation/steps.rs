//! The hand-offs themselves: each regime's channels, queues, requests and calls of the background poller, with every role of both stacks turned in an
//! order that the seed chooses; and stacks that end in the middle of it.

use netchan::{Dispatch, Regime};

use crate::{
    plan::{Plan, Random},
    seeds,
    world::{Mode, Outcome, World},
};

/// Every regime, and every place for protocol work where the regime leaves a choice; over links with one queue and, where several shards may have one each, with
/// three.
pub fn modes() -> Vec<Mode> {
    let goes = |&(regime, dispatch): &(Regime, Dispatch)| {
        let layout = regime.layout(None);
        layout.is_some_and(|layout| layout.dispatched(dispatch).is_ok())
    };
    let all = Regime::here().flat_map(|r| Dispatch::ALL.map(|dispatch| (r, dispatch)));
    let modes = all.filter(goes).map(|(regime, dispatch)| Mode {
        regime,
        dispatch,
        stepped: true,
        shards: None,
        queues: 1,
    });
    let over_queues = |mode: Mode| {
        let several = mode.regime.layout(Some(3)).filter(|l| l.shards == 3);
        several.map(|_| Mode {
            shards: Some(3),
            queues: 3,
            ..mode
        })
    };
    modes
        .flat_map(|mode| [Some(mode), over_queues(mode)])
        .flatten()
        .collect()
}

pub fn run(plan: &Plan, mode: Mode) -> Outcome {
    println!("seed {} {mode:?}: {plan}", plan.seed);
    match World::new(plan, mode).and_then(|mut world| world.run()) {
        Ok(outcome) => outcome,
        Err(e) => panic!("seed {} {mode:?}: {e}\n  {plan}", plan.seed),
    }
}

#[test]
fn every_regime_hands_over_the_same_bytes_in_any_order() {
    for seed in seeds().step_by(6) {
        let (rough, smooth) = (Plan::rough(seed), Plan::smooth(seed));
        let outcomes: Vec<_> = modes()
            .into_iter()
            .map(|mode| (run(&rough, mode), run(&smooth, mode)))
            .collect();
        for (over_rough, over_smooth) in &outcomes {
            assert_eq!(over_rough.streams, outcomes[0].0.streams, "seed {seed}");
            assert_eq!(over_smooth.streams, outcomes[0].1.streams, "seed {seed}");
            // Nothing is lost between link and socket, either.
            assert_eq!(
                over_smooth.datagrams, outcomes[0].1.datagrams,
                "seed {seed}"
            );
        }
    }
}

/// What both stacks counted under a name.
fn count(outcome: &Outcome, name: &str) -> u64 {
    let rows = outcome.counters.iter().map(|text| {
        let rows: Vec<serde_json::Value> = serde_json::from_str(text).expect("rows");
        let mut found = rows.iter().filter(|row| row["name"] == name);
        found.next().and_then(|row| row["value"].as_u64())
    });
    rows.map(|n| n.expect("counted")).sum()
}

/// Segments that come one behind the other are taken as runs wherever the shard is turned, if not in each run.
#[test]
fn runs_pass_every_hand_off() {
    let first = seeds().next().unwrap_or(1);
    for mode in modes() {
        let followed = |seed| count(&run(&Plan::smooth(seed), mode), "tcp_segments_followed");
        assert!(
            (first..first + 6).any(|seed| followed(seed) > 0),
            "{mode:?}"
        );
    }
}

/// With dispatch `hybrid`, packets that find their shard held pass through its backlog: some do, if not in each run, and none is lost there.
#[test]
fn backlogs_are_passed_through() {
    let mode = Mode {
        regime: Regime::Locked,
        dispatch: Dispatch::Hybrid,
        stepped: true,
        shards: None,
        queues: 1,
    };
    let mut passed = 0;
    for seed in seeds().step_by(6).flat_map(|first| first..first + 6) {
        let outcome = run(&Plan::smooth(seed), mode);
        passed += count(&outcome, "backlog_packets");
        assert_eq!(count(&outcome, "drop_backlog_full"), 0, "seed {seed}");
    }
    assert!(passed > 0);
}

/// Connections move from shard to shard in the middle of everything, some of them, and segments that were under way go after them.
#[test]
fn connections_move() {
    let mode = Mode {
        regime: Regime::AppChannel,
        dispatch: Dispatch::Direct,
        stepped: true,
        shards: Some(3),
        queues: 3,
    };
    let names = ["tcp_moved", "tcp_passed_on"];
    let mut counts = [0, 0];
    for seed in seeds().step_by(6).flat_map(|first| first..first + 12) {
        let outcome = run(&Plan::rough(seed), mode);
        for (count_of, name) in counts.iter_mut().zip(names) {
            *count_of += count(&outcome, name);
        }
    }
    assert!(
        counts.iter().all(|&count| count > 0),
        "{names:?}: {counts:?}"
    );
}

#[test]
fn the_same_seed_gives_the_same_order() {
    for seed in seeds().step_by(6) {
        let plan = Plan::rough(seed);
        for mode in modes() {
            let (first, second) = (run(&plan, mode), run(&plan, mode));
            assert_eq!(first, second, "seed {seed} {mode:?}: two runs differ");
        }
    }
}

/// One stack ends at any step of a run. Its roles have nothing more to do, and the other stack's sockets learn that their link is gone.
#[test]
fn a_stack_may_end_at_any_step() {
    for seed in seeds().step_by(3) {
        let plan = Plan::rough(seed);
        for mode in modes() {
            let mut random = Random::new(seed ^ 0x656e_6400);
            println!("seed {seed} {mode:?}: {plan}");
            let world = World::new(&plan, mode).expect("a world");
            let after = random.below(400);
            let ended = world.end_one(after, random.below(2));
            if let Err(e) = ended {
                panic!("seed {seed} {mode:?} after {after} turns: {e}\n  {plan}");
            }
        }
    }
}
