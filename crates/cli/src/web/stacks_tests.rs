//! Looks that cannot be had, and that no client waits for another.

use std::path::PathBuf;

use super::*;

fn gone(id: &str) -> Stack {
    Stack {
        id: id.to_owned(),
        pid: 1,
        path: PathBuf::from("/nonexistent/1.sock"),
        user: None,
    }
}

fn stacks() -> Arc<Stacks> {
    Arc::new(Stacks::new(Some("none".to_owned())))
}

#[test]
fn a_stack_that_has_ended_is_said_to_have() {
    let (seen, trouble) = stacks().look(&gone("1"));
    assert!(seen.is_none());
    assert_eq!(trouble.as_deref(), Some("the stack has ended"));
    let refused = stacks().find("1").expect_err("no such stack");
    assert_eq!(refused.status, StatusCode::NOT_FOUND);
}

/// While one client waits for a stack, another gets what was seen last, and so do those that want the list.
#[test]
fn what_another_client_asks_is_not_waited_for() {
    let stacks = stacks();
    let place = stacks.place("1");
    let _asking = locked(&place.asking);
    locked(&place.last).1 = Some("as before".to_owned());
    assert_eq!(stacks.look(&gone("1")).1.as_deref(), Some("as before"));
    *locked(&stacks.search) = Search {
        is_running: true,
        next_ns: u64::MAX,
    };
    assert!(stacks.rows().is_empty());
}

#[test]
fn the_looks_that_are_kept_are_few() {
    let stacks = stacks();
    for id in 0..3 * WATCHED_MAX {
        stacks.place(&id.to_string());
    }
    let places = locked(&stacks.places);
    assert_eq!(places.len(), WATCHED_MAX);
    assert!(places.contains_key(&(3 * WATCHED_MAX - 1).to_string()));
}
