//! The counter under loom: a reader sees what happened before, never more than there was, and never less than it saw.

use super::PerCore;
use crate::sync::Arc;
use loom::thread;

#[test]
fn two_writers_and_a_reader() {
    loom::model(|| {
        let counts = Arc::new(PerCore::<1>::new(2));
        counts.add(0, 0, 1);
        let writers: Vec<_> = (0..2)
            .map(|slot| {
                let counts = counts.clone();
                thread::spawn(move || {
                    counts.add(slot, 0, 1);
                    counts.add(slot, 0, 1);
                })
            })
            .collect();
        let (first, second) = (counts.read(0), counts.read(0));
        assert!(1 <= first && first <= second && second <= 5);
        writers.into_iter().for_each(|t| t.join().unwrap());
        assert_eq!(counts.read(0), 5);
    });
}
