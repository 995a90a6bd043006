//! The processor's time-stamp counter, and whether it can be a clock.

/// The counter's value now.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(super) fn cycles() -> u64 {
    // SAFETY: every x86-64 has RDTSC. (A process can forbid it to itself with prctl(PR_SET_TSC); then it also loses the vDSO's clock.)
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// The counter's value, read after everything before and before everything after.
#[cfg(target_arch = "x86_64")]
pub(super) fn cycles_in_order() -> u64 {
    use core::arch::x86_64::_mm_lfence;
    // SAFETY: every x86-64 has SSE2. RDTSC waits for nothing by itself; LFENCE waits for what is before it, and what is after it waits.
    unsafe { _mm_lfence() };
    let now = cycles();
    // SAFETY: as above.
    unsafe { _mm_lfence() };
    now
}

#[cfg(not(target_arch = "x86_64"))]
pub(super) fn cycles_in_order() -> u64 {
    cycles()
}

/// Nanoseconds, where there is no counter that we know.
#[cfg(not(target_arch = "x86_64"))]
#[inline]
pub(super) fn cycles() -> u64 {
    super::monotonic_ns()
}

/// Whether the counter runs at one rate in all power states, is the same on all cores as far as the kernel knows, and is what we read.
#[cfg(target_arch = "x86_64")]
pub(super) fn is_invariant() -> bool {
    says_invariant(|leaf| {
        let answer = core::arch::x86_64::__cpuid(leaf);
        (answer.eax, answer.edx)
    }) && kernel_trusts_it()
}

/// What the processor says; `cpuid`: EAX and EDX of a leaf.
#[cfg(target_arch = "x86_64")]
pub(super) fn says_invariant(cpuid: impl Fn(u32) -> (u32, u32)) -> bool {
    const POWER: u32 = 0x8000_0007; // AMD APM 3, Intel SDM 2: EDX bit 8 is "TSC invariant"
    cpuid(0x8000_0000).0 >= POWER && cpuid(POWER).1 & 1 << 8 != 0
}

/// The kernel takes `tsc` off this list when it finds that the cores' counters disagree. Where the list cannot be read, cpuid's word
/// stands. System calls, not `std::fs`: inside a preloaded library `std` would call the library's own `open` and `read`.
#[cfg(target_arch = "x86_64")]
fn kernel_trusts_it() -> bool {
    use rustix::fs::{Mode, OFlags, open};
    let list = c"/sys/devices/system/clocksource/clocksource0/available_clocksource";
    let mut names = [0; 256];
    let read = open(list, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
        .and_then(|list| rustix::io::read(&list, &mut names));
    let Ok(len) = read else { return true };
    names_tsc(&names[..len.min(names.len())])
}

/// Whether `tsc` is one of the names in the kernel's list.
#[cfg(target_arch = "x86_64")]
pub(super) fn names_tsc(list: &[u8]) -> bool {
    let mut names = list.split(|byte| byte.is_ascii_whitespace());
    names.any(|name| name == b"tsc")
}

#[cfg(not(target_arch = "x86_64"))]
pub(super) fn is_invariant() -> bool {
    false
}
