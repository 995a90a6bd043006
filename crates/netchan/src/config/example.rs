//! The table of keys as text: an example file, and the tables of docs/configuration.md.

use super::keys::{self, Given, Key};
use crate::link::specification::Kind;

/// Characters of a line of the example.
const WIDTH: usize = 100;

/// Kinds of module, and those that only they have begin their meaning with these words.
const MODULES: [(&str, &str); 4] = [
    ("\"filter\"", "of a filter:"),
    ("\"firewall\"", "of a firewall:"),
    ("\"limiter\"", "of a limiter:"),
    ("\"ledger\"", "of a ledger:"),
];

/// What stands before the keys.
const HEAD: &str = "\
# Every key of netchan's configuration, its default, and what it does.
#
# A key right behind a `#` has no one default, or stands in a table of which there may be many: it holds once the `#`
# is gone. Sizes are bytes, or text with a unit. `netchan config check FILE` says whether a file is right.

";

/// The example file: read as it is, it changes nothing.
pub fn text() -> String {
    let mut out = HEAD.to_owned();
    for table in ["", "tcp", "udp", "icmp", "run", "log"] {
        if !table.is_empty() {
            out.push_str(&format!("[{table}]\n\n"));
        }
        keys::of(table).for_each(|key| said(&mut out, key, key.value, ""));
    }
    out.push_str("#[[link]]\n\n");
    for key in keys::of("link").filter(|key| !is_table(key)) {
        said(&mut out, key, key.value, "#");
    }
    out.push_str("#[[link.route]]\n\n");
    keys::of("link.route").for_each(|key| said(&mut out, key, key.value, "#"));
    out.push_str("#[link.options]\n\n");
    for (whose, names) in options() {
        comment(&mut out, &format!("{whose}: {}", names.join(", ")));
    }
    out.push_str("#mtu = 1500\n");
    for (kind, own) in MODULES {
        out.push_str("\n#[[module]]\n\n");
        for key in keys::of("module") {
            match key.name {
                // Two modules of one name would be a mistake.
                "name" => said(&mut out, key, Given::Example(kind), "#"),
                "kind" => said(&mut out, key, Given::Example(kind), "#"),
                "concurrency" if own.contains("ledger") => {}
                _ if !key.meaning.starts_with("of a ") || key.meaning.starts_with(own) => {
                    said(&mut out, key, key.value, "#");
                }
                _ => {}
            }
        }
    }
    out.push_str("#[[lease]]\n\n");
    keys::of("lease").for_each(|key| said(&mut out, key, key.value, "#"));
    out
}

/// One key with its comment; `mark` stands before it even if it has a default.
fn said(out: &mut String, key: &Key, value: Given, mark: &str) {
    let values = match column(key) {
        values if values.is_empty() => String::new(),
        values => format!(" ({values})"),
    };
    comment(out, &format!("{}{values}", key.meaning).replace('`', ""));
    let (mark, literal) = match value {
        Given::Default(literal) => (mark, literal),
        Given::Example(literal) => ("#", literal),
        Given::Instead(literal) => ("# in its place: ", literal),
    };
    out.push_str(&format!("{mark}{} = {literal}\n\n", key.name));
}

/// `text` in lines that begin with `# `.
fn comment(out: &mut String, text: &str) {
    let mut line = "#".to_owned();
    for word in text.split_whitespace() {
        if line.chars().count() + 1 + word.chars().count() > WIDTH {
            out.push_str(&line);
            out.push('\n');
            "#".clone_into(&mut line);
        }
        line.push(' ');
        line.push_str(word);
    }
    out.push_str(&line);
    out.push('\n');
}

/// Whether the key's value is a table, which has keys of its own.
fn is_table(key: &Key) -> bool {
    matches!(key.value, Given::Example(""))
}

/// Whose options there are, and their names.
pub fn options() -> impl Iterator<Item = (&'static str, &'static [&'static str])> {
    let kinds = Kind::ALL.map(|kind| (kind.name(), kind.options()));
    std::iter::once(("every kind", &Kind::COMMON[..])).chain(kinds)
}

/// What a key may be, in Markdown: its default first.
pub fn column(key: &Key) -> String {
    match key.value {
        Given::Default(literal) => format!("`{literal}`{}", key.values),
        _ => key.values.to_owned(),
    }
}

/// The rows of a table of docs/configuration.md.
#[cfg(test)]
pub fn rows(table: &str) -> String {
    let row = |key: &Key| format!("| `{}` | {} | {} |\n", key.name, column(key), key.meaning);
    keys::of(table).map(row).collect()
}
