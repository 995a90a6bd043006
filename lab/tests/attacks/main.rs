//! What one peer can do to the others: under each attack of a table an echo on another connection costs what it costs without, no frame costs
//! more than ten ordinary ones, and what is held for the attacker stays within what it sent. In virtual time, on one thread; costs are what that
//! thread worked, so that other programs' work is not in them. `NETCHAN_FULL=1` takes longer and is stricter.

#[path = "../system/frames.rs"]
#[allow(dead_code)] // the system tests use the rest
mod frames;

mod attacker;
mod door;
mod host;
mod more;
mod table;

use attacker::Attacker;
use host::{Host, SINK};
use netchan::Clock;
use table::{ROWS, Row};

/// A frame may cost so many ordinary ones.
const FRAME_MAX: f64 = 10.0;
/// The echo's 99th percentile, of that without the attack.
const ECHO_MAX: f64 = 2.0;
/// Bytes held for each byte sent, and beside `Row::holds_anyway`.
const HELD_MAX: u64 = 8;
/// Each round has so many ticks of 10 ms; the median of the rounds' figures counts.
const TICKS: u32 = 40;

fn rounds() -> usize {
    if std::env::var_os("NETCHAN_FULL").is_some() {
        9
    } else {
        3
    }
}

fn percentile(mut values: Vec<u64>, per_cent: usize) -> f64 {
    values.sort_unstable();
    let at = values.len().saturating_sub(1) * per_cent / 100;
    values
        .get(at)
        .map_or(0.0, |v| f64::from(u32::try_from(*v).unwrap_or(u32::MAX)))
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

/// What the host worked for the frames that wait at its door, for each.
fn digest(host: &mut Host) -> Option<u64> {
    let frames = u64::try_from(host.outside.waiting()).unwrap_or(0);
    let before = host.polled_ns;
    host.settle();
    (host.polled_ns - before).checked_div(frames)
}

/// A host that is attacked, and one beside it that has ordinary traffic.
struct Pair {
    attacked: (Host, Attacker),
    quiet: (Host, Attacker),
    clock: Clock,
}

struct Figures {
    echo: f64,
    frame: f64,
    held: u64,
    allowed: u64,
}

impl Pair {
    fn new(row: &Row, frame_max: usize) -> Result<Self, String> {
        let clock = Clock::new_virtual();
        let make = || Host::new(&clock, frame_max).map_err(|e| format!("start: {e}"));
        let mut pair = Self {
            attacked: make()?,
            quiet: make()?,
            clock: clock.clone(),
        };
        let (host, attacker) = &mut pair.attacked;
        // The first frames make neighbours known.
        attacker.icmp(8, 0, &[0, 1, 0, 1]);
        host.settle();
        attacker.hear();
        host.settle();
        (row.prepare)(attacker, host);
        let (host, friend) = &mut pair.quiet;
        friend.open(SINK, 65535, &[]);
        for _ in 0..4 {
            host.settle();
            friend.hear();
        }
        if friend.ports().is_empty() {
            return Err("no ordinary connection".to_owned());
        }
        Ok(pair)
    }

    /// One round: the echo's and the frame's cost, as multiples of what is ordinary.
    fn round(&mut self, row: &Row, begin: u32) -> Result<(f64, f64), String> {
        let [mut hit, mut free, mut strange, mut ordinary] = [const { Vec::new() }; 4];
        for tick in begin..begin + TICKS {
            (row.tick)(&mut self.attacked.1, tick);
            strange.extend(digest(&mut self.attacked.0));
            let (host, friend) = &mut self.quiet;
            let port = friend.ports().first().copied().unwrap_or(0);
            (0..30).for_each(|_| friend.say(port, &[b'x'; 1000]));
            ordinary.extend(digest(host));
            friend.hear();
            // What the host's own programs did meanwhile has emptied the processor's caches; that is not the stack's work.
            self.attacked.0.echo()?;
            self.quiet.0.echo()?;
            for _ in 0..5 {
                hit.push(self.attacked.0.echo()?);
                free.push(self.quiet.0.echo()?);
            }
            let now = self.clock.now();
            self.clock
                .advance_to(proto::time::Instant(now.0 + 10_000_000));
        }
        let of = |these: Vec<u64>, those: Vec<u64>, part| {
            percentile(these, part) / percentile(those, part).max(1.0)
        };
        Ok((of(hit, free, 99), of(strange, ordinary, 50)))
    }

    fn run(&mut self, row: &Row) -> Result<Figures, String> {
        let mut figures = Vec::new();
        for number in 0..rounds() {
            let begin = u32::try_from(number).unwrap_or(0) * TICKS;
            figures.push(self.round(row, begin)?);
        }
        let (echo, frame): (Vec<_>, Vec<_>) = figures.into_iter().unzip();
        Ok(Figures {
            echo: median(echo),
            frame: median(frame),
            held: self.attacked.0.held_bytes(),
            allowed: HELD_MAX * self.attacked.1.sent_bytes + row.holds_anyway,
        })
    }
}

/// Why a row fails, if it does: each of three times, since a machine has its own moods.
fn verdict(row: &Row, frame_max: usize) -> Result<String, String> {
    let first = once(row, frame_max);
    let second = first.or_else(|_| once(row, frame_max));
    second.or_else(|_| once(row, frame_max))
}

fn once(row: &Row, frame_max: usize) -> Result<String, String> {
    let mut pair = Pair::new(row, frame_max)?;
    let figures = pair.run(row).map_err(|e| {
        format!(
            "{e}; held {} bytes; {:.1500}",
            pair.attacked.0.held_bytes(),
            pair.attacked.0.counters()
        )
    })?;
    let said = format!(
        "echo {:.2} times, frame {:.2} times, held {} of {} bytes, {} frames",
        figures.echo, figures.frame, figures.held, figures.allowed, pair.attacked.1.sent_frames
    );
    if figures.echo > ECHO_MAX || figures.frame > FRAME_MAX || figures.held > figures.allowed {
        return Err(said);
    }
    Ok(said)
}

fn under_attack(frame_max: usize) {
    let mut failed = Vec::new();
    // `NETCHAN_ROW=words` tries those whose name has them.
    let wanted = std::env::var("NETCHAN_ROW").unwrap_or_default();
    let rows = ROWS.iter().chain(more::ROWS);
    for row in rows.filter(|row| row.name.contains(&wanted)) {
        match verdict(row, frame_max) {
            Ok(said) => println!("{}: {said}", row.name),
            Err(why) => {
                println!("{}: FAILED: {why}", row.name);
                failed.push(format!("{}: {why}", row.name));
            }
        }
    }
    assert!(
        failed.is_empty(),
        "buffers of {frame_max} bytes:\n  {}",
        failed.join("\n  ")
    );
}

#[test]
fn an_attack_costs_the_others_nothing() {
    under_attack(1_536);
}

/// A link whose device merges segments has buffers for the longest.
#[test]
fn an_attack_costs_the_others_nothing_where_buffers_are_large() {
    under_attack(65_600);
}
