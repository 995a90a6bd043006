//! Programs that are bounded, and files that servers need.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// What `timeout` is told before a client's own words: no client takes so long, unless something hangs.
pub(super) fn ended_in_time(timeout: &mut Command) {
    timeout.args(["--signal", "KILL", "60"]);
}

/// Writes a file of a folder.
///
/// # Errors
/// Where and why not.
pub(super) fn write(folder: &Path, name: &str, bytes: &[u8]) -> Result<PathBuf, String> {
    let file = folder.join(name);
    fs::write(&file, bytes).map_err(|e| format!("{}: {e}", file.display()))?;
    Ok(file)
}
