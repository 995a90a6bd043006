//! The checks against a made-up machine.

use std::{fs, path::PathBuf};

use super::{super::Verdict, *};

struct Fake(Machine);

impl Fake {
    fn new(name: &str, files: &[(&str, &str)]) -> Self {
        let root =
            std::env::temp_dir().join(format!("netchan-doctor-{}-{name}", std::process::id()));
        for (path, text) in files {
            let path: PathBuf = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        Self(Machine { root })
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0.root);
    }
}

#[test]
fn what_spoils_a_measurement_is_found() {
    let fake = Fake::new(
        "bad",
        &[
            (
                "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor",
                "performance\n",
            ),
            (
                "sys/devices/system/cpu/cpu1/cpufreq/scaling_governor",
                "powersave\n",
            ),
            ("sys/devices/system/cpu/smt/active", "1\n"),
            (
                "sys/devices/system/clocksource/clocksource0/current_clocksource",
                "hpet\n",
            ),
            ("proc/cpuinfo", "flags : constant_tsc\n"),
            ("proc/stat", "cpu  100 0 0 800 0 0 0 100 5 5\ncpu0 1\n"),
            ("proc/loadavg", "1.70 0.5 0.1 3/200 999\n"),
            ("proc/sys/net/ipv4/tcp_congestion_control", "bbr\n"),
            (
                "proc/meminfo",
                "MemTotal: 9 kB\nMemAvailable:   1024 kB\nHugePages_Total: 0\n",
            ),
            (
                "sys/kernel/mm/transparent_hugepage/enabled",
                "always madvise [never]\n",
            ),
        ],
    );
    let machine = &fake.0;
    for check in [
        governor(machine),
        smt(machine),
        clock(machine),
        steal(machine),
        load(machine),
        congestion(machine),
        memory(machine),
        huge_pages(machine),
    ] {
        assert_eq!(check.verdict, Verdict::Warn, "{check:?}");
        assert!(check.mend.is_some());
    }
    assert_eq!(memory(machine).found, "1.00 MiB available");
    assert!(steal(machine).found.contains("10.0 % since"));
}

#[test]
fn a_quiet_machine_and_one_that_says_nothing_are_fine() {
    let quiet = Fake::new(
        "quiet",
        &[
            (
                "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor",
                "performance\n",
            ),
            ("sys/devices/system/cpu/smt/active", "0\n"),
            (
                "sys/devices/system/clocksource/clocksource0/current_clocksource",
                "tsc\n",
            ),
            ("proc/stat", "cpu  100 0 0 800 0 0 0 0 0 0\n"),
            ("proc/loadavg", "0.10 0.5 0.1 3/200 999\n"),
            ("proc/sys/net/ipv4/tcp_congestion_control", "cubic\n"),
            (
                "proc/meminfo",
                "MemAvailable:   10485760 kB\nHugePages_Total: 3\n",
            ),
        ],
    );
    let silent = Fake::new("silent", &[("proc/stat", "nonsense"), ("proc/loadavg", "")]);
    for machine in [&quiet.0, &silent.0] {
        for check in [
            governor(machine),
            smt(machine),
            clock(machine),
            steal(machine),
            load(machine),
            congestion(machine),
            memory(machine),
            huge_pages(machine),
        ] {
            assert_eq!(check.verdict, Verdict::Ok, "{check:?}");
        }
    }
}

#[test]
fn the_switch_that_forbids_namespaces_is_named() {
    let fake = Fake::new(
        "userns",
        &[("proc/sys/kernel/unprivileged_userns_clone", "0\n")],
    );
    assert!(namespace_mend(&fake.0).contains("unprivileged_userns_clone=1"));
    let fake = Fake::new("none", &[]);
    assert!(namespace_mend(&fake.0).contains("container"));
}
