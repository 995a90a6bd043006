//! What a test says that does not do its work here: no root, no such tool, nothing to try. Included by the tests of every crate.
//!
//! libtest has no such outcome and hides what a test that passes has printed, so that one that returns at once looks like one that worked. Each
//! therefore names itself on the real stderr and, where `NETCHAN_SKIPS` is the path of a file, in a line of that file (`make test` prints how many
//! there are; `.ci/run` fails if one is not in `.ci/skips.txt`).

#![allow(dead_code)] // each test binary uses its part

use std::{env, fs::OpenOptions, io::Write, str::FromStr, thread};

/// The test `name` (with the crate in front of it) is not done, for `reason`.
pub fn skipped(name: &str, reason: &str) {
    let name = format!("{}::{name}", env!("CARGO_CRATE_NAME"));
    // Not eprintln, which libtest catches. A stderr that is closed takes nothing from the test.
    let _ = writeln!(std::io::stderr(), "SKIPPED {name}: {reason}");
    let Some(path) = env::var_os("NETCHAN_SKIPS") else {
        return;
    };
    let written = OpenOptions::new()
        .create(true)
        .append(true)
        .open(&path)
        // In one write: other processes append to it, too.
        .and_then(|mut file| file.write_all(format!("{name}: {reason}\n").as_bytes()));
    if let Err(e) = written {
        panic!("NETCHAN_SKIPS={}: {e}", path.display());
    }
}

/// [`skipped`] for the test whose thread this is.
pub fn skipped_here(reason: &str) {
    skipped(thread::current().name().unwrap_or("unnamed"), reason);
}

/// `NETCHAN_SEEDS`: how many a test tries that draws random numbers; `usual` where it is not set. A test that is to try none is a skipped one.
pub fn seeds_or<N: FromStr + PartialEq + Default>(usual: N) -> N {
    let count = match env::var("NETCHAN_SEEDS") {
        Ok(text) => text
            .parse()
            .unwrap_or_else(|_| panic!("NETCHAN_SEEDS={text} is no number")),
        Err(_) => usual,
    };
    if count == N::default() {
        skipped_here("NETCHAN_SEEDS is 0");
    }
    count
}
