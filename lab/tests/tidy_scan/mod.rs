//! What the tidy test reads: the tree's files, and Rust source with comments and strings taken out.

pub mod imports;
pub mod nouns;

use std::{
    fs,
    path::{Path, PathBuf},
};

/// One Rust file.
pub struct Source {
    /// From the root of the tree, with `/`.
    pub path: String,
    /// As it is on disk.
    pub text: String,
    /// Without comments and without what stands in strings; the lines stay where they were.
    pub code: String,
    /// What stands in comments; the lines stay where they were.
    pub comments: String,
    /// `code` up to an inline `#[cfg(test)] mod`.
    pub shipped: String,
    /// A test, bench or example.
    pub is_test: bool,
}

/// The root of the tree.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// All files of the tree (from the root, with `/`), build products and version control apart.
pub fn files() -> Vec<String> {
    let mut found = Vec::new();
    walk(&root(), "", &mut found);
    found.sort();
    found
}

fn walk(folder: &Path, prefix: &str, found: &mut Vec<String>) {
    let Ok(entries) = fs::read_dir(folder) else {
        return;
    };
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let Ok(kind) = entry.file_type() else {
            continue;
        };
        if kind.is_dir() && name != "target" && name != ".git" {
            walk(&entry.path(), &format!("{prefix}{name}/"), found);
        } else if kind.is_file() && !(prefix.is_empty() && name == ".git") {
            found.push(format!("{prefix}{name}"));
        }
    }
}

/// All Rust files.
pub fn sources() -> Vec<Source> {
    files()
        .into_iter()
        .filter(|p| p.ends_with(".rs"))
        .map(read)
        .collect()
}

fn read(path: String) -> Source {
    let text = fs::read_to_string(root().join(&path)).expect("a file that was just listed");
    let (code, comments) = split(&text);
    let shipped = match code.find("#[cfg(test)]\nmod tests {") {
        Some(at) => code[..at].to_owned(),
        None => code.clone(),
    };
    let is_test = path.ends_with("tests.rs")
        || ["/tests/", "/benches/", "/examples/", "/loom/"]
            .iter()
            .any(|f| path.contains(f));
    Source {
        path,
        text,
        code,
        comments,
        shipped,
        is_test,
    }
}

/// Whether `path` begins with one of `prefixes`.
pub fn allowed_prefix(path: &str, prefixes: &[&str]) -> bool {
    prefixes.iter().any(|p| path.starts_with(p))
}

/// The identifiers of a line.
pub fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c: char| !(c.is_alphanumeric() || c == '_'))
        .filter(|w| !w.is_empty())
}

/// `text` without comments and without the insides of string and character literals, and its comments alone; line breaks stay in both.
pub fn split(text: &str) -> (String, String) {
    let mut out = String::with_capacity(text.len());
    let mut comments = String::new();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let token = if rest.starts_with("//") {
            let end = rest.find('\n').unwrap_or(rest.len());
            Token {
                len: end,
                put: String::new(),
            }
        } else if rest.starts_with("/*") {
            block_comment(rest)
        } else if c == '"' {
            string(rest, 0)
        } else if c == 'r' && !out.ends_with(|p: char| p.is_alphanumeric() || p == '_') {
            raw_string(rest)
        } else if c == '\'' {
            character(rest)
        } else {
            Token {
                len: c.len_utf8(),
                put: c.to_string(),
            }
        };
        out.push_str(&token.put);
        let (piece, behind) = rest.split_at(token.len.max(1));
        if piece.starts_with("//") || piece.starts_with("/*") {
            comments.push_str(piece);
        } else {
            comments.extend(token.put.chars().filter(|c| *c == '\n'));
        }
        rest = behind;
    }
    (out, comments)
}

/// A piece of source: how long it is, and what takes its place.
struct Token {
    len: usize,
    put: String,
}

/// The line breaks of `text`.
fn breaks(text: &str) -> String {
    "\n".repeat(text.matches('\n').count())
}

fn block_comment(rest: &str) -> Token {
    let len = rest.find("*/").map_or(rest.len(), |at| at + 2);
    Token {
        len,
        put: breaks(&rest[..len]),
    }
}

/// A string that opens at `start`, with escapes.
fn string(rest: &str, start: usize) -> Token {
    let bytes = rest.as_bytes();
    let mut at = start + 1;
    while at < bytes.len() && bytes[at] != b'"' {
        at += if bytes[at] == b'\\' { 2 } else { 1 };
    }
    let len = (at + 1).min(bytes.len());
    Token {
        len,
        put: format!("\"{}\"", breaks(&String::from_utf8_lossy(&bytes[..len]))),
    }
}

/// `r"…"` with any number of `#`, or just the letter.
fn raw_string(rest: &str) -> Token {
    let hashes = rest[1..].bytes().take_while(|b| *b == b'#').count();
    if !rest[1 + hashes..].starts_with('"') {
        return Token {
            len: 1,
            put: "r".to_owned(),
        };
    }
    let close = format!("\"{}", "#".repeat(hashes));
    let body = 2 + hashes;
    let len = rest[body..]
        .find(&close)
        .map_or(rest.len(), |at| body + at + close.len());
    Token {
        len,
        put: format!("r\"{}\"", breaks(&rest[..len])),
    }
}

/// A character literal, or a lifetime's apostrophe.
fn character(rest: &str) -> Token {
    let mut chars = rest.char_indices().skip(1);
    let literal = match (chars.next(), chars.next()) {
        (Some((_, '\\')), Some(_)) => rest[3..].find('\'').map(|at| at + 4),
        (Some(_), Some((at, '\''))) => Some(at + 1),
        _ => None,
    };
    match literal {
        Some(len) => Token {
            len,
            put: "' '".to_owned(),
        },
        None => Token {
            len: 1,
            put: "'".to_owned(),
        },
    }
}
