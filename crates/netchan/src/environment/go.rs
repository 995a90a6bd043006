//! Programs of Go, which make their system calls themselves: how they are known.

use std::io::{self, Read, Seek, SeekFrom};

/// Bytes read of a table or a section.
const PART_MAX: u64 = 256 << 10;

/// Whether an ELF64 file is a program of Go's linker: it has a section `.go.buildinfo` (Go's debug/buildinfo), and was not built into a C program as
/// a library, whose sockets are the C library's. What cannot be read is none.
pub fn is_go<F: Read + Seek>(file: &mut F) -> bool {
    build_information(file).is_ok_and(|found| {
        let has = |text: &[u8]| found.windows(text.len()).any(|part| part == text);
        found.starts_with(b"\xff Go buildinf:") && !has(b"-buildmode=c-archive")
    })
}

/// The contents of the section `.go.buildinfo`; an error where there is none, as for a file that ends too early.
fn build_information<F: Read + Seek>(file: &mut F) -> io::Result<Vec<u8>> {
    let mut part = |at: u64, len: u64| {
        let mut bytes = Vec::new();
        file.seek(SeekFrom::Start(at))?;
        file.take(len.min(PART_MAX)).read_to_end(&mut bytes)?;
        io::Result::Ok(bytes)
    };
    let missing = || io::Error::from(io::ErrorKind::UnexpectedEof);
    let header = part(0, 64)?;
    let number = |bytes: &[u8], at: usize, len: usize| {
        let bytes = bytes.get(at..at + len).ok_or_else(missing)?;
        let value = bytes.iter().rev().fold(0, |n, &b| n << 8 | u64::from(b));
        io::Result::Ok(value)
    };
    let (size, count) = (number(&header, 58, 2)?, number(&header, 60, 2)?);
    let sections = part(number(&header, 40, 8)?, size * count)?;
    let size = usize::try_from(size).unwrap_or(0).max(64);
    let contents =
        |section: &[u8]| io::Result::Ok((number(section, 24, 8)?, number(section, 32, 8)?));
    let names = usize::try_from(number(&header, 62, 2)?).unwrap_or(0);
    let names = sections.chunks_exact(size).nth(names).ok_or_else(missing)?;
    let (at, len) = contents(names)?;
    let names = part(at, len)?;
    for section in sections.chunks_exact(size) {
        let name = usize::try_from(number(section, 0, 4)?).unwrap_or(usize::MAX);
        if names
            .get(name..)
            .is_some_and(|name| name.starts_with(b".go.buildinfo\0"))
        {
            let (at, len) = contents(section)?;
            return part(at, len);
        }
    }
    Err(missing())
}
