//! Which file of a crate names which: from `use` and from paths in the code, tests apart.

use std::collections::{BTreeMap, BTreeSet};

use super::Source;

/// Files by path, with those that each names.
pub type Imports = BTreeMap<String, BTreeSet<String>>;

/// A module's path below its crate.
type Module = Vec<String>;

/// The module that a file is, seen from `src`.
pub fn module_of(path: &str, src: &str) -> Module {
    let inside = path.strip_prefix(src).unwrap_or(path);
    let inside = inside.strip_suffix(".rs").unwrap_or(inside);
    let mut parts: Vec<&str> = inside.split('/').collect();
    if parts.last() == Some(&"mod") || parts == ["lib"] || parts == ["main"] {
        parts.pop();
    }
    parts.into_iter().map(str::to_owned).collect()
}

/// The imports of the crate whose sources lie in `src` (`crates/netchan/src/`).
pub fn imports(sources: &[Source], src: &str) -> Imports {
    let own = |s: &&Source| s.path.starts_with(src) && !s.is_test;
    let files: BTreeMap<Module, &str> = sources
        .iter()
        .filter(own)
        .map(|s| (module_of(&s.path, src), s.path.as_str()))
        .collect();
    let named_by = |s: &Source| {
        let here = module_of(&s.path, src);
        let named = paths(&s.shipped)
            .into_iter()
            .filter_map(|path| resolve(&files, &here, &path));
        named
            .filter(|file| *file != s.path)
            .map(str::to_owned)
            .collect()
    };
    let all = sources.iter().filter(own);
    all.map(|s| (s.path.clone(), named_by(s))).collect()
}

/// The file in which the longest part of `path` that is a module stands.
fn resolve<'a>(files: &BTreeMap<Module, &'a str>, here: &Module, path: &[&str]) -> Option<&'a str> {
    let (mut at, mut rest) = match *path.first()? {
        "crate" => (Vec::new(), &path[1..]),
        "self" => (here.clone(), &path[1..]),
        "super" => (here.clone(), path),
        child => {
            let mut below = here.clone();
            below.push(child.to_owned());
            files.contains_key(&below).then(|| (here.clone(), path))?
        }
    };
    while rest.first() == Some(&"super") {
        at.pop()?;
        rest = &rest[1..];
    }
    let mut found = files.get(&at).copied();
    for part in rest {
        at.push((*part).to_owned());
        match files.get(&at) {
            Some(file) => found = Some(file),
            None => break,
        }
    }
    found
}

/// Words and the signs between them.
fn tokens(code: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut rest = code;
    while let Some(c) = rest.chars().next() {
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        let len = match c {
            c if is_word(c) => rest.find(|c| !is_word(c)).unwrap_or(rest.len()),
            ':' if rest.starts_with("::") => 2,
            _ => c.len_utf8(),
        };
        if !c.is_whitespace() {
            found.push(&rest[..len]);
        }
        rest = &rest[len..];
    }
    found
}

/// Every path that `use` takes in, and every other that begins with `crate`, `self` or `super`.
fn paths(code: &str) -> Vec<Vec<&str>> {
    let tokens = tokens(code);
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(&token) = tokens.get(at) {
        at += 1;
        if token == "use" && tokens.get(at) != Some(&"<") {
            at = tree(&tokens, at, &[], &mut found);
        } else if ["crate", "self", "super"].contains(&token) && tokens.get(at) == Some(&"::") {
            let mut path = vec![token];
            while tokens.get(at) == Some(&"::") {
                path.extend(tokens.get(at + 1));
                at += 2;
            }
            found.push(path);
        }
    }
    found
}

/// Reads one branch of a `use`; where it ends.
fn tree<'a>(
    tokens: &[&'a str],
    mut at: usize,
    before: &[&'a str],
    found: &mut Vec<Vec<&'a str>>,
) -> usize {
    let mut path = before.to_vec();
    while let Some(&token) = tokens.get(at) {
        match token {
            "::" => at += 1,
            "{" => {
                at += 1;
                while tokens
                    .get(at)
                    .is_some_and(|token| !["}", ";"].contains(token))
                {
                    at = tree(tokens, at, &path, found);
                    if tokens.get(at) == Some(&",") {
                        at += 1;
                    }
                }
                return at + 1;
            }
            "as" => at += 2,
            "," | "}" | ";" => break,
            word => {
                path.push(word);
                at += 1;
            }
        }
    }
    if path.len() > 1 && path.last() == Some(&"self") {
        path.pop();
    }
    found.push(path);
    at
}

/// Circles: sets of files each of which leads to all others. A module and those below it count as one thing with two ends: what they name of each other
/// closes no circle.
pub fn circles(imports: &Imports, src: &str) -> Vec<Vec<String>> {
    let related = |a: &str, b: &str| {
        let (a, b) = (module_of(a, src), module_of(b, src));
        a.starts_with(&b) || b.starts_with(&a)
    };
    let reach = |from: &str| {
        let mut seen = BTreeSet::new();
        let mut next = vec![from.to_owned()];
        while let Some(file) = next.pop() {
            for to in imports.get(&file).into_iter().flatten() {
                if !related(&file, to) && seen.insert(to.clone()) {
                    next.push(to.clone());
                }
            }
        }
        seen
    };
    let reaches: BTreeMap<&str, BTreeSet<String>> = imports
        .keys()
        .map(|file| (file.as_str(), reach(file)))
        .collect();
    let mut found: Vec<Vec<String>> = Vec::new();
    for (file, all) in &reaches {
        let is_known = found.iter().flatten().any(|other| other == file);
        if all.contains(*file) && !is_known {
            let back = |other: &&String| reaches[other.as_str()].contains(*file);
            found.push(all.iter().filter(back).cloned().collect());
        }
    }
    found
}
