//! packetdrill's public TCP scripts, where a checkout of them is given: `make packetdrill SUITE=DIR`, the checkout with packetdrill built in it.
//!
//! Each script runs twice, as it is and with the setting `trains=1`. The results are compared with `results.txt`: a script that passed there
//! must pass. `NETCHAN_PACKETDRILL_WRITE=1` writes that list anew. What configures a kernel (`sysctl`, `ip`, `tc`) is replaced by
//! programs that write what they are told into a file, which the library reads.

#[path = "../../../lab/tests/skips/mod.rs"]
mod skips;

use std::{
    collections::BTreeMap,
    env, fs, io,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

/// Scripts at a time.
const THREADS: usize = 2;
/// How often a script is looked after, real time: it has a minute at least.
const BETWEEN_LOOKS: Duration = Duration::from_millis(5);
const LOOKS: usize = 12_000;

/// What old kernels alone have is unknown to it: a script then goes another way.
const SYSCTL: &str = "#!/bin/sh\nfor a; do case $a in *tcp_fastopen_cookies=*) exit 1;; *=*) echo \"$a\" >> \"$NETCHAN_SETTINGS_FILE\";; esac; done\n";
const SET_SYSCTLS: &str = "#!/bin/sh\nfor a; do echo \"$a\" >> \"$NETCHAN_SETTINGS_FILE\"; done\n\
    echo '#!/bin/sh' > /tmp/sysctl_restore_$PACKETDRILL_PID.sh; chmod +x /tmp/sysctl_restore_$PACKETDRILL_PID.sh\n";
const IP: &str = "#!/bin/sh\ncase \"$*\" in 'tcp_metrics flush'*) echo tcp_metrics=flush >> \"$NETCHAN_SETTINGS_FILE\";; esac\n";
const NOTHING: &str = "#!/bin/sh\nexit 0\n";

fn program(path: &Path, text: &str) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    fs::write(path, text)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755))
}

fn copy(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}

/// Every script over IPv4 below `folder`, by name.
fn scripts(folder: &Path, prefix: &str, found: &mut Vec<String>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if entry.file_type()?.is_dir() {
            scripts(&entry.path(), &format!("{prefix}{name}/"), found)?;
        } else if let Some(name) = name.strip_suffix(".pkt").filter(|n| !n.ends_with("v6")) {
            found.push(format!("{prefix}{name}"));
        }
    }
    Ok(())
}

/// What the runs share.
struct Suite {
    packetdrill: PathBuf,
    library: PathBuf,
    place: PathBuf,
}

impl Suite {
    fn new(checkout: &Path) -> io::Result<Self> {
        let net = checkout.join("gtests/net");
        let place = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("packetdrill-suite");
        let _ = fs::remove_dir_all(&place);
        for folder in ["common", "tcp"] {
            copy(&net.join(folder), &place.join(folder))?;
        }
        let stubs = place.join("bin");
        fs::create_dir_all(&stubs)?;
        program(&stubs.join("sysctl"), SYSCTL)?;
        program(&stubs.join("ip"), IP)?;
        program(&stubs.join("tc"), NOTHING)?;
        for folder in ["common", "tcp/common"] {
            program(&place.join(folder).join("set_sysctls.py"), SET_SYSCTLS)?;
        }
        let mut library = env::current_exe()?;
        library.pop();
        Ok(Self {
            packetdrill: net.join("packetdrill/packetdrill"),
            library: library.join("libnetchan_packetdrill.so"),
            place,
        })
    }

