//! What is installed: names, versions, a header for C and C++ that says what the library exports, and no more.

mod common;

use std::{collections::BTreeSet, fs, process::Command};

use common::{compile, expect, folder, have, installed, pkg_config, scratch, shell};

const VERSION: &str = env!("CARGO_PKG_VERSION");

#[test]
fn names_lead_to_the_library() {
    let library = installed(&format!("lib/libnetchan.so.{VERSION}"));
    for name in ["lib/libnetchan.so.0", "lib/libnetchan.so"] {
        let link = installed(name);
        assert!(link.is_symlink(), "{name}");
        assert_eq!(
            fs::canonicalize(link).unwrap(),
            fs::canonicalize(&library).unwrap()
        );
    }
    for file in ["include/netchan.h", "lib/libnetchan.a"] {
        assert!(installed(file).is_file(), "{file}");
    }
    // What programs remember is the name with the major version.
    let dynamic = Command::new("readelf").arg("-d").arg(&library).output();
    let dynamic = dynamic.expect("readelf comes with the linker");
    let text = String::from_utf8_lossy(&dynamic.stdout);
    let line = text.lines().find(|line| line.contains("(SONAME)"));
    assert!(line.unwrap().contains("[libnetchan.so.0]"), "{text}");
    assert!(VERSION.starts_with("0."), "the name has the major version");
    if let Some(version) = pkg_config(&["--modversion"]) {
        assert_eq!(version, [VERSION]);
    }
}

#[test]
fn the_header_has_the_version_of_the_library() {
    let header = fs::read_to_string(installed("include/netchan.h")).unwrap();
    let value = |name: &str| {
        let define = format!("#define {name} ");
        let line = header.lines().find_map(|line| line.strip_prefix(&define));
        line.unwrap_or_default().trim_matches('"').to_owned()
    };
    assert_eq!(value("NETCHAN_VERSION"), VERSION);
    let parts = ["MAJOR", "MINOR", "PATCH"].map(|part| value(&format!("NETCHAN_VERSION_{part}")));
    assert_eq!(parts.join("."), VERSION);
}

/// The functions that the header declares.
fn declared() -> BTreeSet<String> {
    let header = fs::read_to_string(folder().join("include/netchan.h")).unwrap();
    let mut code = String::new();
    let mut rest = header.as_str();
    while let Some((before, comment)) = rest.split_once("/*") {
        code += before;
        rest = comment.split_once("*/").expect("a comment ends").1;
    }
    code += rest;
    let mut names = BTreeSet::new();
    for (at, _) in code.match_indices('(') {
        let before = &code[..at];
        let name = before
            .rsplit(|c: char| !c.is_alphanumeric() && c != '_')
            .next();
        if let Some(name) = name.filter(|name| name.starts_with("netchan_")) {
            names.insert(name.to_owned());
        }
    }
    names
}

#[test]
fn what_the_library_exports_is_what_the_header_declares() {
    let library = installed("lib/libnetchan.so");
    let output = Command::new("nm")
        .args(["-D", "--defined-only", "--format=posix"])
        .arg(library)
        .output()
        .expect("nm comes with the linker");
    let text = String::from_utf8_lossy(&output.stdout);
    let exported: BTreeSet<String> = text
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .map(str::to_owned)
        .collect();
    let declared = declared();
    assert!(declared.len() >= 28, "{declared:?}");
    assert_eq!(exported, declared);
}

/// Compiles a program that has the header alone.
fn compiles(compiler: &str, language: &str, standard: &str) {
    let Some(flags) = pkg_config(&["--cflags"]) else {
        return;
    };
    let file = scratch().join(format!("alone-{standard}"));
    let text = "#include <netchan.h>\nint main(void) { return netchan_version() == 0; }\n";
    fs::write(&file, text).unwrap();
    let status = Command::new(compiler)
        .args(["-Wall", "-Wextra", "-Werror", "-pedantic", "-fsyntax-only"])
        .arg(format!("-std={standard}"))
        .args(flags)
        .args(["-x", language])
        .arg(&file)
        .status();
    assert!(status.is_ok_and(|status| status.success()), "{standard}");
}

#[test]
fn the_header_is_c() {
    for standard in ["c99", "gnu99", "c11"] {
        compiles("cc", "c", standard);
    }
}

#[test]
fn the_header_is_cpp() {
    if have(&["c++"]) {
        for standard in ["c++11", "c++17"] {
            compiles("c++", "c++", standard);
        }
    }
}

/// A program may have the library in itself.
#[test]
fn a_program_is_linked_statically() {
    let Some(mut flags) = pkg_config(&["--static", "--cflags", "--libs"]) else {
        return;
    };
    let archive = installed("lib/libnetchan.a");
    flags.retain(|flag| flag != "-lnetchan");
    let program = scratch().join("echo-static");
    let status = Command::new("cc")
        .arg(folder().join("examples/echo.c"))
        .arg(archive)
        .args(flags)
        .arg("-o")
        .arg(&program)
        .status();
    assert!(status.is_ok_and(|status| status.success()));
    let script = format!("echo hello | LD_LIBRARY_PATH= {} self", program.display());
    expect(&shell(&script), "hello");
}

/// One that asks for the library by its name finds it.
#[test]
fn a_program_names_the_library_with_its_major_version() {
    let Some(program) = compile("echo-needs", "examples/echo.c") else {
        return;
    };
    let output = Command::new("readelf").arg("-d").arg(program).output();
    let text = output.expect("readelf comes with the linker").stdout;
    assert!(String::from_utf8_lossy(&text).contains("[libnetchan.so.0]"));
}

/// What docs/c.md shows is a program.
#[test]
fn the_document_is_right() {
    let document = fs::read_to_string(folder().join("../../docs/c.md")).unwrap();
    let block = document.split("```c\n").nth(1).expect("a block of C");
    let text = block.split("```").next().unwrap_or_default();
    let file = scratch().join("document.c");
    fs::write(&file, text).unwrap();
    compile("document", &file.display().to_string());
}
