//! Tests of the counters.

use super::PerCore;

#[test]
fn slots_add_up_and_wrap() {
    let counts = PerCore::<3>::new(4);
    assert_eq!((counts.slots(), counts.read(2)), (4, 0));
    for slot in 0..4 {
        counts.add(slot, 1, 10);
        counts.slot(slot).add(2, u64::MAX);
    }
    assert_eq!((counts.read(0), counts.read(1)), (0, 40));
    assert_eq!(counts.read(2), u64::MAX - 3);
    assert_eq!(counts.slot(3).read(1), 10);
}

#[test]
fn writers_share_no_cache_line() {
    let counts = PerCore::<1>::new(2);
    let at = |slot| std::ptr::from_ref(counts.slot(slot)).addr();
    assert!(at(1) - at(0) >= 64 && at(0).is_multiple_of(64));
}

#[test]
fn a_count_for_each_of_two_threads() {
    let counts = PerCore::<2>::new(2);
    std::thread::scope(|scope| {
        for slot in 0..2 {
            let counts = &counts;
            scope.spawn(move || (0..100_000).for_each(|_| counts.add(slot, 1, 1)));
        }
        let mut last = 0;
        for _ in 0..1000 {
            let now = counts.read(1);
            assert!(last <= now && now <= 200_000);
            last = now;
        }
    });
    assert_eq!((counts.read(0), counts.read(1)), (0, 200_000));
}

#[test]
#[should_panic(expected = "index out of bounds")]
fn a_slot_that_is_not_there() {
    PerCore::<1>::new(1).add(1, 0, 1);
}
