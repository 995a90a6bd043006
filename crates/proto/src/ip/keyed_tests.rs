//! The fixed map against a map of the standard library, and what a full one does.

use super::{Key, Map, Random, Seed};
use proptest::prelude::*;
use std::collections::BTreeMap;

const SEED: Seed = Seed([1, 2]);

/// A key whose hash has three values only: everything collides.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Bad(u8);
impl Key for Bad {
    fn digest(&self, _: Seed) -> u64 {
        u64::from(self.0 % 3) * 31
    }
}

proptest! {
    #[test]
    fn agrees_with_a_tree(ops in prop::collection::vec((any::<bool>(), 0u8..24), 0..200)) {
        let mut map = Map::new(32, SEED);
        let mut model = BTreeMap::new();
        for (step, (insert, key)) in ops.into_iter().enumerate() {
            let key = Bad(key);
            if insert && !model.contains_key(&key) {
                prop_assert!(map.insert(key, step, |_, _| None).is_some());
                model.insert(key, step);
            } else if !insert {
                let gone = map.find(&key).and_then(|at| map.remove(at)).map(|(_, v)| v);
                prop_assert_eq!(gone, model.remove(&key));
            }
            prop_assert_eq!(map.len(), model.len());
            for k in 0..24 {
                prop_assert_eq!(map.get(&Bad(k)), model.get(&Bad(k)));
            }
        }
    }
}

#[test]
fn full_map_gives_up_the_least_useful_and_never_a_pinned_one() {
    let mut map = Map::new(8, SEED);
    for k in 0..8 {
        map.insert(Bad(k), u64::from(k), |_, v| Some(*v));
    }
    let rank = |k: &Bad, v: &u64| if k.0 == 0 { None } else { Some(*v) };
    assert!(map.insert(Bad(100), 100, rank).is_some());
    assert!(map.get(&Bad(0)).is_some(), "pinned");
    assert!(map.get(&Bad(1)).is_none(), "lowest rank goes");
    assert_eq!(map.len(), 8);
    assert_eq!(map.insert(Bad(101), 1, |_, _| None), None, "nothing may go");
}

#[test]
fn random_is_replayable_and_below_its_bound() {
    let (mut a, mut b) = (Random::new(SEED), Random::new(SEED));
    for _ in 0..1000 {
        let x = a.below(7);
        assert_eq!(x, b.below(7));
        assert!(x < 7);
    }
    assert_eq!(a.below(0), 0);
}

#[test]
fn derived_seeds_differ() {
    assert_ne!(SEED.derive(1), SEED.derive(2));
    assert_ne!(SEED.derive(1).hash(b"x"), SEED.derive(2).hash(b"x"));
}
