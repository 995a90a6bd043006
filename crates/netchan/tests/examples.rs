//! The examples do what they say: each checks its own result.

use std::{path::PathBuf, process::Command};

/// All but `hello`, which serves for ever on a TAP device.
const EXAMPLES: [&str; 8] = [
    "echo",
    "forwarding",
    "module",
    "own_link",
    "packets",
    "regimes",
    "udp",
    "virtual_time",
];

/// Where cargo puts examples: beside the folder of this test's program.
fn folder() -> PathBuf {
    let own = std::env::current_exe().expect("this program has a path");
    let profile = own.ancestors().nth(2).expect("a folder for the profile");
    profile.join("examples")
}

#[test]
fn examples_end_well() {
    for name in EXAMPLES {
        let program = folder().join(name);
        let output = Command::new(&program)
            .output()
            .unwrap_or_else(|error| panic!("{name}: {error} (cargo test -p netchan builds it)"));
        let said = String::from_utf8_lossy(&output.stdout);
        let complained = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{name}: {said}{complained}");
        assert!(!said.is_empty(), "{name} says nothing");
    }
}
