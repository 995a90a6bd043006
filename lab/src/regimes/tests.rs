//! The jobs at a small scale, in this process.

use super::{
    child::{Carrier, Job, Outcome, Work, perform},
    plan::players,
};
use crate::kit::cores;

fn done(carrier: Carrier, work: Work, stages: bool) -> Outcome {
    let cores = cores();
    let job = Job {
        carrier,
        work,
        cores,
        stages,
    };
    perform(&job).expect("the job is done")
}

/// Everything a stream and a service come to, for every player that the build has.
#[test]
fn every_player_can_do_every_job() {
    let mut there = 0;
    for player in players() {
        let stream = done(player.carrier, Work::Stream { bytes: 1 << 20 }, false);
        if let Some(why) = stream.absent {
            eprintln!("{} is left out: {why}", player.name());
            continue;
        }
        assert!(stream.packets >= 700.0, "{}: {stream:?}", player.name());
        assert!(stream.seconds > 0.0 && stream.processor_seconds + stream.generator_seconds > 0.0);
        let work = Work::Service {
            clients: 3,
            transactions: 20,
        };
        let service = done(player.carrier, work, false);
        assert_eq!(service.transactions, 60.0, "{}", player.name());
        there += 1;
    }
    assert_eq!(there, players().len(), "all are in this build");
}

#[test]
fn jobs_go_through_text() {
    let job = Job {
        carrier: players()[1].carrier,
        work: Work::Stream { bytes: 1 << 20 },
        cores: cores(),
        stages: true,
    };
    let text = serde_json::to_string(&job).expect("plain data");
    assert_eq!(serde_json::from_str::<Job>(&text).expect("as written"), job);
    assert!(super::child::child("{").is_err());
}
