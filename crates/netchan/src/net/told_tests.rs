//! What a stack tells people of the end of a link.

use std::sync::{Arc, Mutex};

use percore::doorbell::Doorbell;

use crate::{
    Net, Threads,
    link::{Link, Properties, Queue, RxStatistics, TxStatistics, closed::Closed, wire},
    log::{Lines, Verbosity},
    steps::Steps,
};

/// The lines that a stack writes while its link, which `end` ends, is turned, at a verbosity.
fn told(
    verbosity: Verbosity,
    end: impl FnOnce(wire::Wire, wire::Wire) -> Box<dyn Link>,
) -> Vec<String> {
    let lines = Arc::new(Mutex::new(Vec::new()));
    let into = Arc::clone(&lines);
    let subscriber = Lines::new(verbosity, move |line: &str| {
        into.lock().unwrap().push(line.to_owned());
    });
    tracing::subscriber::with_default(subscriber, || {
        let (near, far) = wire::pair(&wire::Options::default());
        let builder = Net::builder().threads(Threads::Stepped);
        let net = builder.link_with(end(near, far)).address("10.0.0.1/24");
        let net = net.unwrap().start().unwrap();
        let mut steps = Steps::new(&net).unwrap();
        for _ in 0..16 {
            steps.step(0);
        }
    });
    let lines = lines.lock().unwrap();
    lines.clone()
}

/// A link that is gone from the start.
struct Failing(Properties);

impl Link for Failing {
    fn properties(&self) -> &Properties {
        &self.0
    }
    fn start(self: Box<Self>, _: &[Arc<Doorbell>]) -> std::io::Result<Vec<Queue>> {
        Ok(vec![Queue {
            rx: Box::new(Closed(RxStatistics::default())),
            tx: Box::new(Closed(TxStatistics::default())),
        }])
    }
}

/// The stack at the other end was stopped, in this process: each pair of stacks that ends said so, once a pair in a run of the lab.
#[test]
fn a_wire_whose_other_end_was_dropped_is_no_news() {
    let dropped = |near, far| {
        drop(far);
        Box::new(near) as Box<dyn Link>
    };
    assert_eq!(told(Verbosity::Usual, dropped), Vec::<String>::new());
    let verbose = told(Verbosity::Verbose, dropped);
    assert!(
        verbose.len() == 1 && verbose[0].contains("the other end of the wire was dropped"),
        "{verbose:?}"
    );
}

#[test]
fn a_link_that_fails_is_told_once() {
    let failed = |near: wire::Wire, _: wire::Wire| {
        let properties = near.properties().clone();
        Box::new(Failing(properties)) as Box<dyn Link>
    };
    let quiet = told(Verbosity::Quiet, failed);
    assert!(
        quiet.len() == 1 && quiet[0].contains("the link is gone"),
        "{quiet:?}"
    );
}
