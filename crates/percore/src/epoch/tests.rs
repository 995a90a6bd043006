//! Tests of the epoch lists.

use super::{List, collect, section};
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
};

#[test]
fn what_is_pushed_is_read_and_what_goes_is_gone() {
    let list = List::default();
    assert!(list.is_empty() && list.read().is_empty());
    (1..=4).for_each(|n| list.push(n));
    assert_eq!(*list.read(), [1, 2, 3, 4]);
    assert_eq!(list.len(), 4);
}

#[test]
fn a_reader_keeps_what_it_saw() {
    let list = List::from(vec![1, 2, 3]);
    let before = list.read();
    assert_eq!(list.retain(|n| n % 2 == 0), 2);
    let section = section();
    assert_eq!(
        (&*before, list.read_in(&section)),
        (&[1, 2, 3][..], &[2][..])
    );
    list.update(Vec::clear);
    assert_eq!(*before, [1, 2, 3]);
    assert!(list.is_empty());
    assert_eq!(format!("{list:?}"), "[]");
}

#[test]
fn a_change_that_panics_changes_nothing() {
    let list = List::from(vec![1]);
    let change = AssertUnwindSafe(|| {
        list.update(|items| {
            items.push(2);
            panic!("on purpose");
        })
    });
    assert!(catch_unwind(change).is_err());
    assert_eq!(*list.read(), [1]);
    list.push(3);
    assert_eq!(*list.read(), [1, 3]);
}

/// Counts how many of it are alive.
struct Counted(Arc<AtomicUsize>);

impl Counted {
    fn new(alive: &Arc<AtomicUsize>) -> Self {
        alive.fetch_add(1, Ordering::SeqCst);
        Self(alive.clone())
    }
}

impl Clone for Counted {
    fn clone(&self) -> Self {
        Self::new(&self.0)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

fn collect_until(done: impl Fn() -> bool) {
    for _ in 0..100_000 {
        if done() {
            return;
        }
        collect();
        thread::yield_now();
    }
    panic!("what no section can see is still there");
}

#[test]
fn an_old_list_is_dropped_when_its_last_section_ends() {
    let alive = Arc::new(AtomicUsize::new(0));
    let list = List::from(vec![Counted::new(&alive)]);
    let reading = list.read();
    list.update(Vec::clear);
    (0..1000).for_each(|_| collect());
    assert_eq!((alive.load(Ordering::SeqCst), reading.len()), (1, 1));
    drop(reading);
    collect_until(|| alive.load(Ordering::SeqCst) == 0);
}

#[test]
fn the_end_of_a_list_drops_its_items() {
    let alive = Arc::new(AtomicUsize::new(0));
    drop(List::from(vec![Counted::new(&alive), Counted::new(&alive)]));
    assert_eq!(alive.load(Ordering::SeqCst), 0);
}

/// Two writers keep every list's items equal; readers never see a mixture, nor anything that was dropped. At the end all is dropped.
#[test]
fn readers_and_writers_race() {
    #[derive(Clone)]
    struct Item(usize, #[allow(dead_code)] Counted);
    let alive = Arc::new(AtomicUsize::new(0));
    let list = List::<Item>::default();
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let readers = [(); 2].map(|()| {
            scope.spawn(|| {
                let mut seen = 0;
                loop {
                    let last = over.load(Ordering::Relaxed); // once at least
                    let items = list.read();
                    let first = items.first().map_or(0, |item| item.0);
                    assert!(items.iter().all(|item| item.0 == first));
                    assert_eq!(items.len(), first % 7);
                    seen += 1;
                    if last {
                        break seen;
                    }
                }
            })
        });
        let writers = [(); 2].map(|()| {
            scope.spawn(|| {
                for _ in 0..2000 {
                    list.update(|items| {
                        let next = items.first().map_or(1, |item| item.0 + 1);
                        items.clear();
                        let next = if next % 7 == 0 { 0 } else { next };
                        items.extend((0..next % 7).map(|_| Item(next, Counted::new(&alive))));
                    });
                }
            })
        });
        writers.into_iter().for_each(|w| w.join().unwrap());
        over.store(true, Ordering::Relaxed);
        assert!(readers.into_iter().all(|r| r.join().unwrap() > 0));
    });
    let left = list.len();
    collect_until(|| alive.load(Ordering::SeqCst) == left);
    drop(list);
    assert_eq!(alive.load(Ordering::SeqCst), 0);
}
