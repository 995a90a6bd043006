//! The table of RFC 9293's requirements (`docs/rfc9293.md`): every one has a row, and every test that a row names exists.

use std::{collections::BTreeSet, fs, path::Path};

/// MUST-1 to MUST-69 and SHLD-1 to SHLD-31 (RFC 9293, appendix B).
fn requirements() -> BTreeSet<String> {
    let musts = (1..=69).map(|n| format!("MUST-{n}"));
    musts.chain((1..=31).map(|n| format!("SHLD-{n}"))).collect()
}

fn names(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).collect()
}

/// A test, not a helper: its attribute stands above it.
fn has_test(source: &str, name: &str) -> bool {
    let head = format!("fn {name}()");
    source
        .find(&head)
        .is_some_and(|at| source[..at].lines().rev().take(4).any(|l| l == "#[test]"))
}

#[test]
fn every_requirement_has_a_row_and_every_row_its_test() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let text = fs::read_to_string(root.join("docs/rfc9293.md")).expect("the table");
    let mut left = requirements();
    let mut shown = 0;
    for line in text
        .lines()
        .filter(|l| l.starts_with("| MUST-") || l.starts_with("| SHLD-"))
    {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let [_, id, what, state, place, _] = cells[..] else {
            panic!("five columns: {line}");
        };
        assert!(left.remove(id), "{id} twice, or no requirement");
        assert!(!what.is_empty() && !place.is_empty(), "{line}");
        match state {
            "shown" => {
                let [file, test] = names(place)[..] else {
                    panic!("{id}: a file and a test: {place}");
                };
                let source = fs::read_to_string(root.join(file))
                    .unwrap_or_else(|e| panic!("{id}: {file}: {e}"));
                assert!(has_test(&source, test), "{id}: no test {test} in {file}");
                shown += 1;
            }
            "held" | "missing" | "not ours" => {}
            other => panic!("{id}: no such state: {other}"),
        }
    }
    assert!(left.is_empty(), "without a row: {left:?}");
    assert!(shown >= 60, "tests shrink: {shown}");
}
