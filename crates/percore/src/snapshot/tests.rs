//! Tests of snapshots and their views.

use super::{Snapshot, section};
use crate::{clock::now_ns, set_on_drop::SetOnDrop};
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
};

#[test]
fn what_is_published_is_read() {
    let list = Snapshot::<Vec<u32>>::default();
    assert!(list.read().is_empty());
    (1..=4).for_each(|n| list.update(|items| items.push(n)));
    assert_eq!(*list.read(), [1, 2, 3, 4]);
    list.set(vec![5]);
    assert_eq!((&*list.read(), &*list.load()), (&vec![5], &vec![5]));
    assert_eq!(format!("{list:?} {:?}", list.read()), "[5] [5]");
}

#[test]
fn a_reader_keeps_what_it_saw() {
    let list = Snapshot::new(vec![1, 2, 3]);
    let before = list.read();
    list.update(|items| items.retain(|n| n % 2 == 0));
    let section = section();
    assert_eq!(
        (&*before, list.read_in(&section)),
        (&vec![1, 2, 3], &vec![2])
    );
    list.update(Vec::clear);
    assert_eq!(*before, [1, 2, 3]);
    assert!(list.read().is_empty());
}

#[test]
fn a_view_changes_at_its_refresh_and_only_then() {
    let source = Arc::new(Snapshot::new(1));
    let mut view = source.view();
    assert_eq!(view.refresh(), None);
    source.set(2);
    let mut late = view.source().view();
    assert_eq!((*view, *late), (1, 2));
    assert_eq!(view.refresh().as_deref(), Some(&1));
    assert_eq!((view.refresh(), late.refresh()), (None, None));
    source.set(3);
    assert_eq!((*view, *view.clone()), (2, 3));
    source.set(4);
    assert_eq!(late.refresh().as_deref(), Some(&2)); // two changes, one refresh
    assert_eq!((*late, format!("{view:?}")), (4, "2".to_owned()));
}

#[test]
fn a_change_that_fails_changes_nothing() {
    let source = Arc::new(Snapshot::new(1));
    let mut view = source.view();
    let refused: Result<(), &str> = source.try_update(|value| {
        *value = 2;
        Err("no")
    });
    assert_eq!(
        (refused, view.refresh(), *source.read()),
        (Err("no"), None, 1)
    );
    let taken: Result<&str, ()> = source.try_update(|value| {
        *value = 3;
        Ok("yes")
    });
    assert_eq!(
        (taken, view.refresh(), *view),
        (Ok("yes"), Some(Arc::new(1)), 3)
    );
}

#[test]
fn a_change_that_panics_changes_nothing() {
    let list = Snapshot::new(vec![1]);
    let change = AssertUnwindSafe(|| {
        list.update(|items| {
            items.push(2);
            panic!("on purpose");
        })
    });
    assert!(catch_unwind(change).is_err());
    assert_eq!(*list.read(), [1]);
    list.update(|items| items.push(3));
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

/// Waits for what goes once no other test's thread is in a section any more: such a thread may be off its core for a while.
fn collect_until(done: impl Fn() -> bool) {
    let limit = now_ns() + 30_000_000_000;
    while !done() {
        assert!(now_ns() < limit, "what no section can see is still there");
        crossbeam_epoch::pin().flush();
        thread::yield_now();
    }
}

#[test]
fn an_old_value_is_dropped_when_its_last_section_ends() {
    let alive = Arc::new(AtomicUsize::new(0));
    let list = Snapshot::new(vec![Counted::new(&alive)]);
    let reading = list.read();
    list.update(Vec::clear);
    (0..1000).for_each(|_| crossbeam_epoch::pin().flush());
    assert_eq!((alive.load(Ordering::SeqCst), reading.len()), (1, 1));
    drop(reading);
    collect_until(|| alive.load(Ordering::SeqCst) == 0);
}

#[test]
fn an_old_value_is_dropped_with_its_last_view() {
    let alive = Arc::new(AtomicUsize::new(0));
    let source = Arc::new(Snapshot::new(vec![Counted::new(&alive)]));
    let (mut view, held) = (source.view(), source.load());
    source.set(Vec::new());
    (0..1000).for_each(|_| crossbeam_epoch::pin().flush());
    assert_eq!((alive.load(Ordering::SeqCst), view.len()), (1, 1));
    assert!(view.refresh().is_some());
    (0..1000).for_each(|_| crossbeam_epoch::pin().flush());
    assert_eq!(alive.load(Ordering::SeqCst), 1);
    drop(held);
    collect_until(|| alive.load(Ordering::SeqCst) == 0);
}

#[test]
fn the_end_of_a_snapshot_drops_its_value() {
    let alive = Arc::new(AtomicUsize::new(0));
    drop(Snapshot::new([Counted::new(&alive), Counted::new(&alive)]));
    assert_eq!(alive.load(Ordering::SeqCst), 0);
}

/// Two writers keep every list's items equal; readers and views never see a mixture, nor anything that was dropped. At the end all is dropped.
#[test]
fn readers_and_writers_race() {
    #[derive(Clone)]
    struct Item(usize, #[allow(dead_code)] Counted);
    let alive = Arc::new(AtomicUsize::new(0));
    let list = Arc::new(Snapshot::<Vec<Item>>::default());
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let readers = [(); 2].map(|()| {
            scope.spawn(|| {
                let check = |items: &[Item]| {
                    let first = items.first().map_or(0, |item| item.0);
                    assert!(items.iter().all(|item| item.0 == first));
                    assert_eq!(items.len(), first % 7);
                };
                let mut view = list.view();
                let mut seen = 0;
                loop {
                    let last = over.load(Ordering::Relaxed); // once at least
                    check(&list.read());
                    view.refresh();
                    check(&view);
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
        let ends = SetOnDrop(&over);
        writers.into_iter().for_each(|w| w.join().unwrap());
        drop(ends);
        assert!(readers.into_iter().all(|r| r.join().unwrap() > 0));
    });
    let left = list.read().len();
    collect_until(|| alive.load(Ordering::SeqCst) == left);
    drop(list);
    assert_eq!(alive.load(Ordering::SeqCst), 0);
}
