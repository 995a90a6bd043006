//! Which process may start a stack.

use super::{is_configured, is_forked, owned_elsewhere, owns_table, running};

#[test]
fn a_living_owner_keeps_the_links() {
    let own = crate::sys::pid();
    let parent = std::os::unix::process::parent_id().to_string();
    assert!(owned_elsewhere(Some(&parent), own));
    assert!(!owned_elsewhere(Some(&own.to_string()), own)); // exec'd again
    assert!(!owned_elsewhere(Some("2147483646"), own)); // no process
    assert!(!owned_elsewhere(Some("nonsense"), own));
    assert!(!owned_elsewhere(Some("-1"), own)); // kill(2) would take it for all processes
    assert!(!owned_elsewhere(None, own));
}

#[test]
fn without_settings_nothing_starts() {
    assert!(!is_configured() && running().is_none() && !is_forked() && owns_table());
}
