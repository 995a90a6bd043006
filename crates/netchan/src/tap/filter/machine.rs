//! Filters as machine code, in pages of their own. The one place of the filters with `unsafe`.
//!
//! Why it is sound: `translation` is the only source of what is assembled here, and of its eBPF, as the assembler gets it, `proof` has shown that it
//! reads and writes nothing but its [`Context`], the bytes of the packet that are there and its own stack, that it ends, and that it returns 32 bits.
//! rbpf writes x86-64 that does what eBPF says; the tests hold it against the interpreter and libpcap.
//!
//! Pages are never writable and executable at once: rbpf (without its feature `std`, with which it would take pages that are both, and not look whether
//! it got them) writes into pages of ours, which then become executable, or the filter stays interpreted.

#[cfg(test)]
#[path = "machine_tests.rs"]
mod tests;

use std::{
    ffi::c_void,
    mem,
    ptr::{self, NonNull},
    slice,
};

use rbpf::{
    EbpfVmMbuff,
    ebpf::{self, Insn},
};
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};

use super::{context::Context, program::Step, proof, translation::translate};

/// Most bytes of machine code for one instruction (a division by a register has 46), and for what stands around all.
const BYTES_EACH: usize = 64;
const BYTES_AROUND: usize = 256;
const PAGE: usize = 4096;

/// rbpf's `MachineCode`, by registers: the first is eBPF's first. The others are what it would have for kinds of programs that are not translated.
type Entry =
    unsafe extern "sysv64" fn(*const Context, usize, *const u8, usize, usize, usize) -> u64;

/// A filter as machine code.
pub(super) struct Code {
    entry: Entry,
    /// Where that lies.
    _pages: Pages,
}

impl Code {
    /// `None`: this process may have no executable memory, or not so much.
    pub fn of(steps: &[Step]) -> Option<Self> {
        let translated: Vec<u8> = translate(steps)?.iter().flat_map(Insn::to_array).collect();
        let proven = proof::check(&ebpf::to_insn_vec(&translated));
        debug_assert_eq!(proven, Ok(()), "{steps:?}");
        proven.ok()?;
        let instructions = translated.len() / ebpf::INSN_SIZE;
        let mut pages = Pages::new(instructions * BYTES_EACH + BYTES_AROUND)?;
        assemble(&translated, pages.writable())?;
        let pages = pages.into_executable()?;
        // SAFETY: the pages begin with the function that rbpf wrote; they are readable and executable, and stay with it.
        let entry = unsafe { mem::transmute::<*mut u8, Entry>(pages.base.as_ptr()) };
        Some(Self {
            entry,
            _pages: pages,
        })
    }

    /// As the interpreter; `None`: it is one for that, since the packet has 2³² bytes or more.
    #[inline]
    pub fn run(&self, packet: &[u8], length: u32) -> Option<u32> {
        let context = Context {
            packet: packet.as_ptr(),
            there: packet.len().try_into().ok()?,
            length,
        };
        // SAFETY: the code was proven to keep to the context, which lives until it returns, and to the `there` bytes at `packet`.
        let said = unsafe { (self.entry)(&raw const context, 0, ptr::null(), 0, 0, 0) };
        u32::try_from(said).ok()
    }
}

/// Writes machine code for `program` into `memory`.
fn assemble(program: &[u8], memory: &mut [u8]) -> Option<()> {
    let mut machine = EbpfVmMbuff::new(Some(program)).ok()?;
    machine.set_jit_exec_memory(memory).ok()?;
    machine.jit_compile().ok()
}

/// A mapping of its own, unmapped when dropped.
struct Pages {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: a mapping belongs to the process, not to a thread.
unsafe impl Send for Pages {}
// SAFETY: it is written through `&mut` only, and not at all once it is executable.
unsafe impl Sync for Pages {}

impl Pages {
    /// Zeroed, to read and to write. What is not written takes no memory.
    fn new(bytes: usize) -> Option<Self> {
        let bytes = bytes.checked_next_multiple_of(PAGE)?;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new anonymous mapping where the kernel likes: it overlaps nothing.
        let base = unsafe { mmap_anonymous(ptr::null_mut(), bytes, access, MapFlags::PRIVATE) };
        let base = NonNull::new(base.ok()?.cast())?;
        Some(Self { base, bytes })
    }

    fn writable(&mut self) -> &mut [u8] {
        // SAFETY: the mapping is readable and writable until it becomes executable, of this size, and borrowed as a whole.
        unsafe { slice::from_raw_parts_mut(self.base.as_ptr(), self.bytes) }
    }

    fn start(&self) -> *mut c_void {
        self.base.as_ptr().cast()
    }

    /// No longer writable, but executable; `None`: the process may have no such memory.
    fn into_executable(self) -> Option<Self> {
        let access = MprotectFlags::READ | MprotectFlags::EXEC;
        // SAFETY: our own mapping; no reference into it is left, as this has it by value.
        unsafe { mprotect(self.start(), self.bytes, access) }.ok()?;
        Some(self)
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: our own mapping, once; code in it is run by its owner only, which goes with it. It cannot fail.
        let _ = unsafe { munmap(self.start(), self.bytes) };
    }
}
