//! Each regime for itself, and `locked` with backlogs: transfers both ways, loss, a restart under load, frames that make no sense.

use std::time::Duration;

use netchan::Regime;

use crate::{
    Case, Outcome,
    hostile::mac_of,
    loss::lose,
    not_done,
    place::{Knobs, OURS, Place, SOON, socket_address},
    process::Process,
    transfer::{fetch, make_file, nc_in, place_for, web_server},
};

pub const CASES: &[Case] = &[
    ("every_regime_takes_and_gives", |_| each(both_ways)),
    ("every_regime_with_1_percent_loss", |_| each(with_loss)),
    ("every_regime_restarts_under_load", |_| each(restart)),
    ("every_regime_outlives_mutated_frames", |_| {
        each(|regime| mutated(regime, 1))
    }),
    ("every_regime_soaks", soak),
];

fn each(case: impl Fn(&str) -> Outcome) -> Outcome {
    for regime in Regime::here().map(Regime::name).chain(["locked/hybrid"]) {
        case(regime).map_err(|e| format!("{regime}: {e}"))?;
    }
    Ok(())
}

/// A soak of a quarter of an hour.
fn soak(knobs: &Knobs) -> Outcome {
    if !knobs.soak {
        return not_done("every_regime_soaks", "a case of the long form");
    }
    for _ in 0..10 {
        each(both_ways)?;
        each(with_loss)?;
        each(restart)?;
        each(|regime| mutated(regime, 10))?;
    }
    Ok(())
}

fn both_ways(regime: &str) -> Outcome {
    for (link, v6, sending) in [
        ("tap:nc0", false, true),
        ("tap:nc0", true, false),
        ("packet:nc0", false, false),
    ] {
        nc_in(regime, link, 16, v6, (true, sending), |_| Ok(()))
            .map_err(|e| format!("{link}, v6 {v6}, netchan sending {sending}: {e}"))?;
    }
    Ok(())
}

fn with_loss(regime: &str) -> Outcome {
    for sending in [true, false] {
        let prepare = |place: &Place| lose(place, "nc0", 1);
        nc_in(regime, "tap:nc0", 4, false, (true, sending), prepare)
            .map_err(|e| format!("netchan sending {sending}: {e}"))?;
    }
    Ok(())
}

/// A web server in `regime` that answers.
fn serve(place: &Place, regime: &str) -> Result<Process, String> {
    let command = place.netchan_run_in(regime, "tap:nc0", "python3", &web_server(false))?;
    let mut server = Process::start(command, &place.folder, "server")?;
    place.wait_for(&mut server, OURS[0], 8000)?;
    Ok(server)
}

/// A program ends in the middle of transfers, by itself and by force; on the same link another serves at once.
fn restart(regime: &str) -> Outcome {
    let place = place_for("tap:nc0")?;
    let sum = make_file(&place.folder.join("large"), 16)?;
    let url = format!("http://{}/large", socket_address(OURS[0], 8000));
    for by_force in [false, true] {
        let server = serve(&place, regime)?;
        let slow = [
            "--silent",
            "--limit-rate",
            "4M",
            "--output",
            "/dev/null",
            &url,
        ];
        let load = [place.start("curl", &slow)?, place.start("curl", &slow)?];
        std::thread::sleep(Duration::from_millis(200));
        if by_force {
            drop(server);
        } else {
            server.interrupt()?;
        }
        let server = serve(&place, regime).map_err(|e| format!("by force {by_force}: {e}"))?;
        drop(load);
        fetch(&place, place.command("curl"), &url, &sum, 16)
            .map_err(|e| format!("by force {by_force}: {e}; {}", server.said()))?;
    }
    Ok(())
}

fn mutated(regime: &str, seconds: u32) -> Outcome {
    let place = place_for("tap:nc0")?;
    let sum = make_file(&place.folder.join("large"), 8)?;
    let mut server = serve(&place, regime)?;
    let mac = mac_of(&place)?;
    let (seconds, seed) = (seconds.to_string(), "7");
    let inner = place.inner(&["fuzz", "packet:nc0", &mac, &seconds, seed])?;
    inner.finish(SOON)?.success()?;
    if !server.is_running() {
        return Err(format!("seed {seed}: it ended: {}", server.said()));
    }
    let url = format!("http://{}/large", socket_address(OURS[0], 8000));
    fetch(&place, place.command("curl"), &url, &sum, 8).map_err(|e| format!("seed {seed}: {e}"))
}
