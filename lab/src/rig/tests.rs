//! The jobs at a small scale, in this process.

use netchan::Regime;

use super::{
    Carrier, Counter, Disturbance, Job, Look, Outcome, Place, Rig, Role, Work, candidates,
};
use crate::kit::cores;

fn job(carrier: Carrier, work: Work) -> Job {
    Job::new(carrier, work, Place::Cores(cores()))
}

fn done(job: &Job) -> Outcome {
    let done = Rig::in_this_process().run(job);
    done.unwrap_or_else(|e| panic!("{job:?}: {e}"))
}

fn paced(thousands: f64, burst: usize) -> Work {
    Work::paced(20_000, burst, thousands / 20.0)
}

/// Everything a stream and a service come to, for every regime with each of its settings, and for the kernel.
#[test]
fn every_carrier_can_do_every_job() {
    let all = Regime::ALL.into_iter().flat_map(|regime| {
        let of = move |settings| Carrier::with(regime, settings);
        candidates(regime).into_iter().map(of)
    });
    for carrier in all.chain([Carrier::Linux]) {
        let stream = done(&Job {
            place: Place::of_roles(),
            ..job(carrier, Work::fast(800))
        });
        assert!(stream.packets >= 800.0, "{carrier:?}: {stream:?}");
        assert!(stream.seconds > 0.0 && stream.processor_seconds + stream.generator_seconds > 0.0);
        let service = Work::Service {
            clients: 3,
            transactions: 20,
        };
        assert_eq!(done(&job(carrier, service)).transactions, 60.0);
    }
}

#[test]
fn paced_stream_takes_its_time_and_is_pinned_by_roles() {
    let paced = Job {
        place: Place::of_roles(),
        stamps: true,
        ..job(Carrier::of(Regime::PerCpu), paced(2.0, 1))
    };
    let outcome = done(&paced);
    assert!(
        outcome.seconds > 0.095,
        "2,000 at 20,000 a second: {outcome:?}"
    );
    let [middle, late] = outcome.latency_ns.expect("stamps were asked for");
    assert!(100.0 < middle && middle <= late, "{middle} {late}");
}

#[test]
fn stages_are_found_under_their_roles() {
    let staged = Job {
        look: Look::Stages,
        ..job(Carrier::of(Regime::DriverChannel), paced(2.0, 8))
    };
    let outcome = done(&staged);
    for role in Role::RECEIVING {
        let sum: f64 = outcome.of(role).stages_ns.iter().sum();
        assert!(sum > 0.0, "{role:?}: {outcome:?}");
    }
}

#[test]
fn loopback_links_and_disturbances_can_be_had() {
    let regime = Carrier::of(Regime::Locked);
    let both = Job {
        links: 2,
        loopback: true,
        ..job(regime, Work::fast(800))
    };
    assert_eq!(done(&both).bytes, 3.0 * 800.0 * 1448.0);
    let loopback = job(regime, Work::fast(800)).over_loopback();
    assert_eq!(done(&loopback).packets, 800.0);
    let datagrams = job(regime, Work::Datagrams { packets: 640 }).over_loopback();
    assert_eq!(done(&datagrams).packets, 640.0);
    let disturbances = [
        Disturbance::ColdCaches { bytes: 1 << 16 },
        Disturbance::Preempt {
            us: 50,
            yields: true,
        },
    ];
    for disturbance in disturbances {
        let disturbed = Job {
            disturbance,
            place: Place::of_roles(),
            ..job(regime, paced(0.8, 8))
        };
        assert!(done(&disturbed).packets >= 800.0);
    }
}

#[test]
fn a_link_that_needs_giant_takes_it() {
    let stream = |needs_giant| {
        let regime = Carrier::of(Regime::Locked);
        let [taken, ..] = done(&Job {
            needs_giant,
            batch: 1,
            ..job(regime, Work::fast(800))
        })
        .giant;
        taken
    };
    assert!(stream(true) >= 800.0, "one frame a call");
    assert_eq!(stream(false), 0.0);
}

/// A counter that lost a request would be an error.
#[test]
fn server_counts_each_request() {
    let work = Work::Service {
        clients: 3,
        transactions: 20,
    };
    for counter in [Counter::Atomic(2), Counter::Batched(2), Counter::Flip(2)] {
        let counting = Job {
            counter,
            ..job(Carrier::of(Regime::Locked), work)
        };
        assert_eq!(done(&counting).transactions, 60.0);
    }
}

#[test]
fn job_goes_through_text() {
    let job = job(Carrier::of(Regime::Locked), Work::fast(800));
    let text = serde_json::to_string(&job).unwrap();
    assert_eq!(serde_json::from_str::<Job>(&text).unwrap(), job);
    assert!(super::child::child("{").is_err());
}
