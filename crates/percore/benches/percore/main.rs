//! The bench of the primitives, each beside what else there is for the same thing, in the same run.
//!
//! `cargo bench -p percore` takes about a minute; `-- --quick` a few seconds; `-- channels slab` only those. The contenders of a
//! row take turns, many times; a cell is the median of its turns in nanoseconds, the row's spread that of our own (10th to 90th percentile).
//! Turns in which the kernel gave one of the cores to somebody else are left out.

mod channels;
mod counter;
mod crossbar;
mod epoch;
mod harness;
mod locks;
mod others;
mod sched;
mod slab;
mod trace;

use harness::Plan;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let quick = args.iter().any(|arg| arg == "--quick" || arg == "--test");
    let wanted: Vec<&str> = (args.iter().map(String::as_str))
        .filter(|arg| !arg.starts_with("--"))
        .collect();
    let plan = Plan::new(quick);
    plan.print();
    type Section = fn(&Plan);
    let sections: [(&str, Section); 11] = [
        ("channels", channels::run),
        ("latency", channels::latency),
        ("crossbar", crossbar::run),
        ("slab", slab::run),
        ("doorbell", others::doorbell),
        ("counter", counter::run),
        ("trace", trace::run),
        ("locks", locks::run),
        ("sched", sched::run),
        ("epoch", epoch::run),
        ("clock", others::clock),
    ];
    for (name, section) in sections {
        if wanted.is_empty() || wanted.contains(&name) {
            section(&plan);
        }
    }
    plan.print_noise();
}
