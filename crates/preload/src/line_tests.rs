//! Names, and where what is said of them goes.

use super::{
    ANCESTORS, MESSAGE_MAX, Name, Said, TAG_SHIFT, acting, begin, begin_anew, childrens_ends,
    may_begin_anew, names, say, wake,
};

use crate::sys;

/// The lines are the process's: one test for all of them.
#[test]
fn what_is_said_goes_to_the_process_that_has_the_socket() {
    let first = Name::new().number;
    assert!(first >> TAG_SHIFT != 0 && Name::new().number == first + 1);
    assert!(
        !say(&Said::Uses(first)) && acting().is_none(),
        "no line as yet"
    );
    let heard = begin().unwrap();
    let hear = |heard| {
        let mut room = [0; MESSAGE_MAX];
        let len = sys::read(heard, &mut room).unwrap();
        Said::decode(&room[..len])
    };
    assert!(say(&Said::Uses(first)));
    assert_eq!(hear(heard), Some(Said::Uses(first)));
    assert!(
        !say(&Said::Uses(first ^ 1 << TAG_SHIFT)),
        "no process of these has it"
    );
    assert_eq!(names() >> TAG_SHIFT, first >> TAG_SHIFT);
    let mut parents = vec![(first, heard)];
    for generation in 1..=ANCESTORS {
        assert!(may_begin_anew());
        begin_anew();
        assert!(acting().is_none() && !wake(), "it has none yet");
        assert!(say(&Said::Uses(first)), "its parents' are there");
        assert_eq!(hear(parents[0].1), Some(Said::Uses(first)));
        let own = Name::new().number;
        assert!(
            parents
                .iter()
                .all(|(of, _)| own >> TAG_SHIFT != of >> TAG_SHIFT)
        );
        parents.push((own, begin().unwrap()));
        let kept = childrens_ends();
        assert_eq!(kept.iter().filter(|end| **end >= 0).count(), generation + 1);
        for &(number, heard) in &parents {
            assert!(say(&Said::WaitsAtInstance(number)));
            assert_eq!(hear(heard), Some(Said::WaitsAtInstance(number)));
        }
    }
    assert!(!may_begin_anew(), "one more would push out the first");
}
