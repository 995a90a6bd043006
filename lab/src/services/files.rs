//! Programs that are found, and files that servers need.

use std::{
    env, fs,
    path::{Path, PathBuf},
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

/// Writes a file of a folder.
///
/// # Errors
/// Where and why not.
pub(super) fn write(folder: &Path, name: &str, bytes: &[u8]) -> Result<PathBuf, String> {
    let file = folder.join(name);
    fs::write(&file, bytes).map_err(|e| format!("{}: {e}", file.display()))?;
    Ok(file)
}
