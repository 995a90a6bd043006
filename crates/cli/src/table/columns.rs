//! Columns that fit a terminal: long text goes on in its column, and what still does not fit goes on in a table below.

/// Characters of a line.
pub const WIDTH: usize = 100;

/// A word is cut in two only if it is longer than this: an IPv6 address with its port is not.
const WORD_MAX: usize = 48;

/// Text that is no longer than this goes on in no second line.
const TEXT_MIN: usize = 24;

/// Between columns.
const GAP: usize = 2;

/// `rows` under `headings` in lines of at most `fit` characters; columns in `right` are aligned so.
pub fn layout(headings: &[&str], rows: &[Vec<String>], right: &[bool], fit: usize) -> String {
    let widths = widths(headings, rows, right, fit);
    let mut out = String::new();
    for block in blocks(&widths, fit) {
        if !out.is_empty() {
            out.push('\n');
        }
        let heads: Vec<String> = headings.iter().map(|h| (*h).to_owned()).collect();
        for row in std::iter::once(&heads).chain(rows) {
            lines(&mut out, row, &block, &widths, right);
        }
    }
    out
}

/// What each column needs, less where text can go on in the next line and all together would be too wide.
fn widths(headings: &[&str], rows: &[Vec<String>], right: &[bool], fit: usize) -> Vec<usize> {
    let of = |i: usize, measure: fn(&str) -> usize| {
        let cells = rows.iter().filter_map(|row| row.get(i));
        let cells = cells.map(|cell| measure(cell));
        let head = headings.get(i).map_or(0, |head| length(head));
        cells.max().unwrap_or(0).max(head)
    };
    let mut widths: Vec<usize> = (0..headings.len()).map(|i| of(i, length)).collect();
    let least = |i: usize| match right.get(i) {
        Some(true) => of(i, length),
        _ => of(i, |text| longest_word(text).max(length(text).min(TEXT_MIN))),
    };
    loop {
        let excess = total(&widths).saturating_sub(fit);
        let narrower = (0..widths.len()).filter(|&i| widths[i] > least(i));
        match narrower.max_by_key(|&i| widths[i]) {
            Some(i) if excess > 0 => widths[i] = (widths[i].saturating_sub(excess)).max(least(i)),
            _ => return widths,
        }
    }
}

fn total(widths: &[usize]) -> usize {
    widths.iter().sum::<usize>() + GAP * widths.len().saturating_sub(1)
}

/// Which columns stand together; the first, which says what a row is about, stands in each.
fn blocks(widths: &[usize], fit: usize) -> Vec<Vec<usize>> {
    let mut blocks: Vec<Vec<usize>> = Vec::new();
    for i in 0..widths.len() {
        let together = |block: &[usize]| {
            let columns = block.iter().chain([&i]).map(|&i| widths[i]);
            total(&columns.collect::<Vec<_>>()) <= fit
        };
        match blocks.last_mut() {
            // A block of one column beside the first is as narrow as it gets.
            Some(block) if together(block) || block.len() < 2 => block.push(i),
            Some(_) => blocks.push(vec![0, i]),
            None => blocks.push(vec![i]),
        }
    }
    blocks
}

/// One row: as many lines as its longest text takes.
fn lines(out: &mut String, row: &[String], block: &[usize], widths: &[usize], right: &[bool]) {
    let cells: Vec<Vec<String>> = block
        .iter()
        .map(|&i| wrap(row.get(i).map_or("", String::as_str), widths[i]))
        .collect();
    for n in 0..cells.iter().map(Vec::len).max().unwrap_or(0) {
        let mut line = String::new();
        for (cell, &i) in cells.iter().zip(block) {
            let part = cell.get(n).map_or("", String::as_str);
            let pad = " ".repeat(widths[i].saturating_sub(length(part)) + GAP);
            if right.get(i) == Some(&true) {
                line.push_str(&pad[GAP..]);
                line.push_str(part);
                line.push_str(&pad[..GAP]);
            } else {
                line.push_str(part);
                line.push_str(&pad);
            }
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
}

/// `text` in lines of at most `width` characters, one at least.
pub fn wrap(text: &str, width: usize) -> Vec<String> {
    if length(text) <= width {
        return vec![text.to_owned()];
    }
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let mut word: Vec<char> = word.chars().collect();
        loop {
            let line = lines.last_mut().expect("one at least");
            let gap = usize::from(!line.is_empty());
            if length(line) + gap + word.len() <= width {
                if gap == 1 {
                    line.push(' ');
                }
                line.extend(word);
                break;
            }
            if line.is_empty() {
                line.extend(word.drain(..width.max(1).min(word.len())));
            }
            lines.push(String::new());
        }
    }
    lines
}

fn length(text: &str) -> usize {
    text.chars().count()
}

fn longest_word(text: &str) -> usize {
    let words = text.split(' ').map(length);
    words.max().unwrap_or(0).min(WORD_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cells(row: &[&str]) -> Vec<String> {
        row.iter().map(|cell| (*cell).to_owned()).collect()
    }

    #[test]
    fn long_text_goes_on_in_its_column() {
        let rows = [
            cells(&[
                "arp-full",
                "12",
                "the table of neighbours was full of others",
            ]),
            cells(&["x", "3", "-"]),
        ];
        let right = [false, true, false];
        assert_eq!(
            layout(&["name", "n", "reason"], &rows, &right, 40),
            "name       n  reason\n\
             arp-full  12  the table of neighbours\n              was full of others\n\
             x          3  -\n"
        );
    }

    #[test]
    fn what_does_not_fit_goes_on_below_under_the_same_name() {
        let rows = [cells(&["a", "1234567", "1234567", "1234567"])];
        let right = [false, true, true, true];
        assert_eq!(
            layout(&["name", "one", "two", "three"], &rows, &right, 22),
            "name      one      two\na     1234567  1234567\n\nname    three\na     1234567\n"
        );
    }

    #[test]
    fn no_line_is_wider_and_nothing_is_lost() {
        let address = "[2001:db8:1111:2222:3333:4444:5555:6666]:65535";
        let long = "x".repeat(300);
        let rows = [cells(&[
            "socket 7",
            address,
            address,
            "listening",
            &long,
            "9.99 GiB",
            "9.99 GiB",
            "a few words",
        ])];
        let heads = [
            "id", "local", "remote", "state", "made by", "in", "out", "note",
        ];
        let right = [false, false, false, false, false, true, true, false];
        let text = layout(&heads, &rows, &right, WIDTH);
        for line in text.lines() {
            assert!(length(line) <= WIDTH, "{line}");
        }
        assert_eq!(text.matches(address).count(), 2, "{text}");
        assert_eq!(text.matches('x').count(), 300, "{text}");
        for word in heads.into_iter().chain(["listening", "a few words"]) {
            assert!(text.contains(word), "{word}:\n{text}");
        }
    }

    #[test]
    fn a_word_longer_than_the_line_is_cut() {
        assert_eq!(wrap("abcdef gh", 4), ["abcd", "ef", "gh"]);
        assert_eq!(wrap("ab cd", 5), ["ab cd"]);
        assert_eq!(wrap("", 5), [""]);
    }
}
