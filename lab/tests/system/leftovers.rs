//! A run of these tests that is killed leaves namespaces, folders and programs behind: the next one takes them away.

use std::{fs, path::Path, process::Command};

use crate::{
    Case, Outcome,
    place::{Place, SOON, remove_leftovers},
    process::{Process, eventually},
    transfer::place_for,
};

pub const CASES: &[Case] = &[("what_a_killed_run_left_is_taken_away", |_| killed())];

/// A run that makes a place, starts a program there, says both and stays.
pub fn inner() -> Result<String, String> {
    let place = Place::new()?;
    let program = place.start("sleep", &["1000"])?;
    println!(
        "{} {} {}",
        place.name,
        place.folder.display(),
        program.pid()
    );
    loop {
        std::thread::park();
    }
}

fn killed() -> Outcome {
    let here = place_for("tap:nc0")?;
    let program = std::env::current_exe().map_err(|e| e.to_string())?;
    let mut command = Command::new(program);
    command.args(["--inner", "leftovers"]);
    let mut run = Process::start(command, &here.folder, "run")?;
    let mut said = Vec::new();
    eventually(SOON, || {
        let text = fs::read_to_string(here.folder.join("run.out")).unwrap_or_default();
        said = text.split_whitespace().map(str::to_owned).collect();
        said.len() == 3 || !run.is_running()
    });
    let [name, folder, pid] = &said[..] else {
        return Err(format!("no place: {}", run.said()));
    };
    let namespace = format!("/run/netns/{name}");
    let [namespace, folder] = [&namespace, folder].map(Path::new);
    let process = format!("/proc/{pid}/stat");
    let runs = || fs::read_to_string(&process).is_ok_and(|stat| !stat.contains(") Z"));
    remove_leftovers();
    if !(namespace.exists() && folder.is_dir() && runs()) {
        return Err("the place of a run that goes on was taken away".to_owned());
    }
    drop(run);
    if !(namespace.exists() && runs()) {
        return Err("nothing was left".to_owned());
    }
    remove_leftovers();
    if namespace.exists() || folder.exists() || !eventually(SOON, || !runs()) {
        return Err(format!("{name} or its program {pid} is still there"));
    }
    if here.folder.is_dir() {
        Ok(())
    } else {
        Err("the place of this run was taken away".to_owned())
    }
}
