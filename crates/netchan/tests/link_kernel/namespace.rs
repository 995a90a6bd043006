//! A network namespace for each test: the test starts itself again inside one.

use std::process::Command;

use crate::skips::skipped;

const INSIDE: &str = "NETCHAN_TEST_NAMESPACE";

/// Runs `body` in a network namespace that has nothing but a loopback. `test` is the path of the calling test function.
/// A skipped test where this machine does not permit that.
pub fn with(test: &str, body: impl FnOnce()) {
    if std::env::var_os(INSIDE).is_some() {
        return body();
    }
    let Some(flags) = permitted() else {
        return skipped(
            test,
            "`unshare -n` is not permitted here, not even in a user namespace",
        );
    };
    let output = Command::new("unshare")
        .args([flags, "--"])
        .arg(std::env::current_exe().expect("a test has a path"))
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env(INSIDE, "1")
        .output()
        .expect("unshare(1) ran a moment ago");
    let said = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(output.status.success(), "inside the namespace:\n{said}");
    assert!(
        said.contains("1 passed"),
        "{test} is not the name of this test:\n{said}"
    );
}

/// As [`with`], for a test that opens a TAP.
pub fn with_tap(test: &str, body: impl FnOnce()) {
    if let Err(e) = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/net/tun")
    {
        return skipped(test, &format!("/dev/net/tun cannot be opened here: {e}"));
    }
    with(test, body);
}

/// How a network namespace can be had here: as root, or in a user namespace.
fn permitted() -> Option<&'static str> {
    ["-n", "-Urn"].into_iter().find(|flags| {
        Command::new("unshare")
            .args([flags, "--", "true"])
            .output()
            .is_ok_and(|out| out.status.success())
    })
}

/// Runs ip(8) with the words of `arguments`.
pub fn ip(arguments: &str) {
    let output = Command::new("ip")
        .args(arguments.split_whitespace())
        .output()
        .expect("iproute2 is installed");
    assert!(
        output.status.success(),
        "ip {arguments}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// A veth: `v0` for us, `v1` with addresses for the kernel.
pub fn veth() {
    ip("link add v0 type veth peer name v1");
    ip("address add 10.77.0.1/24 dev v1");
    ip("address add fd77::1/64 dev v1 nodad");
    ip("link set v0 up");
    ip("link set v1 up");
}
