//! The right word that a wrong one may stand for.

/// The one of `words` that `wrong` is nearest to, if few letters differ: at most a third of them, or one.
pub fn nearest<'a>(wrong: &str, words: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let most = (wrong.chars().count() / 3).max(1);
    let near = words.into_iter().map(|word| (distance(wrong, word), word));
    let near = near.filter(|&(distance, _)| distance <= most);
    near.min_by_key(|&(distance, _)| distance)
        .map(|(_, word)| word)
}

/// ` (did you mean …?)`, or nothing.
pub fn hint<'a>(wrong: &str, words: impl IntoIterator<Item = &'a str>) -> String {
    nearest(wrong, words).map_or_else(String::new, |word| format!(" (did you mean `{word}`?)"))
}

/// Letters to put in, take out, change, or swap with the next one, to make `b` of `a`.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().take(64).collect(), b.chars().collect());
    // Rows of the table of distances between beginnings: the one before the last, the last, the next.
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut next = vec![i + 1];
        for (j, y) in b.iter().enumerate() {
            let changed = last[j] + usize::from(x != y);
            let mut least = changed.min(last[j + 1] + 1).min(next[j] + 1);
            if i > 0 && j > 0 && *x == b[j - 1] && a[i - 1] == *y {
                least = least.min(before[j - 1] + 1);
            }
            next.push(least);
        }
        before = std::mem::replace(&mut last, next);
    }
    last.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_of_the_hand_is_understood() {
        let kinds = ["wire", "tap", "packet", "pcap", "loop"];
        for (wrong, right) in [
            ("tapp", "tap"),
            ("tpa", "tap"),
            ("ta", "tap"),
            ("packt", "packet"),
            ("pakcet", "packet"),
            ("wires", "wire"),
        ] {
            assert_eq!(nearest(wrong, kinds), Some(right), "{wrong}");
        }
        for wrong in ["", "eth0", "banana", "xdp"] {
            assert_eq!(nearest(wrong, kinds), None, "{wrong}");
        }
    }
}
