//! Programs that are found and bounded, and files that servers need.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

/// Where a program is: Debian's folders for it before what stands in PATH.
pub(super) fn find(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    ["/usr/bin", "/usr/sbin", "/bin", "/sbin"]
        .iter()
        .map(PathBuf::from)
        .chain(env::split_paths(&path))
        .map(|folder| folder.join(program))
        .find(|file| file.is_file())
}

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
