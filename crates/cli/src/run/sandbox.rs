//! The sandbox of `netchan run --sandbox`: what a network server has no need of is refused to it (landlock(7), seccomp(2)).
//!
//! A filter of system calls judges numbers, not paths; a Landlock ruleset paths, not calls: the sandbox is both. It holds for the program, all
//! that it starts, and for good.

use std::{
    collections::BTreeMap,
    fmt::Display,
    path::{Path, PathBuf},
};

use landlock::{
    ABI, AccessFs, PathBeneath, PathFd, RestrictionStatus, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetStatus,
};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};

/// The newest Landlock whose rights are asked for (Linux 6.10); an older kernel's are taken as far as they go.
const LANDLOCK: ABI = ABI::V5;

/// What stays writable of itself; one that is not there is passed over.
const WRITABLE: [&str; 10] = [
    "/tmp",
    "/var/tmp",
    "/dev/full",
    "/dev/null",
    "/dev/ptmx",
    "/dev/pts",
    "/dev/shm",
    "/dev/tty",
    "/dev/zero",
    "/proc/self",
];

/// Calls that change the machine, or look into other processes: `EPERM`.
const REFUSED: [libc::c_long; 39] = [
    libc::SYS_acct,
    libc::SYS_add_key,
    libc::SYS_adjtimex,
    libc::SYS_bpf,
    libc::SYS_clock_adjtime,
    libc::SYS_clock_settime,
    libc::SYS_delete_module,
    libc::SYS_finit_module,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fsopen,
    libc::SYS_fspick,
    libc::SYS_init_module,
    libc::SYS_kexec_file_load,
    libc::SYS_kexec_load,
    libc::SYS_keyctl,
    libc::SYS_lookup_dcookie,
    libc::SYS_mount,
    libc::SYS_mount_setattr,
    libc::SYS_move_mount,
    libc::SYS_open_by_handle_at,
    libc::SYS_open_tree,
    libc::SYS_perf_event_open,
    libc::SYS_pidfd_getfd,
    libc::SYS_pivot_root,
    libc::SYS_process_vm_writev,
    libc::SYS_ptrace,
    libc::SYS_quotactl,
    libc::SYS_reboot,
    libc::SYS_request_key,
    libc::SYS_setdomainname,
    libc::SYS_sethostname,
    libc::SYS_setns,
    libc::SYS_settimeofday,
    libc::SYS_swapoff,
    libc::SYS_swapon,
    libc::SYS_umount2,
    libc::SYS_unshare,
    libc::SYS_userfaultfd,
];

/// Calls with an older one beside them, to which a program turns at `ENOSYS`: a filter cannot look into their arguments, which are in memory.
const UNKNOWN: [libc::c_long; 4] = [
    libc::SYS_clone3,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_io_uring_setup,
];

/// The namespaces that clone(2) makes.
const NAMESPACES: [libc::c_int; 7] = [
    libc::CLONE_NEWCGROUP,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWNET,
    libc::CLONE_NEWNS,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWUTS,
];

/// The address families that there are sockets of; of others (packet, vsock, alg, …) it is `EAFNOSUPPORT`.
const FAMILIES: [libc::c_int; 4] = [
    libc::AF_UNIX,
    libc::AF_INET,
    libc::AF_INET6,
    libc::AF_NETLINK,
];

/// Confines this process, which has one thread, for good; `writable`: files, and directories with all beneath.
///
/// # Errors
/// A text: a path that cannot be opened, or a kernel that cannot do it. Nothing is left half confined that then runs on: the caller ends.
pub fn enter(writable: &[PathBuf]) -> Result<(), String> {
    confine_files(writable)?;
    refuse_calls()
}

/// Refuses the calls that a network server has no need of.
///
/// # Errors
/// As for [`enter`].
pub fn refuse_calls() -> Result<(), String> {
    for filter in filters()? {
        seccompiler::apply_filter(&filter).map_err(|e| format!("seccomp: {e}"))?;
    }
    Ok(())
}

