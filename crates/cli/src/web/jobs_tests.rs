//! Jobs come to their ends, and there are never too many.

use std::sync::mpsc::{Sender, channel};

use super::*;

/// Starts a job that runs until its sender is dropped.
fn held(jobs: &Jobs, kind: Kind) -> Result<(u64, Sender<()>), Refused> {
    let (hold, held) = channel::<()>();
    let id = jobs.start(kind, "1", "x".to_owned(), move |_| {
        let _ = held.recv();
        Ok(Bytes::from_static(b"done"))
    })?;
    Ok((id, hold))
}

fn row(jobs: &Jobs, id: u64) -> Row {
    let mut rows = jobs.rows().into_iter();
    rows.rfind(|row| row.id == id).expect("a job")
}

fn until_ended(jobs: &Jobs, id: u64) -> Row {
    loop {
        let row = row(jobs, id);
        if !row.is_running {
            return row;
        }
        thread::yield_now();
    }
}

#[test]
fn too_many_are_refused_and_the_oldest_goes() {
    let jobs = Jobs::default();
    let mut holds = Vec::new();
    let (plot, hold) = held(&jobs, Kind::Plot).expect("one plot");
    holds.push(hold);
    let refused = held(&jobs, Kind::Plot).expect_err("a second plot");
    assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS);
    for _ in 1..RUNNING_MAX {
        holds.push(held(&jobs, Kind::Capture).expect("a capture").1);
    }
    assert!(held(&jobs, Kind::Capture).is_err());
    assert!(
        jobs.result(plot)
            .is_err_and(|e| e.why.contains("still runs"))
    );
    assert!(
        jobs.forget(plot)
            .is_err_and(|e| e.status == StatusCode::CONFLICT)
    );
    holds.clear();
    let ended = until_ended(&jobs, plot);
    assert!(ended.has_result && ended.error.is_none());
    assert_eq!(jobs.result(plot).expect("a result").1, "done");
    for _ in 0..KEPT_MAX {
        let (id, hold) = held(&jobs, Kind::Capture).expect("a capture");
        drop(hold);
        until_ended(&jobs, id);
    }
    assert_eq!(jobs.rows().len(), KEPT_MAX);
    assert!(
        jobs.result(plot)
            .is_err_and(|e| e.status == StatusCode::NOT_FOUND)
    );
}

#[test]
fn every_end_is_told() {
    let jobs = Jobs::default();
    let start = |work: fn(&Job) -> Result<Bytes, Failure>| {
        let id = jobs.start(Kind::Capture, "1", "x".to_owned(), work);
        until_ended(&jobs, id.expect("a job"))
    };
    let ended = start(|job| {
        job.tell(3, 300);
        job.note("a note".to_owned());
        Err(failed("no \u{1b} such link"))
    });
    assert_eq!(ended.error.as_deref(), Some("no \u{fffd} such link"));
    assert_eq!(
        (ended.frames, ended.bytes, ended.note.as_deref()),
        (3, 300, Some("a note"))
    );
    let ended = start(|_| std::panic::resume_unwind(Box::new(())));
    assert_eq!(ended.error.as_deref(), Some("its thread has panicked"));
    let ended = start(|_| Ok(vec![0; RESULT_MAX + 1].into()));
    assert!(ended.error.is_some_and(|why| why.contains("32 MiB")) && !ended.has_result);
    let stopped = jobs.start(Kind::Capture, "1", "x".to_owned(), |job| {
        while !job.is_stopped() {
            thread::yield_now();
        }
        Ok(Bytes::new())
    });
    let stopped = stopped.expect("a job");
    jobs.stop(stopped).expect("told");
    assert!(until_ended(&jobs, stopped).has_result);
    jobs.forget(stopped).expect("gone");
    assert!(jobs.stop(stopped).is_err());
}
