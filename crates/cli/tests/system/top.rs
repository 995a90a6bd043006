//! `netchan top` at an unmodified program.

use super::handed::{says, script};

#[test]
fn an_unmodified_program_is_shown() {
    let output = script(
        "top",
        "mkfifo hold\n$RUN python3 ask.py bind wait < hold & run=$!; exec 9> hold\n\
         listening() { $netchan top --once --interval 0.1 --pid $run | grep -q '1 listening'; }\n\
         await listening; $netchan top --once --interval 0.1 --pid $run state listening\n\
         echo >&9; wait $run",
    );
    says(
        output,
        &[
            "netchan top: python3/",
            "app-channel",
            "netchan-link0",
            "tap:nc8 → shard 0",
            "filter: state listening",
            "0.0.0.0:8",
        ],
    );
}
