//! What the preload tests share: the library's path, C programs built once, a network namespace with a TAP in it.

#![allow(dead_code)] // each test binary uses its part

#[path = "../../../../lab/tests/skips/mod.rs"]
pub mod skips;

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Output},
    sync::OnceLock,
};

/// The preload library of this build.
pub fn library() -> PathBuf {
    let exe = env::current_exe().expect("a test binary has a path");
    let folder = exe
        .parent()
        .and_then(Path::parent)
        .expect("target/PROFILE/deps/TEST");
    [folder.join("deps"), folder.to_owned()]
        .into_iter()
        .map(|folder| folder.join("libnetchan_preload.so"))
        .find(|path| path.exists())
        .expect("cargo builds the library before its tests")
}

fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c")
}

/// A folder of this test process's own.
pub fn scratch() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder =
            Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("preload-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("the target folder is writable");
        folder
    })
}

/// Compiles `files` of tests/c into a program.
pub fn compile(name: &str, files: &[&str]) -> PathBuf {
    let program = scratch().join(name);
    let status = Command::new("cc")
        .args(["-O1", "-w", "-D_FORTIFY_SOURCE=2", "-o"])
        .arg(&program)
        .args(files.iter().map(|file| sources().join(file)))
        .arg("-lpthread")
        .status()
        .expect("a C compiler (Rust needs its linker anyway)");
    assert!(status.success(), "cc failed on {files:?}");
    program
}

/// The kernel-side services.
pub fn peer() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| compile("peer", &["peer.c"]))
}

/// The program that tries each option with many values.
pub fn sweep() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| compile("sweep", &["sweep.c"]))
}

/// The program whose calls are checked.
pub fn calls() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let files = [
            "main.c",
            "transfers.c",
            "endpoints.c",
            "waiting.c",
            "epoll.c",
            "descriptors.c",
            "options.c",
            "datagrams.c",
            "messages.c",
            "threads.c",
            "processes.c",
            "groups.c",
            "fastopen.c",
            "signals.c",
            "cancels.c",
            "numbers.c",
            "ends.c",
            "interfaces.c",
            "cpus.c",
        ];
        compile("calls", &files)
    })
}

/// Random sequences of socket calls.
pub fn sequences() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| compile("sequences", &["sequences.c", "sequence_calls.c"]))
}

/// Random sequences of calls about processes, threads, signals and descriptors.
pub fn processes() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| compile("process_sequences", &["process_sequences.c"]))
}

/// A library that counts the calls of netchan's library to functions that it exports.
pub fn counter() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let library = scratch().join("libcount.so");
        let status = Command::new("cc")
            .args(["-O1", "-w", "-fno-builtin", "-shared", "-fPIC", "-o"])
            .arg(&library)
            .arg(sources().join("count.c"))
            .arg("-ldl")
            .status()
            .expect("a C compiler (Rust needs its linker anyway)");
        assert!(status.success(), "cc failed on count.c");
        library
    })
}

/// How to get a network namespace of one's own here, if at all.
fn unshare() -> Option<&'static [&'static str]> {
    static HOW: OnceLock<Option<&'static [&'static str]>> = OnceLock::new();
    *HOW.get_or_init(|| {
        let ways: [&[&str]; 2] = [&["-n"], &["-U", "-r", "-n"]];
        ways.into_iter().find(|way| {
            let probe = "ip link set lo up && ip tuntap add dev nc0 mode tap";
            let run = Command::new("unshare")
                .args(*way)
                .args(["sh", "-c", probe])
                .output();
            run.is_ok_and(|output| output.status.success())
        })
    })
}

/// Whether all of `programs` are installed; where not, the test is a skipped one.
pub fn have(programs: &[&str]) -> bool {
    let missing: Vec<_> = programs.iter().filter(|program| !has(program)).collect();
    if !missing.is_empty() {
        skips::skipped_here(&format!("not installed: {missing:?}"));
    }
    missing.is_empty()
}

/// Whether `program` is installed.
pub fn has(program: &str) -> bool {
    let found = Command::new("sh")
        .args(["-c", &format!("command -v {program}")])
        .output();
    found.is_ok_and(|output| output.status.success())
}

/// Shell functions and variables for scripts: the kernel is 10.77.0.1 and fd77::1, `on_netchan COMMAND…` runs a program on
/// a stack with 10.77.0.2 and fd77::2 (one at a time: it owns the TAP).
fn prelude() -> String {
    let library = library();
    format!(
        "set -u\n\
         export LIBRARY='{}' PEER='{}' CALLS='{}' SWEEP='{}'\n\
         cd '{}'\n\
         echo 3 > /proc/sys/net/ipv4/tcp_fastopen\n\
         ip link set lo up\n\
         ip tuntap add dev nc0 mode tap\n\
         ip addr add 10.77.0.1/24 dev nc0\n\
         ip addr add fd77::1/64 dev nc0 nodad\n\
         ip link set nc0 up\n\
         export NETCHAN_LINK=tap:nc0 NETCHAN_ADDRESS=10.77.0.2/24,fd77::2/64 NETCHAN_GATEWAY=10.77.0.1\n\
         on_netchan() {{ LD_PRELOAD=$LIBRARY exec timeout -k 1 60 \"$@\"; }}\n\
         await() {{ for i in $(seq 200); do \"$@\" 2>/dev/null >&2 && return 0; sleep 0.05; done; echo \"no: $*\"; return 1; }}\n",
        library.display(),
        peer().display(),
        calls().display(),
        sweep().display(),
        scratch().display(),
    )
}

/// Runs a shell script in a network namespace of its own; `None` (a skipped test) where none can be had.
pub fn in_namespace(script: &str) -> Option<Output> {
    in_namespace_for(150, script)
}

/// The same with `limit_s` seconds to end in.
pub fn in_namespace_for(limit_s: u64, script: &str) -> Option<Output> {
    let Some(way) = unshare() else {
        skips::skipped_here(
            "no network namespace with a TAP can be made here (unshare, ip, /dev/net/tun)",
        );
        return None;
    };
    let script = prelude() + script;
    let output = Command::new("unshare")
        .args(way)
        .args(["timeout", "-k", "1", &limit_s.to_string()])
        .args(["sh", "-c", &script])
        .output();
    Some(output.expect("unshare ran before"))
}

/// The script must end well and say `wanted`.
pub fn expect(script: &str, wanted: &str) {
    let Some(output) = in_namespace(script) else {
        return;
    };
    let said = String::from_utf8_lossy(&output.stdout);
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && said.contains(wanted),
        "{}\n--- stdout\n{said}\n--- stderr\n{complained}",
        output.status
    );
}
