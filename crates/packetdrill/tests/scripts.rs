//! Every script in `scripts/`, each on a stack of its own.

use std::{fs, path::Path};

use netchan_packetdrill::script::Script;

#[test]
fn every_script_runs_as_written() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts");
    let mut paths: Vec<_> = fs::read_dir(folder)
        .expect("the scripts are there")
        .map(|entry| entry.expect("a name").path())
        .collect();
    paths.sort();
    assert!(paths.len() >= 10, "only {} scripts", paths.len());
    let only = std::env::var("NETCHAN_SCRIPT").unwrap_or_default();
    let mut failures = Vec::new();
    for path in &paths {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if !name.contains(&only) {
            continue;
        }
        let text = fs::read_to_string(path).expect("it can be read");
        if !text.starts_with("# ") || !text.lines().next().unwrap_or_default().contains("RFC ") {
            failures.push(format!(
                "{name}: its first line does not cite what it shows"
            ));
        }
        let result = Script::parse(&name, &text).and_then(|script| script.run());
        failures.extend(result.err().map(|failure| failure.to_string()));
    }
    assert!(failures.is_empty(), "\n  {}", failures.join("\n  "));
}
