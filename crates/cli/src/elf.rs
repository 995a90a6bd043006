//! How a program can be put on netchan: the preload library needs the dynamic loader, and the loader's leave; a program that makes its system calls itself is
//! supervised.

use std::{
    fs,
    io::Read,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
};

/// Interpreters named by `#!` are followed this far.
const DEPTH_MAX: usize = 4;
/// Program headers looked at; a real program has about a dozen.
const HEADERS_MAX: usize = 256;

/// How a program's calls are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Means {
    /// By a library in front of the C library's.
    Preload,
    /// By another process, which the kernel asks.
    Supervision,
}

/// Why `command` cannot run on netchan, or the file that would run, and how it is served.
pub fn check(command: &str) -> Result<(PathBuf, Means), String> {
    let path = find(command)?;
    let means = check_file(&path, 0)?;
    Ok((path, means))
}

/// As execvp(3) looks for it.
fn find(command: &str) -> Result<PathBuf, String> {
    if command.contains('/') {
        let path = PathBuf::from(command);
        return match fs::metadata(&path) {
            Err(e) => Err(format!("{command}: {e}")),
            Ok(m) if m.is_dir() => Err(format!("{command} is a directory, not a program")),
            Ok(m) if m.permissions().mode() & 0o111 == 0 => {
                Err(format!("{command} may not be executed: chmod +x {command}"))
            }
            Ok(_) => Ok(path),
        };
    }
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/bin:/usr/bin".into());
    std::env::split_paths(&path)
        .map(|directory| directory.join(command))
        .find(|file| {
            fs::metadata(file).is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
        })
        .ok_or_else(|| format!("{command}: there is no such program in PATH"))
}

