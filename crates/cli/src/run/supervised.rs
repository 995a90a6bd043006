//! Programs that make their system calls themselves: the stack stays in this process, which answers them (`netchan-supervise`).

use netchan::{
    environment::{self, Kernels},
    log::Verbosity,
};

use super::{Plan, attended, builder, value};
use crate::{
    failure::{Failure, at, failed},
    log,
};

/// Runs the program, and ends as it did.
pub fn run(plan: Plan) -> Result<(), Failure> {
    let Plan {
        mut command,
        settings,
        run,
        log,
        user,
        announcement,
        program,
        ..
    } = plan;
    log::begin(&log)?;
    let kernels = Kernels::read(&|name| value(&settings, name)).map_err(failed)?;
    let net = builder(&settings)?
        .start()
        .map_err(|e| failed(format!("the stack does not start: {e}")))?;
    if let Some(said) = announcement.filter(|_| log.level != Some(Verbosity::Quiet)) {
        eprintln!("netchan: {said}");
    }
    command.env(
        environment::INTERFACES,
        environment::links_said(&net.links()),
    );
    let prepare = attended::prepare(&mut command, user, run);
    let signals = attended::signals()?;
    let started = |program| attended::pass_on(signals, program);
    let ended = netchan_supervise::run(&net, kernels, command, prepare, started);
    drop(net);
    attended::end_as(ended.map_err(at(program))?)
}
