//! netchan beside Linux, connection by connection, through a relay that loses, delays, repeats and breaks what passes: `netchan_lab::differential`.
//!
//! `NETCHAN_SEED=n` begins with that group, `NETCHAN_SEEDS=n` tries so many; the seed of one that failed is in its message. Without a seed, the
//! group of `FAITHFUL` is tried, too. `make soak` tries more of them, on worse links: its seeds are replayed with `NETCHAN_SOAK=1`.

use std::{io, time::Duration};

use netchan::{Clock, link::specification};
use netchan_lab::differential::{
    Run, Side,
    linux::Linux,
    netchan_side::Netchan,
    plan::{FAITHFUL, Group},
};
use proto::time::Instant;

use crate::{
    Case, Outcome,
    place::{Knobs, Place, SOON},
    skips::seeds_or,
};

pub const CASES: &[Case] = &[
    ("differential_tap", |k| groups(k, "tap", 5)),
    ("differential_veth", |k| groups(k, "packet", 3)),
];

/// Groups of the long form.
const SOAK: u64 = 60;

fn groups(knobs: &Knobs, kind: &str, quick: u64) -> Outcome {
    let number = |name| std::env::var(name).ok()?.parse().ok();
    let asked: Option<u64> = number("NETCHAN_SEED");
    let first = asked.unwrap_or(1);
    let count = seeds_or(if knobs.soak { SOAK } else { quick });
    let also = asked.is_none().then_some(FAITHFUL);
    let seeds: Vec<_> = (first..first + count).chain(also).collect();
    let failed: Vec<_> = (seeds.iter())
        .filter_map(|seed| one(kind, *seed, knobs.soak).err())
        .collect();
    if failed.is_empty() {
        return Ok(());
    }
    Err(format!(
        "{} of {}: {}",
        failed.len(),
        seeds.len(),
        failed.join("\n")
    ))
}

/// Linux may repeat several segments as one and cut them below TCP, each with a copy of the first one's urgent pointer, which then names a byte
/// too far on (seen: six segments too far): it is given one at a time.
fn prepare(place: &Place, device: &str, mtu: &str) -> Outcome {
    place.ip(&["link", "set", device, "mtu", mtu, "gso_max_segs", "1"])
}

/// A group in a place of its own.
fn one(kind: &str, seed: u64, rough: bool) -> Outcome {
    let group = Group::random(seed, rough);
    let place = Place::new()?;
    let mtu = group.mtu.to_string();
    match kind {
        "tap" => {
            place.tap("nc0")?;
            prepare(&place, "nc0", &mtu)?;
        }
        _ => {
            place.veth("peer0", "nc0")?;
            for end in ["peer0", "nc0"] {
                prepare(&place, end, &mtu)?;
                // Whole checksums and no merged segments: the relay breaks and loses what a wire would carry.
                let off = [
                    "-K", end, "tx", "off", "tso", "off", "gso", "off", "gro", "off",
                ];
                place.run("ethtool", &off, SOON)?;
            }
        }
    }
    let link = format!("{kind}:nc0,offload=off");
    let words = [
        "differential",
        &link,
        &seed.to_string(),
        if rough { "rough" } else { "mild" },
    ];
    let patience = group.limit + SOON + SOON;
    let done = place.inner(&words)?.finish(patience)?;
    let failed = |e| format!("seed {seed} on {kind}: {e}");
    done.success().map(drop).map_err(failed)
}

/// The inner part: both ends of the group's connections, this process's sockets and its netchan's.
pub fn inner(link: &str, seed: &str, rough: &str) -> Result<String, String> {
    let seed: u64 = seed.parse().map_err(|_| "no seed")?;
    let group = Group::random(seed, rough == "rough");
    let clock = Clock::Real;
    let device = specification::parse(link).map_err(|e| e.to_string())?;
    let device = specification::open(&device, &clock).map_err(|e| e.to_string())?;
    let begin = |e: io::Error| e.to_string();
    let ours = Netchan::new(&group, device, &clock).map_err(begin)?;
    let theirs = Linux::new(&group.theirs).map_err(begin)?;
    let sides: [Box<dyn Side>; 2] = [Box::new(ours), Box::new(theirs)];
    let began = clock.now();
    let mut run = Run::new(&group, sides, began)?;
    loop {
        let now: Instant = clock.now();
        match run.turn(now)? {
            None => return Ok(format!("seed {seed}: {:?}", now.since(began))),
            Some(true) => {}
            // The kernel's sockets and device do not report when they move.
            Some(false) => std::thread::sleep(Duration::from_micros(200)),
        }
    }
}
