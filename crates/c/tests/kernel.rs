//! Programs in C and Python against Linux's own TCP, over a TAP in a network namespace.

mod common;

use std::path::PathBuf;

use common::{compile, expect, folder, have, in_namespace, installed};

/// The example in C, where this can be tried.
fn echo(name: &str) -> Option<PathBuf> {
    have(&["python3"]).then(|| compile(name, "examples/echo.c"))?
}

fn peer() -> String {
    format!("python3 {}", folder().join("tests/py/peer.py").display())
}

/// The sums of what was sent and of what came back are compared by the script.
fn runs(script: &str) {
    if let Some(output) = in_namespace(script) {
        expect(&output, "the same");
    }
}

#[test]
fn the_kernel_asks_and_c_echoes() {
    let Some(program) = echo("echo-serves") else {
        return;
    };
    runs(&format!(
        "head -c 6000000 /dev/urandom > served\n\
         {echo} serve tap:nc0 10.77.0.2/24 7 2 2> served.log & server=$!\n\
         await grep -q listening served.log\n\
         for i in 1 2; do\n\
         test \"$({peer} ask 10.77.0.2 7 served)\" = \"$(sha256sum < served | cut -d ' ' -f 1)\"\n\
         done\n\
         wait $server; test \"$(grep -c 6000000 served.log)\" = 2; echo the same",
        echo = program.display(),
        peer = peer(),
    ));
}

#[test]
fn c_asks_and_the_kernel_echoes() {
    let Some(program) = echo("echo-asks") else {
        return;
    };
    runs(&format!(
        "head -c 6000000 /dev/urandom > asked\n\
         {peer} serve 7 & server=$!\n\
         await sh -c 'ss -ltn | grep -q :7'\n\
         {echo} ask tap:nc0 10.77.0.2/24 10.77.0.1 7 < asked > answered\n\
         wait $server; sha256sum asked answered\n\
         test \"$(sha256sum < asked)\" = \"$(sha256sum < answered)\"; echo the same",
        echo = program.display(),
        peer = peer(),
    ));
}

/// A link is free again once the last of its stack is gone, though threads that waited on it live on.
#[test]
fn a_tap_is_free_again_once_its_stack_has_ended() {
    let Some(program) = compile("reopens", "tests/c/reopens.c") else {
        return;
    };
    runs(&format!("{} && echo the same", program.display()));
}

/// The example in Python fetches what the kernel's python serves.
#[test]
fn python_fetches_from_the_kernel() {
    if !have(&["python3"]) {
        return;
    }
    runs(&format!(
        "export NETCHAN_LIBRARY={library}\n\
         mkdir -p www; head -c 6000000 /dev/urandom > www/file\n\
         python3 -m http.server 8000 --directory www 2> www.log >&2 & server=$!\n\
         await sh -c 'ss -ltn | grep -q :8000'\n\
         python3 {fetch} tap:nc0 10.77.0.2/24 http://10.77.0.1:8000/file > fetched\n\
         if python3 {fetch} tap:nc0 10.77.0.2/24 http://10.77.0.1:8000/none 2> log; then exit 1; fi; grep -q 404 log\n\
         if python3 {fetch} tap:nc0 10.77.0.2/24 http://10.77.0.1:9/ 2> log; then exit 1; fi; grep -q ConnectionRefusedError log\n\
         if python3 {fetch} tin-cans:7 '' http://10.77.0.1:9/ 2> log; then exit 1; fi; grep -q 'tin-cans' log\n\
         kill $server; sha256sum fetched www/file\n\
         test \"$(sha256sum < fetched)\" = \"$(sha256sum < www/file)\"; echo the same",
        library = installed("lib/libnetchan.so").display(),
        fetch = folder().join("examples/fetch.py").display(),
    ));
}
