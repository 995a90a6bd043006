//! Filters as machine code against the interpreter, and without executable memory. Against libpcap: the program `netchan`'s tests.

#[path = "filters/programs.rs"]
mod programs;

use std::{collections::BTreeMap, thread};

use netchan::{
    Net,
    tap::{Filter, Instruction, Options},
};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule,
};

use programs::{both, numbers, packet, packets_or, program, said, seed};

/// Packets that each program is run over.
const EACH: usize = 16;

/// Whatever the program and the packet: machine code says what the interpreter says. `NETCHAN_PACKETS`: over how many packets (50,000).
#[test]
fn machine_code_says_what_the_interpreter_says() {
    let mut below = numbers(seed());
    let (mut kinds, packets) = ([0_usize; 2], packets_or(50_000));
    for _ in 0..packets.div_ceil(EACH) {
        let filters = both(&program(&mut below));
        for _ in 0..EACH {
            let packet = packet(&mut below);
            let length = u32::try_from(packet.len() + below(3) * 500).expect("short");
            kinds[usize::from(said(&filters, &packet, length) > 0)] += 1;
        }
    }
    let [none, some] = kinds;
    println!("{packets} packets: {none} times 0, {some} times more");
    assert!(none > packets / 20 && some > packets / 20, "{kinds:?}");
}

/// Lets the calling thread no longer make memory executable, as systemd's MemoryDenyWriteExecute does to a process.
fn deny_executable_memory() {
    let protection = u64::from(libc::PROT_EXEC.cast_unsigned());
    let rule = || {
        let has_it = SeccompCmpOp::MaskedEq(protection);
        let condition = SeccompCondition::new(2, SeccompCmpArgLen::Dword, has_it, protection);
        SeccompRule::new(vec![condition.expect("a condition")]).expect("a rule")
    };
    let calls = [libc::SYS_mprotect, libc::SYS_mmap, libc::SYS_pkey_mprotect];
    let rules = calls.map(|call| (call, vec![rule()]));
    let filter = SeccompFilter::new(
        BTreeMap::from(rules),
        SeccompAction::Allow,
        SeccompAction::Errno(libc::EPERM.cast_unsigned()),
        std::env::consts::ARCH.try_into().expect("an architecture"),
    );
    let filter: BpfProgram = filter
        .and_then(TryInto::try_into)
        .expect("what a kernel takes");
    seccompiler::apply_filter(&filter).expect("a kernel with seccomp");
}

/// Passes what is longer than 100 bytes.
fn long_ones() -> Filter {
    let i = |code, jt, jf, k| Instruction { code, jt, jf, k };
    let program = [
        i(0x80, 0, 0, 0),
        i(0x25, 0, 1, 100),
        i(6, 0, 0, 7),
        i(6, 0, 0, 0),
    ];
    Filter::new(&program).expect("a program")
}

#[test]
fn filter_is_interpreted_where_no_memory_may_be_executable() {
    let says = |filter: &Filter| [filter.run(&[], 101), filter.run(&[], 100)];
    let before = long_ones().compiled();
    thread::scope(|scope| {
        scope.spawn(|| {
            deny_executable_memory();
            let filter = long_ones().compiled();
            assert_eq!((filter.engine(), says(&filter)), ("interpreted", [7, 0]));
            assert_eq!(says(&before), [7, 0], "what was made before stays");
        });
    });
    assert_eq!(before.engine() == "compiled", cfg!(target_arch = "x86_64"));
}

/// `compile_filters`, and what `netchan show taps` says.
#[test]
fn tap_says_how_its_filter_is_run() {
    let usual = if cfg!(target_arch = "x86_64") {
        "compiled"
    } else {
        "interpreted"
    };
    for (compile, engine) in [(true, usual), (false, "interpreted")] {
        let net = Net::builder().link("loop").expect("a link");
        let net = net.compile_filters(compile).start().expect("a stack");
        let filter = || net.show("taps").expect("taps")[0]["filter"].clone();
        let tap = net.tap(Options {
            filter: long_ones(),
            ..Options::default()
        });
        let tap = tap.expect("a tap");
        assert_eq!(filter(), engine);
        tap.set_filter(Filter::default());
        assert_eq!(filter(), "none");
        tap.set_filter(long_ones());
        assert_eq!(filter(), engine);
        let settings = net.show("settings").expect("settings");
        let mut rows = settings.as_array().expect("rows").iter();
        let row = rows.find(|row| row["name"] == "compile_filters");
        assert_eq!(row.expect("a row")["value"], compile);
    }
}