    /// Runs one script: `Ok` if it passes, else what packetdrill says.
    fn run(&self, script: &str, trains: bool) -> Result<(), String> {
        let path = self.place.join("tcp").join(format!("{script}.pkt"));
        let text = fs::read_to_string(&path).map_err(|e| e.to_string())?;
        let name = format!("{}-{}", script.replace('/', "-"), u8::from(trains));
        let settings = self.place.join(name);
        fs::write(&settings, "").map_err(|e| e.to_string())?;
        let mut flags = format!(
            "trains={},longest=65535,settings={}",
            u8::from(trains),
            settings.display()
        );
        // What stands in the script gives way to the command line.
        let own = |name: &str| {
            text.split_whitespace()
                .find_map(|word| word.strip_prefix(name))
        };
        let local = own("--local_ip=").unwrap_or("192.168.0.1");
        let remote = own("--remote_ip=").unwrap_or("192.0.2.1");
        flags += &format!(",local_ip={local}");
        let output = settings.with_extension("log");
        let log = fs::File::create(&output).map_err(|e| e.to_string())?;
        let path_variable = env::var("PATH").unwrap_or_default();
        let mut child = Command::new(&self.packetdrill)
            .args([
                "--send_omit_free",
                "--ip_version=ipv4",
                "--netmask_ip=255.255.0.0",
            ])
            .arg(format!("--local_ip={local}"))
            .arg(format!("--gateway_ip={local}"))
            .arg(format!("--remote_ip={remote}"))
            .args(["-D", "TFO_COOKIE=3021b9d889017eeb"])
            .args(["-D", "CODE=host_unreachable"])
            .args(["-D", "CMSG_LEVEL_IP=SOL_IP"])
            .args(["-D", "CMSG_TYPE_RECVERR=IP_RECVERR"])
            .arg(format!("--so_filename={}", self.library.display()))
            .arg(format!("--so_flags={flags}"))
            .arg(path.file_name().unwrap_or_default())
            .current_dir(path.parent().unwrap_or(Path::new("/")))
            .env(
                "PATH",
                format!("{}:{path_variable}", self.place.join("bin").display()),
            )
            .env("LD_PRELOAD", &self.library)
            .env("NETCHAN_SETTINGS_FILE", &settings)
            .stdin(Stdio::null())
            .stderr(log.try_clone().map_err(|e| e.to_string())?)
            .stdout(log)
            .spawn()
            .map_err(|e| e.to_string())?;
        for _ in 0..LOOKS {
            if let Some(status) = child.try_wait().map_err(|e| e.to_string())? {
                return match status.success() {
                    true => Ok(()),
                    false => Err(fs::read_to_string(&output).unwrap_or_default()),
                };
            }
            thread::sleep(BETWEEN_LOOKS);
        }
        let _ = child.kill();
        let _ = child.wait();
        Err("it took too long".to_owned())
    }
}

/// A script's results: as it is, and with trains.
type Results = BTreeMap<String, [Result<(), String>; 2]>;

fn run_all(suite: &Suite, names: &[String]) -> Results {
    let results = Mutex::new(Results::new());
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                // Relaxed: a number for each, nothing else goes with it.
                while let Some(name) = names.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let both = [suite.run(name, false), suite.run(name, true)];
                    results
                        .lock()
                        .expect("no thread panics")
                        .insert(name.clone(), both);
                }
            });
        }
    });
    results.into_inner().expect("no thread panics")
}

#[test]
fn no_public_script_that_passed_fails() {
    let Some(checkout) = env::var_os("NETCHAN_PACKETDRILL") else {
        return skips::skipped_here("NETCHAN_PACKETDRILL names no checkout of packetdrill");
    };
    let suite = Suite::new(Path::new(&checkout)).expect("the checkout");
    let mut names = Vec::new();
    scripts(&suite.place.join("tcp"), "", &mut names).expect("scripts");
    names.sort();
    let only = env::var("NETCHAN_PACKETDRILL_ONLY").unwrap_or_default();
    names.retain(|name| name.contains(&only));
    let results = run_all(&suite, &names);
    let word = |result: &Result<(), String>| if result.is_ok() { "pass" } else { "fail" };
    let list = Path::new(env!("CARGO_MANIFEST_DIR")).join("results.txt");
    let text = fs::read_to_string(&list).unwrap_or_default();
    let mut broken = Vec::new();
    let mut lines = String::new();
    for (name, both) in &results {
        lines += &format!("{name} {} {}\n", word(&both[0]), word(&both[1]));
        let before = text.lines().find_map(|line| {
            let mut words = line.split(' ');
            (words.next()? == name).then(|| words.collect::<Vec<_>>())
        });
        for (index, result) in both.iter().enumerate() {
            let passed = before
                .as_ref()
                .is_some_and(|words| words.get(index) == Some(&"pass"));
            if let Err(why) = result {
                println!("{name} trains={index}: {why}");
                if passed {
                    broken.push(format!("{name} trains={index}"));
                }
            }
        }
    }
    // A script that is not there has not passed.
    let listed = text.lines().filter_map(|line| line.split(' ').next());
    let gone = listed.filter(|name| name.contains(&only) && !results.contains_key(*name));
    broken.extend(gone.map(|name| format!("{name} is gone")));
    let sum = |index: usize| results.values().filter(|both| both[index].is_ok()).count();
    println!(
        "{} scripts: {} pass as they are, {} with trains=1",
        results.len(),
        sum(0),
        sum(1)
    );
    if env::var_os("NETCHAN_PACKETDRILL_WRITE").is_some() {
        assert!(only.is_empty(), "a list of all or none");
        fs::write(&list, lines).expect("results.txt");
    } else {
        assert!(
            broken.is_empty(),
            "passed before and fails now: {broken:#?}"
        );
    }
}
