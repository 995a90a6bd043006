//! The filter: which system calls are asked about.

use libc::{c_long, sock_filter};

/// Calls about sockets that say which stack they mean, or what is known of a socket. All others go to the kernel, which has a descriptor of its own for
/// each stream.
const ASKED: [c_long; 9] = [
    libc::SYS_bind,
    libc::SYS_connect,
    libc::SYS_listen,
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_getsockname,
    libc::SYS_getpeername,
    libc::SYS_setsockopt,
    libc::SYS_getsockopt,
];

/// As linux/audit.h has it: the machine, 64 bits, little-endian.
const ARCHITECTURE: u32 = if cfg!(target_arch = "aarch64") {
    0xc000_00b7
} else {
    0xc000_003e
};

/// Where `struct seccomp_data` has them.
const NUMBER_AT: u32 = 0;
const ARCHITECTURE_AT: u32 = 4;

/// The program of the BSD packet filter. Calls of another architecture are the kernel's.
pub fn program() -> Vec<sock_filter> {
    let load = |at| statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, at);
    let leave = |what| statement(libc::BPF_RET | libc::BPF_K, what);
    let mut program = vec![
        load(ARCHITECTURE_AT),
        jump_if_equal(ARCHITECTURE, 1, 0),
        leave(libc::SECCOMP_RET_ALLOW),
        load(NUMBER_AT),
    ];
    for (place, &number) in ASKED.iter().enumerate() {
        // To the last instruction, over those that follow and the one before it.
        let over = u8::try_from(ASKED.len() - place).unwrap_or(u8::MAX);
        program.push(jump_if_equal(
            u32::try_from(number).unwrap_or(u32::MAX),
            over,
            0,
        ));
    }
    program.push(leave(libc::SECCOMP_RET_ALLOW));
    program.push(leave(libc::SECCOMP_RET_USER_NOTIF));
    program
}

#[allow(clippy::cast_possible_truncation)] // opcodes have 16 bits
const fn statement(code: u32, k: u32) -> sock_filter {
    sock_filter {
        code: code as u16,
        jt: 0,
        jf: 0,
        k,
    }
}

#[allow(clippy::cast_possible_truncation)] // opcodes have 16 bits
const fn jump_if_equal(k: u32, jt: u8, jf: u8) -> sock_filter {
    sock_filter {
        code: (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16,
        jt,
        jf,
        k,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs it as the kernel does.
    fn judge(program: &[sock_filter], architecture: u32, number: u32) -> u32 {
        let (mut at, mut value) = (0, 0);
        loop {
            let step = program[at];
            at += 1;
            match u32::from(step.code) {
                code if code == libc::BPF_RET | libc::BPF_K => return step.k,
                code if code == libc::BPF_LD | libc::BPF_W | libc::BPF_ABS => {
                    value = match step.k {
                        NUMBER_AT => number,
                        ARCHITECTURE_AT => architecture,
                        other => panic!("{other}"),
                    };
                }
                _ if value == step.k => at += usize::from(step.jt),
                _ => at += usize::from(step.jf),
            }
        }
    }

    #[test]
    fn calls_about_sockets_are_asked_about_and_no_others() {
        let program = program();
        for number in 0..600 {
            let is_asked = ASKED.contains(&c_long::from(number));
            let expected = match is_asked {
                true => libc::SECCOMP_RET_USER_NOTIF,
                false => libc::SECCOMP_RET_ALLOW,
            };
            assert_eq!(judge(&program, ARCHITECTURE, number), expected, "{number}");
            // Of another architecture the numbers mean other calls.
            let other = judge(&program, 0x4000_0003, number);
            assert_eq!(other, libc::SECCOMP_RET_ALLOW, "{number}");
        }
    }
}
