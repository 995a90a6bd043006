//! `SCORE.md`: its sums are those of its rows, and each script that does not apply has its reason.

use std::{fs, path::Path};

/// How many scripts a cell names: the number in brackets at its end, or one for each name.
fn scripts(cell: &str) -> usize {
    let number = cell
        .rsplit_once('(')
        .and_then(|(_, rest)| rest.strip_suffix(')')?.parse().ok());
    number.unwrap_or_else(|| cell.matches('`').count() / 2)
}

fn rows(section: &str) -> impl Iterator<Item = Vec<&str>> {
    let lines = section.lines().filter(|line| line.starts_with("| "));
    lines
        .filter(|line| !line.starts_with("| ---"))
        .map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
}

#[test]
fn the_score_adds_up() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("SCORE.md");
    let text = fs::read_to_string(path).expect("the score");
    let (table, reasons) = text.split_once("## What cannot apply").expect("sections");
    let (reasons, failures) = reasons.split_once("## What fails").expect("sections");
    let mut sums = [0; 3];
    let mut all = None;
    for row in rows(table).skip(1) {
        let numbers: Vec<usize> = row[1..]
            .iter()
            .map(|n| n.parse().expect("a number"))
            .collect();
        let numbers: [usize; 3] = numbers.try_into().expect("three columns");
        assert!(
            numbers[0] <= numbers[1] && numbers[1] <= numbers[2],
            "{row:?}"
        );
        if row[0] == "all" {
            all = Some(numbers);
        } else {
            for (sum, number) in sums.iter_mut().zip(numbers) {
                *sum += number;
            }
        }
    }
    assert_eq!(all, Some(sums));
    let [passed, applicable, total] = sums;
    let count = |section| -> usize {
        rows(section)
            .filter(|row| row[0].contains('`') || row[1].contains('`'))
            .map(|row| scripts(row[0]))
            .sum()
    };
    assert_eq!(
        count(reasons),
        total - applicable,
        "reasons for what does not apply"
    );
    let failed: usize = rows(failures)
        .skip(1)
        .map(|row| row[1].split(", ").map(scripts).sum::<usize>())
        .sum();
    assert_eq!(failed, applicable - passed, "causes of what fails");
    let fail = if failed == 1 { "fails" } else { "fail" };
    let words = format!(
        "{passed} pass; {} cannot apply; {failed} {fail}.",
        total - applicable
    );
    assert!(text.contains(&words), "{words}");
}
