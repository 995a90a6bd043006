//! tcpdump's filter language, compiled by libpcap (pcap-filter(7)). The library is looked up when a filter is given, so that nothing else needs it.

use std::{
    ffi::{CStr, CString, c_char, c_int, c_uint, c_void},
    ptr, slice,
};

use libloading::{Library, Symbol};

/// Names it goes by: Debian's, and those of other systems.
const NAMES: [&str; 3] = ["libpcap.so.0.8", "libpcap.so.1", "libpcap.so"];
/// `DLT_EN10MB`: frames begin with an Ethernet header.
const ETHERNET: c_int = 1;
/// `PCAP_NETMASK_UNKNOWN`.
const NETMASK_UNKNOWN: c_uint = c_uint::MAX;
/// What a filter says of a packet that it lets through.
const SNAP: c_int = 262_144;

/// `struct bpf_insn`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Instruction {
    code: u16,
    jt: u8,
    jf: u8,
    k: u32,
}

/// `struct bpf_program`.
#[repr(C)]
struct Program {
    len: c_uint,
    instructions: *mut Instruction,
}

type OpenDead = unsafe extern "C" fn(c_int, c_int) -> *mut c_void;
type Compile =
    unsafe extern "C" fn(*mut c_void, *mut Program, *const c_char, c_int, c_uint) -> c_int;
type GetError = unsafe extern "C" fn(*mut c_void) -> *const c_char;
type FreeCode = unsafe extern "C" fn(*mut Program);
type Close = unsafe extern "C" fn(*mut c_void);

/// A handle that is closed when it goes.
struct Handle<'a> {
    pcap: *mut c_void,
    close: Symbol<'a, Close>,
}

impl Drop for Handle<'_> {
    fn drop(&mut self) {
        // SAFETY: from pcap_open_dead, and closed once.
        unsafe { (self.close)(self.pcap) }
    }
}

/// Compiles `text` for Ethernet frames: (code, jt, jf, k) of each instruction.
///
/// # Errors
/// libpcap's words; or that it is not installed.
pub fn compile(text: &str) -> Result<Vec<(u16, u8, u8, u32)>, String> {
    let filter = CString::new(text).map_err(|_| "a filter has no zero byte".to_owned())?;
    // SAFETY: its initialisers are glibc's; libpcap has none that touch this process.
    let found = NAMES
        .iter()
        .find_map(|name| unsafe { Library::new(*name) }.ok());
    let library = found.ok_or_else(|| {
        format!(
            "libpcap is needed for a filter, and is not installed (looked for {}; Debian: apt install libpcap0.8); --bpf takes what `tcpdump -ddd` prints on another machine",
            NAMES.join(", ")
        )
    })?;
    compile_with(&library, &filter).map_err(|e| match e {
        Failed::Symbol(e) => format!("libpcap: {e}"),
        Failed::Said(what) => format!("filter '{text}': {what}"),
    })
}

enum Failed {
    Symbol(libloading::Error),
    Said(String),
}

impl From<libloading::Error> for Failed {
    fn from(e: libloading::Error) -> Self {
        Self::Symbol(e)
    }
}

fn compile_with(library: &Library, filter: &CStr) -> Result<Vec<(u16, u8, u8, u32)>, Failed> {
    // SAFETY: pcap_open_dead(3PCAP) has this type.
    let open_dead: Symbol<'_, OpenDead> = unsafe { library.get(b"pcap_open_dead")? };
    // SAFETY: pcap_compile(3PCAP) has this type.
    let compile: Symbol<'_, Compile> = unsafe { library.get(b"pcap_compile")? };
    // SAFETY: pcap_geterr(3PCAP) has this type.
    let get_error: Symbol<'_, GetError> = unsafe { library.get(b"pcap_geterr")? };
    // SAFETY: pcap_freecode(3PCAP) has this type.
    let free_code: Symbol<'_, FreeCode> = unsafe { library.get(b"pcap_freecode")? };
    // SAFETY: pcap_close(3PCAP) has this type.
    let close: Symbol<'_, Close> = unsafe { library.get(b"pcap_close")? };
    // SAFETY: numbers only.
    let pcap = unsafe { open_dead(ETHERNET, SNAP) };
    if pcap.is_null() {
        return Err(Failed::Said("libpcap has no memory".to_owned()));
    }
    let handle = Handle { pcap, close };
    let mut program = Program {
        len: 0,
        instructions: ptr::null_mut(),
    };
    // SAFETY: the handle is open, the program ours to fill, the text ends with a zero.
    let code = unsafe {
        compile(
            handle.pcap,
            &raw mut program,
            filter.as_ptr(),
            1,
            NETMASK_UNKNOWN,
        )
    };
    if code != 0 {
        // SAFETY: the handle is open; its message lies in it.
        let why = unsafe { get_error(handle.pcap) };
        // SAFETY: libpcap's messages end with a zero; it is copied before the handle goes.
        let why = unsafe { CStr::from_ptr(why) };
        return Err(Failed::Said(why.to_string_lossy().into_owned()));
    }
    let len = program.len as usize;
    let instructions = if program.instructions.is_null() {
        &[]
    } else {
        // SAFETY: libpcap says that so many lie there, until they are freed below.
        unsafe { slice::from_raw_parts(program.instructions, len) }
    };
    let copied = instructions
        .iter()
        .map(|i| (i.code, i.jt, i.jf, i.k))
        .collect();
    // SAFETY: filled by pcap_compile, and freed once.
    unsafe { free_code(&raw mut program) }
    Ok(copied)
}

#[cfg(test)]
#[path = "libpcap_tests.rs"]
mod tests;
