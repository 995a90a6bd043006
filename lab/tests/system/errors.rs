//! Misuse and misfortune: each has a clear message and the right exit status (0 done, 1 failed, 2 wrong usage).

use std::process::Command;

use crate::{
    Case, Outcome,
    place::{Knobs, OURS, Place, SOON, find, netchan},
    process::{Process, eventually},
    transfer::{place_for, web_server},
};

pub const CASES: &[Case] = &[
    ("wrong_usage_is_told", usage),
    ("bad_configuration_is_told", configuration),
    ("missing_privileges_are_told", privileges),
    ("a_second_stack_on_a_tap_is_refused", second_stack),
    ("an_address_in_use_is_refused", address_in_use),
    ("a_vanished_link_is_told", vanished),
];

/// Runs netchan itself; it must end with `status` and say each of `words` (in any case).
fn refused(place: &Place, arguments: &[&str], status: i32, words: &[&str]) -> Outcome {
    let program = netchan()?;
    let mut command = place.command(&program.to_string_lossy());
    command.args(arguments);
    expect(
        Process::start(command, &place.folder, "refused")?,
        status,
        words,
    )
}

fn expect(process: Process, status: i32, words: &[&str]) -> Outcome {
    let done = process.finish(SOON)?;
    let said = done.errors.to_lowercase();
    if done.status.code() != Some(status) {
        return Err(format!("expected status {status}: {}", done.describe()));
    }
    match words.iter().find(|w| !said.contains(&w.to_lowercase())) {
        Some(word) => Err(format!(
            "the message does not say {word:?}: {}",
            done.describe()
        )),
        None if said.contains("panicked") => Err(done.describe()),
        None => Ok(()),
    }
}

fn usage(_: &Knobs) -> Outcome {
    let place = place_for("tap:nc0")?;
    let refused = |arguments: &[&str], words: &[&str]| {
        refused(&place, arguments, 2, words).map_err(|e| format!("{arguments:?}: {e}"))
    };
    let ours = ["--address", "10.77.0.2/24", "--", "true"];
    refused(&["frobnicate"], &["frobnicate"])?;
    refused(&["run"], &["COMMAND"])?;
    refused(&["run", "--colour", "--", "true"], &["--colour"])?;
    refused(
        &[&["run", "--link", "carrier-pigeon:nc0"], &ours[..]].concat(),
        &["carrier-pigeon"],
    )?;
    refused(
        &[&["run", "--link", "tap:nc0,speed=9"], &ours[..]].concat(),
        &["speed"],
    )?;
    refused(
        &[
            "run",
            "--link",
            "tap:nc0",
            "--address",
            "10.77.0/24",
            "--",
            "true",
        ],
        &["10.77.0/24"],
    )?;
    refused(
        &[
            "run",
            "--link",
            "tap:nc0",
            "--address",
            "10.77.0.2/33",
            "--",
            "true",
        ],
        &["33"],
    )?;
    refused(
        &[
            &["run", "--link", "tap:nc0", "--regime", "anarchy"],
            &ours[..],
        ]
        .concat(),
        &["anarchy"],
    )?;
    refused(
        &[&["run", "--link", "tap:nc0", "--spin", "soon"], &ours[..]].concat(),
        &["--spin", "soon"],
    )?;
    refused(&["lab", "run"], &["NAME"])?;
    refused(&["show", "weather"], &["weather"])
}

fn configuration(_: &Knobs) -> Outcome {
    let place = place_for("tap:nc0")?;
    let path = place.folder.join("netchan.toml");
    let file = path.to_string_lossy().into_owned();
    for (text, words) in [
        (
            "regime = \"app-channel\"\nregmie = 1\n",
            ["netchan.toml", "2", "regmie"],
        ),
        (
            "[[link]]\nname = \"nc0\"\nkind = \"tap\"\naddress = [\"10.77.0.299/24\"]\n",
            ["netchan.toml", "4", "10.77.0.299"],
        ),
        ("regime = \"anarchy\"\n", ["netchan.toml", "1", "anarchy"]),
        (
            "[tcp]\nmemory_max = \"1 potato\"\n",
            ["netchan.toml", "2", "potato"],
        ),
        ("regime = = \n", ["netchan.toml", "1", "regime"]),
    ] {
        std::fs::write(&path, text).map_err(|e| e.to_string())?;
        let run = ["run", "--config", &file, "--", "true"];
        let told = refused(&place, &run, 1, &words).or_else(|_| refused(&place, &run, 2, &words));
        told.map_err(|e| format!("{text:?}: {e}"))?;
    }
    std::fs::remove_file(&path).map_err(|e| e.to_string())?;
    refused(
        &place,
        &["run", "--config", &file, "--", "true"],
        1,
        &["netchan.toml", "no such file"],
    )
}

