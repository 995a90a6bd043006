//! The table under one thread and under many.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::SeqCst},
};

use super::Table;

/// Knows its number and counts itself out.
struct Thing {
    number: usize,
    alive: Arc<AtomicUsize>,
}

impl Thing {
    fn new(number: usize, alive: &Arc<AtomicUsize>) -> Self {
        alive.fetch_add(1, SeqCst);
        Self {
            number,
            alive: alive.clone(),
        }
    }
}

impl Drop for Thing {
    fn drop(&mut self) {
        assert!(self.number < 1 << 32, "dropped twice");
        self.number = usize::MAX;
        self.alive.fetch_sub(1, SeqCst);
    }
}

fn table() -> (&'static Table<Thing>, Arc<AtomicUsize>) {
    (
        Box::leak(Box::new(Table::new())),
        Arc::new(AtomicUsize::new(0)),
    )
}

#[test]
fn a_number_leads_to_its_record_until_it_is_removed() {
    let (table, alive) = table();
    assert!(table.is_vacant(7) && table.get(7).is_none() && table.remove(7).is_none());
    table.insert(7, &table.create(Thing::new(7, &alive))).ok();
    assert!(!table.is_vacant(7) && table.is_vacant(8));
    let held = table.get(7).map(|thing| thing.number);
    assert_eq!(held, Some(7));
    let removed = table.remove(7).unwrap();
    assert!(removed.last && table.is_vacant(7));
    assert_eq!(alive.load(SeqCst), 1);
    drop(removed);
    assert_eq!(alive.load(SeqCst), 0);
}

#[test]
fn numbers_out_of_range_are_nobodys() {
    let (table, alive) = table();
    let thing = table.create(Thing::new(1, &alive));
    for fd in [-1, i32::MIN, 1 << 20, i32::MAX] {
        assert!(table.is_vacant(fd) && table.get(fd).is_none());
        assert!(table.insert(fd, &thing).is_err());
    }
    assert!(table.insert((1 << 20) - 1, &thing).is_ok());
}

#[test]
fn duplicates_share_and_the_last_one_ends_it() {
    let (table, alive) = table();
    let thing = table.create(Thing::new(1, &alive));
    for fd in [3, 4, 5000] {
        assert!(
            table
                .insert(fd, &thing)
                .is_ok_and(|before| before.is_none())
        );
    }
    assert_eq!(thing.numbers(), 3);
    assert!(table.find(&thing).is_some());
    assert_eq!(table.occupied(4, 6000), [4, 5000]);
    assert!(!table.remove(3).unwrap().last);
    let other = table.create(Thing::new(2, &alive));
    let before = table.insert(4, &other).unwrap().unwrap();
    assert!(!before.last && before.handle.number == 1);
    table.remove_all(&thing);
    assert_eq!(thing.numbers(), 0);
    assert_eq!(table.find(&thing), None);
    drop((thing, before));
    assert_eq!(alive.load(SeqCst), 1); // the other
}

#[test]
fn a_number_may_be_pointed_at_what_it_leads_to() {
    let (table, alive) = table();
    let thing = table.create(Thing::new(1, &alive));
    table.insert(3, &thing).ok();
    let before = table.insert(3, &thing).unwrap().unwrap();
    assert!(!before.last && thing.numbers() == 1);
    drop((before, thing));
    assert_eq!(table.get(3).unwrap().number, 1);
    table.remove(3);
    assert_eq!(alive.load(SeqCst), 0);
}

#[test]
fn sixty_five_thousand_numbers_work() {
    let (table, alive) = table();
    for fd in 0..65_536 {
        table
            .insert(fd, &table.create(Thing::new(fd as usize, &alive)))
            .ok();
    }
    assert!((0..65_536).all(|fd| table.get(fd).unwrap().number == fd as usize));
    assert_eq!(table.occupied(0, i32::MAX).len(), 65_536);
    for fd in 0..65_536 {
        assert!(table.remove(fd).unwrap().last);
    }
    assert_eq!(alive.load(SeqCst), 0);
}

/// Readers look up while numbers are closed and given out again (negative 73: fd reuse ABA): what they get is whole,
/// alive, and of a number that it was put under.
#[test]
fn readers_never_see_a_mixture() {
    let (table, alive) = table();
    let stop = Arc::new(AtomicUsize::new(0));
    let readers: Vec<_> = (0..3)
        .map(|_| {
            let stop = stop.clone();
            std::thread::spawn(move || {
                let mut found = 0_u64;
                while stop.load(SeqCst) == 0 {
                    for fd in 0..4 {
                        if let Some(thing) = table.get(fd) {
                            let first = thing.number;
                            assert_eq!(first % 4, fd as usize);
                            std::hint::spin_loop();
                            assert_eq!(thing.number, first);
                            found += 1;
                        }
                    }
                }
                found
            })
        })
        .collect();
    for round in 0..100_000_usize {
        let fd = i32::try_from(round % 4).unwrap();
        table
            .insert(fd, &table.create(Thing::new(round, &alive)))
            .ok();
        if round % 3 == 0 {
            table.remove(fd);
        }
    }
    stop.store(1, SeqCst);
    for reader in readers {
        reader.join().unwrap();
    }
    for fd in 0..4 {
        table.remove(fd);
    }
    assert_eq!(alive.load(SeqCst), 0);
}

/// `cargo test --release -p netchan-preload cost -- --ignored --nocapture`: what a look costs, in nanoseconds.
#[test]
#[ignore = "a measurement"]
fn cost_of_a_look() {
    let (table, alive) = table();
    table.insert(5, &table.create(Thing::new(5, &alive))).ok();
    let time = |what: &str, look: &dyn Fn(i32) -> bool| {
        let start = crate::sys::monotonic();
        let hits = (0..10_000_000)
            .filter(|i| look(std::hint::black_box(5 + i % 2)))
            .count();
        let spent = crate::sys::monotonic() - start;
        println!("{what}: {:.2} ns ({hits})", spent.as_secs_f64() * 1e9 / 1e7);
    };
    time("is_vacant", &|fd| table.is_vacant(fd));
    time("get, vacant or not", &|fd| table.get(fd).is_some());
    time("get and drop", &|fd| table.get(fd & !2 | 5 & fd).is_some());
}
