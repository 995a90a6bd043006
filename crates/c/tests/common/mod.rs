//! What the tests share: an installed library, programs that are built with it, network namespaces.

#![allow(dead_code)] // each test binary uses its part

#[path = "../../../../lab/tests/skips/mod.rs"]
pub mod skips;

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Output},
    sync::OnceLock,
};

/// Where the library is installed, as it would be below `/`.
pub const PREFIX: &str = "/opt/netchan";

/// Of the crate.
pub fn folder() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A folder of this test process's own. Those of processes that are gone go with the first of them: a library is large.
pub fn scratch() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let all = Path::new(env!("CARGO_TARGET_TMPDIR"));
        for entry in fs::read_dir(all).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let owner = name.strip_prefix("c-").and_then(|id| id.parse().ok());
            let is_gone = |id: u32| !Path::new(&format!("/proc/{id}")).exists();
            if owner.is_some_and(is_gone) {
                let _ = fs::remove_dir_all(entry.path()); // another one was faster
            }
        }
        let folder = all.join(format!("c-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("the target folder is writable");
        folder
    })
}

/// Where cargo lays the library of this build.
fn built() -> PathBuf {
    let exe = env::current_exe().expect("a test binary has a path");
    let folder = exe.parent().expect("target/PROFILE/deps/TEST").to_owned();
    assert!(
        folder.join("libnetchan_c.so").exists(),
        "cargo builds the library before its tests"
    );
    folder
}

/// The root under which the library is installed, with what a package has.
pub fn stage() -> &'static Path {
    static STAGE: OnceLock<PathBuf> = OnceLock::new();
    STAGE.get_or_init(|| {
        let root = scratch().join("stage");
        let status = Command::new(folder().join("install"))
            .arg(built())
            .args([env!("CARGO_PKG_VERSION"), PREFIX])
            .env("DESTDIR", &root)
            .status();
        assert!(status.is_ok_and(|status| status.success()), "install");
        root
    })
}

/// What is installed below the prefix.
pub fn installed(path: &str) -> PathBuf {
    stage().join(PREFIX.trim_start_matches('/')).join(path)
}

/// Asks pkg-config of the staged library; `None` (a skipped test) where it is not installed.
pub fn pkg_config(arguments: &[&str]) -> Option<Vec<String>> {
    if !have(&["pkg-config"]) {
        return None;
    }
    let output = Command::new("pkg-config")
        .args(arguments)
        .arg("netchan")
        .env("PKG_CONFIG_LIBDIR", installed("lib/pkgconfig"))
        .env("PKG_CONFIG_SYSROOT_DIR", stage())
        .output()
        .expect("it is there");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let text = String::from_utf8_lossy(&output.stdout);
    Some(text.split_whitespace().map(str::to_owned).collect())
}

/// Compiles a program of C99 without a warning, `file` below the crate's folder; `None` as for [`pkg_config`].
pub fn compile(name: &str, file: &str) -> Option<PathBuf> {
    let flags = pkg_config(&["--cflags", "--libs"])?;
    let program = scratch().join(name);
    let mut compiler = Command::new("cc");
    compiler.args([
        "-std=c99",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-pedantic",
        "-O1",
        "-g",
    ]);
    let status = compiler.arg(folder().join(file)).arg("-o").arg(&program);
    let status = status.args(flags).arg("-lpthread").status();
    assert!(status.is_ok_and(|status| status.success()), "cc {file}");
    Some(program)
}

/// Runs a shell script with the library where programs find it.
pub fn shell(script: &str) -> Output {
    with_library(Command::new("timeout").args(["-k", "1", "120", "sh", "-c", script]))
}

fn with_library(command: &mut Command) -> Output {
    let library = installed("lib");
    let output = command
        .env("LD_LIBRARY_PATH", library)
        .current_dir(scratch())
        .output();
    output.expect("a shell")
}

/// The script must end well and say `wanted`.
pub fn expect(output: &Output, wanted: &str) {
    let said = String::from_utf8_lossy(&output.stdout);
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && said.contains(wanted),
        "{}\n--- stdout\n{said}\n--- stderr\n{complained}",
        output.status
    );
}

/// Whether all of `programs` are installed; where not, the test is a skipped one.
pub fn have(programs: &[&str]) -> bool {
    let has = |program: &&&str| {
        let look = format!("command -v {program}");
        let found = Command::new("sh").args(["-c", &look]).output();
        !found.is_ok_and(|output| output.status.success())
    };
    let missing: Vec<_> = programs.iter().filter(has).collect();
    if !missing.is_empty() {
        skips::skipped_here(&format!("not installed: {missing:?}"));
    }
    missing.is_empty()
}

/// How to get a network namespace with a TAP here, if at all.
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

/// Runs a shell script in a network namespace of its own, whose kernel is 10.77.0.1 behind the TAP `nc0`; `None` (a skipped test) where none can
/// be had. `await COMMAND...` tries until it succeeds.
pub fn in_namespace(script: &str) -> Option<Output> {
    let Some(way) = unshare() else {
        skips::skipped_here(
            "no network namespace with a TAP can be made here (unshare, ip, /dev/net/tun)",
        );
        return None;
    };
    let script = format!(
        "set -eu\n\
         ip link set lo up\n\
         ip tuntap add dev nc0 mode tap\n\
         ip addr add 10.77.0.1/24 dev nc0\n\
         ip link set nc0 up\n\
         await() {{ for i in $(seq 200); do \"$@\" 2>/dev/null >&2 && return 0; sleep 0.05; done; echo \"no: $*\"; return 1; }}\n\
         {script}"
    );
    let mut command = Command::new("unshare");
    let command = command.args(way).args(["timeout", "-k", "1", "120"]);
    Some(with_library(command.args(["sh", "-c", &script])))
}
