//! What the shells and the man pages are told: everything a person may type.

use std::{collections::BTreeMap, process::Command};

use super::*;
use crate::arguments;
use crate::skips;

/// Every command below `of` with its long options: `netchan-lab-run`: `quick`, `json` ...
fn commands(of: &clap::Command, name: &str, into: &mut BTreeMap<String, Vec<String>>) {
    let options = of.get_arguments().filter(|option| !option.is_hide_set());
    let options = options.filter_map(|option| option.get_long().map(str::to_owned));
    into.insert(name.to_owned(), options.collect());
    for command in of.get_subcommands().filter(|c| c.get_name() != "help") {
        commands(command, &format!("{name}-{}", command.get_name()), into);
    }
}

fn all() -> BTreeMap<String, Vec<String>> {
    let mut whole = arguments::visible();
    whole.build();
    let mut found = BTreeMap::new();
    commands(&whole, "netchan", &mut found);
    assert!(found.len() > 15, "{found:?}");
    found
}

#[test]
fn every_shell_completes_every_command_and_option() {
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        let script = script(shell, arguments::visible());
        for (command, options) in all() {
            let last = command.rsplit('-').next().unwrap_or_default();
            assert!(script.contains(last), "{shell}: {command}");
            for option in options {
                let written = match shell {
                    Shell::Fish => format!("-l {option}"),
                    _ => format!("--{option}"),
                };
                assert!(script.contains(&written), "{shell}: {command} {written}");
            }
        }
        for topic in netchan::control::TOPICS {
            assert!(script.contains(topic), "{shell}: show {topic}");
        }
        for hidden in ["__inner", "__man", "suspend"] {
            assert!(!script.contains(hidden), "{shell}: {hidden}");
        }
    }
}

#[test]
fn bash_completes_what_is_typed() {
    let file = std::env::temp_dir().join(format!("netchan-complete-{}", std::process::id()));
    fs::write(&file, script(Shell::Bash, arguments::visible())).unwrap();
    for (words, expected) in [
        ("netchan sho", "show"),
        ("netchan show sock", "sockets"),
        ("netchan show --wa", "--watch"),
        ("netchan lab ru", "run"),
        ("netchan lab run --quic", "--quick"),
        ("netchan lab run --js", "--json"),
        ("netchan --lo", "--log-file"),
        ("netchan completions f", "fish"),
    ] {
        let count = words.split(' ').count();
        let last = words.rsplit(' ').next().unwrap_or_default();
        let before = words.split(' ').nth(count - 2).unwrap_or_default();
        let line = format!(
            "source '{}'; COMP_WORDS=({words}); COMP_CWORD={}; _netchan netchan '{last}' '{before}'; echo \"${{COMPREPLY[@]}}\"",
            file.display(),
            count - 1,
        );
        let Ok(done) = Command::new("bash").args(["--norc", "-c", &line]).output() else {
            skips::skipped_here("no bash");
            break;
        };
        let said = String::from_utf8_lossy(&done.stdout).into_owned();
        let why = String::from_utf8_lossy(&done.stderr);
        assert_eq!(said.trim(), expected, "{words}: {why}");
    }
    fs::remove_file(&file).unwrap();
}

#[test]
fn every_command_has_a_page_with_its_options() {
    let directory = std::env::temp_dir().join(format!("netchan-man-{}", std::process::id()));
    let to = Man {
        directory: directory.clone(),
    };
    let made = man(&to, arguments::visible());
    assert_eq!(made, Ok(()));
    for (command, options) in all() {
        let path = directory.join(format!("{command}.1"));
        let page = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{command}: {e}"));
        assert!(page.contains(".SH NAME"), "{command}:\n{page}");
        for option in options {
            // As roff has a hyphen.
            let written = format!("\\-\\-{}", option.replace('-', "\\-"));
            assert!(page.contains(&written), "{command} {option}:\n{page}");
        }
    }
    let pages = fs::read_dir(&directory).unwrap();
    for page in pages.map(|page| page.unwrap().file_name()) {
        let name = page.to_string_lossy().into_owned();
        assert!(!name.contains("__") && !name.contains("help"), "{name}");
    }
    fs::remove_dir_all(&directory).unwrap();
}