fn check_file(path: &Path, depth: usize) -> Result<Means, String> {
    let shown = path.display();
    let mode = fs::metadata(path).map_err(|e| format!("{shown}: {e}"))?;
    let user = rustix::process::getuid().as_raw();
    let changes_user = mode.mode() & 0o4000 != 0 && mode.uid() != user;
    if changes_user || mode.mode() & 0o2000 != 0 && mode.mode() & 0o010 != 0 && user != 0 {
        return Err(format!(
            "{shown} is set-user-ID or set-group-ID: the loader refuses preload libraries for it; run it as its owner"
        ));
    }
    let mut start = Vec::new();
    // A program that may be executed but not read is the kernel's to judge.
    let Ok(mut file) = fs::File::open(path) else {
        return Ok(Means::Preload);
    };
    (&mut file)
        .take(64 << 10)
        .read_to_end(&mut start)
        .map_err(|e| format!("{shown}: {e}"))?;
    if let Some(line) = start.strip_prefix(b"#!") {
        if depth == DEPTH_MAX {
            return Ok(Means::Preload);
        }
        let line = line.split(|&b| b == b'\n').next().unwrap_or_default();
        let line = String::from_utf8_lossy(line);
        let mut words = line.split_whitespace();
        let Some(interpreter) = words.next() else {
            return Ok(Means::Preload);
        };
        let named = if interpreter.ends_with("/env") {
            words.next()
        } else {
            None
        };
        return match named {
            Some(program) => {
                find(program).map_or(Ok(Means::Preload), |p| check_file(&p, depth + 1))
            }
            None => check_file(Path::new(interpreter), depth + 1),
        };
    }
    match linkage(&start) {
        Linkage::Static => Ok(Means::Supervision),
        Linkage::Foreign => Err(format!(
            "{shown} is a program for another processor or word size than netchan"
        )),
        // It makes its system calls itself and not through the C library.
        Linkage::Dynamic if netchan::environment::is_go(&mut file) => Ok(Means::Supervision),
        Linkage::Dynamic | Linkage::Unknown => Ok(Means::Preload),
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Linkage {
    Dynamic,
    Static,
    /// An ELF file that our library does not fit.
    Foreign,
    /// Not an ELF file, or one whose headers lie elsewhere: let the kernel decide.
    Unknown,
}

/// Reads an ELF64 file's program headers: one without `PT_INTERP` (3) meets no loader. (ELF specification, "Program Header".)
fn linkage(start: &[u8]) -> Linkage {
    if !start.starts_with(b"\x7fELF") {
        return Linkage::Unknown;
    }
    let own_machine: u16 = if cfg!(target_arch = "aarch64") {
        183
    } else {
        62
    };
    let two = |at: usize| {
        start
            .get(at..at + 2)
            .map(|b| u16::from_le_bytes([b[0], b[1]]))
    };
    let four = |at: usize| {
        start
            .get(at..at + 4)
            .and_then(|b| b.try_into().ok())
            .map(u32::from_le_bytes)
    };
    let eight = |at: usize| {
        start
            .get(at..at + 8)
            .and_then(|b| b.try_into().ok())
            .map(u64::from_le_bytes)
    };
    if start.get(4..6) != Some(&[2, 1]) || two(18) != Some(own_machine) {
        return Linkage::Foreign;
    }
    let (Some(offset), Some(size), Some(count)) = (eight(32), two(54), two(56)) else {
        return Linkage::Unknown;
    };
    for i in 0..usize::from(count).min(HEADERS_MAX) {
        let header = usize::try_from(offset)
            .ok()
            .and_then(|offset| offset.checked_add(i * usize::from(size)))
            .filter(|header| *header < start.len());
        match header.and_then(four) {
            Some(3) => return Linkage::Dynamic,
            Some(_) => {}
            None => return Linkage::Unknown,
        }
    }
    Linkage::Static
}

#[cfg(test)]
mod tests {
    use std::io;

    use netchan::environment::is_go;

    use super::*;

    #[test]
    fn programs_are_told_apart() {
        let own = std::env::current_exe().unwrap();
        assert_eq!(check(own.to_str().unwrap()), Ok((own, Means::Preload)));
        assert!(check("sh").is_ok());
        assert!(
            check("no-such-program-here")
                .unwrap_err()
                .contains("no such program in PATH")
        );
        assert!(check("/no/such/file").unwrap_err().contains("No such file"));
        assert!(check("/tmp").unwrap_err().contains("is a directory"));
        assert!(check("/proc/version").unwrap_err().contains("chmod +x"));
    }

    /// A dynamically linked program with a section `.go.buildinfo` that says `text`.
    fn of_go(text: &[u8]) -> Vec<u8> {
        let mut file = vec![0; 64 + 56];
        file[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
        file[18] = if cfg!(target_arch = "aarch64") {
            183
        } else {
            62
        };
        file[32] = 64; // program headers
        (file[54], file[56], file[58], file[60], file[62]) = (56, 1, 64, 3, 1);
        file[64] = 3; // PT_INTERP
        let put = |file: &mut Vec<u8>, bytes: &[u8]| {
            file.extend(bytes);
            (file.len() - bytes.len(), bytes.len())
        };
        let names = put(&mut file, b"\0.go.buildinfo\0");
        let info = put(&mut file, text);
        let sections = file.len() as u64;
        file[40..48].copy_from_slice(&sections.to_le_bytes());
        for (name, (at, len)) in [(0, (0, 0)), (0, names), (1, info)] {
            let mut section = [0; 64];
            section[0] = name;
            section[24..32].copy_from_slice(&(at as u64).to_le_bytes());
            section[32..40].copy_from_slice(&(len as u64).to_le_bytes());
            file.extend(section);
        }
        file
    }

    #[test]
    fn programs_of_go_are_known_by_their_build_information() {
        let check = |bytes: &[u8]| {
            let path = std::env::temp_dir().join(format!("netchan-elf-{}", std::process::id()));
            fs::write(&path, bytes).unwrap();
            let said = check_file(&path, 0);
            fs::remove_file(path).unwrap();
            said
        };
        let go = of_go(b"\xff Go buildinf:\x08\x02 build\t-buildmode=exe\n");
        assert_eq!(check(&go), Ok(Means::Supervision));
        assert_eq!(
            check(&of_go(b"\xff Go buildinf: -buildmode=c-archive")),
            Ok(Means::Preload)
        );
        assert_eq!(check(&of_go(b"something else")), Ok(Means::Preload));
        for cut in 0..go.len() {
            let _ = is_go(&mut io::Cursor::new(&go[..cut])); // any prefix: no panic
            let mut broken = go.clone();
            broken[cut] ^= 0xff;
            let _ = is_go(&mut io::Cursor::new(broken));
        }
    }

    #[test]
    fn headers_decide() {
        let mut file = fs::read(std::env::current_exe().unwrap()).unwrap();
        file.truncate(4096);
        assert_eq!(linkage(&file), Linkage::Dynamic);
        for cut in 0..file.len() {
            let _ = linkage(&file[..cut]); // any prefix: no panic
        }
        let offset = usize::try_from(u64::from_le_bytes(file[32..40].try_into().unwrap())).unwrap();
        let size = usize::from(u16::from_le_bytes([file[54], file[55]]));
        let count = usize::from(u16::from_le_bytes([file[56], file[57]]));
        for i in 0..count {
            let at = offset + i * size;
            if file[at] == 3 {
                file[at] = 4;
            }
        }
        assert_eq!(linkage(&file), Linkage::Static);
        file[18] = 40;
        assert_eq!(linkage(&file), Linkage::Foreign);
        assert_eq!(linkage(b"#!/bin/sh"), Linkage::Unknown);
        file[18] = if cfg!(target_arch = "aarch64") {
            183
        } else {
            62
        };
        file[32..40].copy_from_slice(&u64::MAX.to_le_bytes());
        assert_eq!(linkage(&file), Linkage::Unknown);
    }
}