/// Leaves reading and executing as they are, and writing only in some places. Descriptors that are open already keep their rights.
///
/// # Errors
/// As for [`enter`].
pub fn confine_files(writable: &[PathBuf]) -> Result<(), String> {
    let failed = |e: landlock::RulesetError| format!("Landlock: {e}");
    let rights = AccessFs::from_write(LANDLOCK);
    let ruleset = Ruleset::default().handle_access(rights).map_err(failed)?;
    let mut ruleset = ruleset.create().map_err(failed)?;
    let known = WRITABLE
        .iter()
        .map(Path::new)
        .filter(|place| place.exists());
    for place in known.chain(writable.iter().map(PathBuf::as_path)) {
        let failed_here = |why: &dyn Display| format!("{}: {why}", place.display());
        let is_directory = std::fs::metadata(place)
            .map_err(|e| failed_here(&e))?
            .is_dir();
        let open = PathFd::new(place).map_err(|e| failed_here(&e))?;
        // Making and removing are rights of directories only.
        let rights = match is_directory {
            true => rights,
            false => rights & AccessFs::from_file(LANDLOCK),
        };
        ruleset = ruleset
            .add_rule(PathBeneath::new(open, rights))
            .map_err(failed)?;
    }
    let RestrictionStatus { ruleset, .. } = ruleset.restrict_self().map_err(failed)?;
    match ruleset {
        RulesetStatus::NotEnforced => Err("this kernel has no Landlock".to_owned()),
        RulesetStatus::PartiallyEnforced | RulesetStatus::FullyEnforced => Ok(()),
    }
}

/// One for each error: a filter knows one answer.
fn filters() -> Result<[BpfProgram; 3], String> {
    let always = |calls: &[libc::c_long]| -> Rules {
        let calls = calls.iter();
        calls.map(|&call| (call, Vec::new())).collect()
    };
    let mut refused = always(&REFUSED);
    let namespaces = NAMESPACES.into_iter().map(|flag| {
        let flag = u64::from(flag.cast_unsigned());
        rule(&[(SeccompCmpOp::MaskedEq(flag), flag)])
    });
    refused.insert(libc::SYS_clone, namespaces.collect::<Result<_, _>>()?);
    let others = FAMILIES.map(|family| (SeccompCmpOp::Ne, u64::from(family.cast_unsigned())));
    let others = Rules::from([(libc::SYS_socket, vec![rule(&others)?])]);
    Ok([
        compile(refused, libc::EPERM)?,
        compile(others, libc::EAFNOSUPPORT)?,
        compile(always(&UNKNOWN), libc::ENOSYS)?,
    ])
}

/// By call: always (no rule), or where one rule holds.
type Rules = BTreeMap<libc::c_long, Vec<SeccompRule>>;

/// All of these of the call's first argument, as an int.
fn rule(conditions: &[(SeccompCmpOp, u64)]) -> Result<SeccompRule, String> {
    let all = conditions.iter().map(|(operator, value)| {
        SeccompCondition::new(0, SeccompCmpArgLen::Dword, operator.clone(), *value)
    });
    let all = all.collect::<Result<_, _>>().map_err(|e| e.to_string())?;
    SeccompRule::new(all).map_err(|e| e.to_string())
}

fn compile(rules: Rules, errno: libc::c_int) -> Result<BpfProgram, String> {
    let errno = SeccompAction::Errno(errno.cast_unsigned());
    let architecture = std::env::consts::ARCH;
    let target = TargetArch::try_from(architecture).map_err(|e| e.to_string())?;
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, errno, target);
    filter
        .and_then(BpfProgram::try_from)
        .map_err(|e| e.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_filters_are_what_a_kernel_takes() {
        for filter in filters().unwrap() {
            assert!(!filter.is_empty() && filter.len() < 4096);
        }
    }

    #[test]
    fn a_path_that_is_not_there_is_named() {
        let why = confine_files(&["/no/such/place".into()]).unwrap_err();
        assert!(why.contains("/no/such/place"), "{why}");
    }
}
