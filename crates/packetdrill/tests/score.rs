//! `SCORE.md` is what `results.txt` says, directory by directory; each script that fails has one reason there, and no reason names one that passes.

use std::{collections::BTreeMap, fs, path::Path};

fn read(name: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(name)).expect("it is there")
}

/// Of each script: whether it passes as it is, and with `trains=1`.
fn results() -> BTreeMap<String, [bool; 2]> {
    let of_line = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        let [name, plain, trains] = words[..] else {
            panic!("{line}");
        };
        let passes = [plain, trains].map(|word| match word {
            "pass" => true,
            "fail" => false,
            other => panic!("{other}"),
        });
        (name.to_owned(), passes)
    };
    read("results.txt").lines().map(of_line).collect()
}

fn rows(section: &str) -> impl Iterator<Item = Vec<&str>> {
    let lines = section.lines().filter(|line| line.starts_with("| "));
    lines
        .filter(|line| !line.starts_with("| ---"))
        .map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
}

/// Whether a name is what a pattern says, with at most one `*`.
fn is_like(name: &str, pattern: &str) -> bool {
    match pattern.split_once('*') {
        Some((front, back)) => {
            name.len() >= front.len() + back.len()
                && name.starts_with(front)
                && name.ends_with(back)
        }
        None => name == pattern,
    }
}

#[test]
fn the_table_is_what_the_results_are() {
    let (text, results) = (read("SCORE.md"), results());
    let (table, _) = text.split_once("## What fails").expect("sections");
    let mut seen = 0;
    for row in rows(table).skip(1) {
        let [directories, numbers @ ..] = &row[..] else {
            panic!("{row:?}")
        };
        let is_of = |name: &str| {
            let first = name.split('/').next().unwrap_or_default();
            *directories == "all" || directories.split(", ").any(|one| one == first)
        };
        let of_row = || results.iter().filter(|(name, _)| is_of(name));
        let passed = |index: usize| of_row().filter(|(_, passes)| passes[index]).count();
        let wanted = [passed(1), passed(0), of_row().count()].map(|n| n.to_string());
        assert_eq!(numbers, wanted, "{directories}");
        seen += if *directories == "all" {
            0
        } else {
            of_row().count()
        };
    }
    assert_eq!(seen, results.len(), "each script in one row");
}

#[test]
fn each_script_that_fails_has_its_reason() {
    let (text, results) = (read("SCORE.md"), results());
    let (_, reasons) = text.split_once("## What fails").expect("sections");
    let patterns: Vec<&str> = rows(reasons)
        .flat_map(|row| row[0].split('`').skip(1).step_by(2).collect::<Vec<_>>())
        .collect();
    for (name, [_, passes]) in &results {
        let count = patterns.iter().filter(|p| is_like(name, p)).count();
        assert_eq!(count, usize::from(!passes), "reasons why {name} fails");
    }
    for pattern in patterns {
        assert!(
            results.keys().any(|name| is_like(name, pattern)),
            "{pattern}"
        );
    }
}
