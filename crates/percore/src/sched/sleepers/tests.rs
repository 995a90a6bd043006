//! The sleepers beside a list that does the same the simple way; and what they keep.

use super::{Key, Sleepers, State, Woken};

/// The sleepers: the place, the task, the key, the deadline; in the order of falling asleep.
type Simple = Vec<(u32, u32, Option<Key>, Option<u64>)>;

fn next(random: &mut u64) -> u64 {
    *random ^= *random << 13;
    *random ^= *random >> 7;
    *random ^= *random << 17;
    *random
}

#[test]
fn as_a_simple_list_does() {
    let given = std::env::var("NETCHAN_SEED").ok();
    let seed = given.and_then(|seed| seed.parse().ok());
    let mut random: u64 = seed.unwrap_or_else(crate::clock::now_ns) | 1;
    println!("NETCHAN_SEED={random}");
    let (mut sleepers, mut simple) = (Sleepers::new(4), Simple::new());
    let mut now = 0;
    for task in 0..20_000 {
        let which = next(&mut random);
        let key = Key::new(usize::try_from(which % 5).unwrap());
        match next(&mut random) % 8 {
            0..3 => {
                let key = (!which.is_multiple_of(7)).then_some(key);
                let until = (key.is_none() || which.is_multiple_of(3)).then_some(now + which % 100);
                let at = sleepers.sleep(task, key, until);
                simple.push((at, task, key, until));
            }
            3..5 => {
                let at_most = usize::try_from(which % 3).unwrap();
                let mut woken = Vec::new();
                sleepers.wakeup(key, at_most, |task| woken.push(task));
                let mut expected = simple.clone();
                expected.retain(|sleep| sleep.2 == Some(key));
                expected.truncate(at_most);
                assert_eq!(
                    woken,
                    expected.iter().map(|sleep| sleep.1).collect::<Vec<_>>()
                );
                simple.retain(|sleep| !woken.contains(&sleep.1));
                expected
                    .iter()
                    .for_each(|sleep| end(&mut sleepers, sleep.0, Woken::ByKey));
            }
            5..7 => {
                now += which % 20;
                let mut woken = Vec::new();
                sleepers.expire(now, usize::MAX, |task| woken.push(task));
                let due = |until: Option<u64>| until.is_some_and(|until| until <= now);
                let mut expected = simple.clone();
                expected.retain(|sleep| due(sleep.3));
                woken.sort_unstable();
                assert_eq!(
                    woken,
                    expected.iter().map(|sleep| sleep.1).collect::<Vec<_>>()
                );
                simple.retain(|sleep| !due(sleep.3));
                expected
                    .iter()
                    .for_each(|sleep| end(&mut sleepers, sleep.0, Woken::ByTime));
            }
            _ if simple.is_empty() => {}
            _ => {
                let i = usize::try_from(which).unwrap_or(0) % simple.len();
                sleepers.forget(simple.remove(i).0);
            }
        }
        let soonest = simple.iter().filter_map(|sleep| sleep.3).min();
        assert_eq!(sleepers.next_deadline(), soonest);
        assert_eq!(
            sleepers.timed,
            simple.iter().filter(|sleep| sleep.3.is_some()).count()
        );
    }
}

fn end(sleepers: &mut Sleepers, at: u32, why: Woken) {
    assert_eq!(sleepers.waiters[at as usize].state, State::Awake(why));
    assert_eq!(sleepers.end(at, 0), Some(why));
}

/// Deadlines of sleeps that ended early are thrown away before they are many.
#[test]
fn deadlines_do_not_pile_up() {
    let mut sleepers = Sleepers::new(4);
    for _ in 0..10_000 {
        let at = sleepers.sleep(1, Some(Key::new(1)), Some(u64::MAX));
        assert_eq!(sleepers.wakeup(Key::new(1), 9, |_| ()), 1);
        end(&mut sleepers, at, Woken::ByKey);
    }
    assert!(sleepers.deadlines.len() < 70 && sleepers.timed == 0);
    assert_eq!(sleepers.waiters.len(), 1);
}

/// With more sleepers, more deadlines may wait to be thrown away, so that looking for them is seldom.
#[test]
fn deadlines_may_be_twice_as_many_as_sleepers_and_some() {
    let mut sleepers = Sleepers::new(4);
    for _ in 0..99 {
        sleepers.sleep(1, Some(Key::new(2)), Some(u64::MAX));
    }
    let mut most = 0;
    for _ in 0..1_000 {
        let at = sleepers.sleep(1, Some(Key::new(1)), Some(u64::MAX));
        most = most.max(sleepers.deadlines.len());
        assert_eq!(sleepers.wakeup(Key::new(1), 9, |_| ()), 1);
        end(&mut sleepers, at, Woken::ByKey);
    }
    assert_eq!(most, 2 * 100 + 64 + 1);
}

#[test]
fn keys_are_spread_over_the_buckets() {
    let sleepers = Sleepers::new(256);
    let mut buckets: Vec<_> = (0..64)
        .map(|key| sleepers.bucket(Key::new(8 * key)))
        .collect();
    buckets.sort_unstable();
    buckets.dedup();
    assert!(buckets.len() > 32, "{buckets:?}");
}

/// The oldest deadlines first, so many and no more; the others the next time.
#[test]
fn not_all_at_once() {
    let mut sleepers = Sleepers::new(4);
    (1..=5).for_each(|task| _ = sleepers.sleep(task, None, Some(task.into())));
    let mut woken = Vec::new();
    assert_eq!(sleepers.expire(4, 2, |task| woken.push(task)), 2);
    assert_eq!(woken, [1, 2]);
    assert_eq!(sleepers.expire(4, 9, |task| woken.push(task)), 2);
    assert_eq!(sleepers.expire(4, 9, |task| woken.push(task)), 0);
    assert_eq!(woken, [1, 2, 3, 4]);
}