fn privileges(_: &Knobs) -> Outcome {
    let Some(setpriv) = find("setpriv") else {
        return Err("setpriv is missing (util-linux)".to_owned());
    };
    let place = place_for("tap:nc0")?;
    for link in ["tap:other", "packet:nc0"] {
        let mut command: Command = place.command(&setpriv.to_string_lossy());
        command.args([
            "--reuid",
            "65534",
            "--regid",
            "65534",
            "--clear-groups",
            "--inh-caps=-all",
        ]);
        command.arg(netchan()?).args([
            "run",
            "--link",
            link,
            "--address",
            "10.77.0.2/24",
            "--",
            "/bin/true",
        ]);
        // From `/`: the user that it runs as may not enter our folder.
        command.current_dir("/");
        let process = Process::start(command, &place.folder, "nobody")?;
        expect(process, 1, &["permi"]).map_err(|e| format!("{link}: {e}"))?;
    }
    Ok(())
}

fn second_stack(_: &Knobs) -> Outcome {
    let place = place_for("tap:nc0")?;
    let mut first = place.start_netchan("tap:nc0", "python3", &web_server(false))?;
    place.wait_for(&mut first, OURS[0], 8000)?;
    let second = place.start_netchan("tap:nc0", "python3", &web_server(false))?;
    expect(second, 1, &["nc0", "busy"])?;
    // And the first one has not noticed.
    place.wait_for(&mut first, OURS[0], 8000)
}

fn address_in_use(_: &Knobs) -> Outcome {
    let program = "\
import errno, socket
first = socket.create_server(('10.77.0.2', 8000))
for host in ('10.77.0.2', '0.0.0.0'):
    second = socket.socket()
    try:
        second.bind((host, 8000))
        second.listen()
        print('no error for', host)
    except OSError as e:
        print(errno.errorcode[e.errno])
third = socket.socket()
try:
    third.bind(('10.77.0.77', 8001))
    print('no error for an address that is not ours')
except OSError as e:
    print(errno.errorcode[e.errno])
";
    let place = place_for("tap:nc0")?;
    let run = place.start_netchan("tap:nc0", "python3", &["-c", program])?;
    let done = run.finish(SOON)?.success()?;
    let said: Vec<&str> = done.output.split_whitespace().collect();
    if said == ["EADDRINUSE", "EADDRINUSE", "EADDRNOTAVAIL"] {
        Ok(())
    } else {
        Err(done.describe())
    }
}

/// The device goes while a server listens and a client is connected: calls fail, none hangs, and the reason is told.
fn vanished(_: &Knobs) -> Outcome {
    let program = "\
import socket, sys
s = socket.create_connection((sys.argv[1], 8000), timeout=30)
print('connected', flush=True)
try:
    while s.recv(100):
        pass
    print('end')
except OSError as e:
    print('error', e)
";
    let place = place_for("tap:nc0")?;
    let mut echo = place.start("python3", &["-c", crate::programs::ECHO])?;
    place.wait_listening(&mut echo, false, 8000)?;
    let mut run = place.start_netchan(
        "tap:nc0",
        "python3",
        &["-c", program, crate::place::KERNEL[0]],
    )?;
    if !eventually(SOON, || {
        run.said().contains("connected") || !run.is_running()
    }) || !run.is_running()
    {
        return Err(format!("never connected: {} / {}", run.said(), echo.said()));
    }
    place.ip(&["link", "del", "nc0"])?;
    let done = run.finish(SOON)?;
    if done.output.contains("error")
        && done.errors.contains("nc0")
        && !done.errors.contains("panicked")
    {
        Ok(())
    } else {
        Err(done.describe())
    }
}
