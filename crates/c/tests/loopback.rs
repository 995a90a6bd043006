//! Programs that talk to themselves over a stack's own loopback addresses: no rights and no kernel in between.

mod common;

use common::{compile, expect, shell};

#[test]
fn every_function_answers_as_the_header_says() {
    if let Some(program) = compile("calls", "tests/c/calls.c") {
        expect(&shell(&program.display().to_string()), "ok");
    }
}

#[test]
fn the_example_echoes_megabytes() {
    let Some(program) = compile("echo-self", "examples/echo.c") else {
        return;
    };
    let script = format!(
        "set -e; head -c 5000000 /dev/urandom > sent; {} self < sent > back; cmp sent back; echo the same",
        program.display()
    );
    expect(&shell(&script), "the same");
}
