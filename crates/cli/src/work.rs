//! Parts of netchan's own that have to be processes of their own: `netchan __inner …`. Not for people.

use std::{
    ffi::OsString,
    fs,
    io::{self, Read},
    net::{SocketAddr, TcpListener},
    os::unix::process::CommandExt,
    path::PathBuf,
    process::Command,
    sync::Arc,
    thread,
    time::Duration,
};

use rustix::process::{Signal, getppid, set_parent_process_death_signal};

use crate::{
    demo::traffic,
    failure::{Outcome, at, failed},
    namespace,
    output::{print, print_json},
};

/// What to be.
#[derive(clap::Args)]
pub struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    /// Tries which namespaces and devices can be had; prints JSON.
    Probe,
    /// A server on plain `std::net` sockets: files and `PUT` over HTTP, echo, bulk both ways.
    Serve {
        #[arg(long)]
        listen: SocketAddr,
        /// Files it gives out.
        #[arg(long)]
        directory: Option<PathBuf>,
    },
    /// Removes DIRECTORY when standard input ends, that is, when the process at its other end has ended in whatever way.
    Janitor { directory: PathBuf },
    /// One job of an experiment, as JSON; prints what it came to.
    Lab { job: String },
    /// One of the two programs of an experiment; its role as JSON.
    Application { role: String },
    /// Becomes COMMAND, which is killed when the process PARENT ends.
    Child {
        parent: i32,
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<OsString>,
    },
}

/// Runs it.
pub fn inner(arguments: Arguments) -> Outcome {
    match arguments.what {
        What::Probe => print_json(&namespace::probe()),
        What::Serve { listen, directory } => serve(listen, directory),
        What::Janitor { directory } => janitor(&directory),
        What::Lab { job } => netchan_lab::child(&job)
            .map_err(failed)
            .and_then(|done| print(&format!("{done}\n"))),
        What::Application { role } => netchan_lab::application(&role).map_err(failed),
        What::Child { parent, command } => child(parent, &command),
    }
}

fn serve(listen: SocketAddr, directory: Option<PathBuf>) -> Outcome {
    let listener = TcpListener::bind(listen).map_err(at(listen))?;
    let directory = Arc::new(directory);
    loop {
        let (stream, _) = match listener.accept() {
            Ok(accepted) => accepted,
            // The peer gave up while it waited (accept(2)); anything else ends the server.
            Err(e) if e.kind() == io::ErrorKind::ConnectionAborted => continue,
            Err(e) => return Err(failed(format!("accept on {listen}: {e}"))),
        };
        let directory = directory.clone();
        thread::spawn(move || {
            let _ = stream.set_nodelay(true);
            // How a client ends is its own affair.
            let _ = traffic::serve(stream, directory.as_deref());
        });
    }
}

fn janitor(directory: &PathBuf) -> Outcome {
    let mut rest = [0; 64];
    while !matches!(io::stdin().read(&mut rest), Ok(0) | Err(_)) {}
    // A process that was killed may still be writing for a moment.
    for _ in 0..50 {
        match fs::remove_dir_all(directory) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => {
                thread::sleep(Duration::from_millis(20))
            }
            _ => break,
        }
    }
    Ok(())
}

fn child(parent: i32, command: &[OsString]) -> Outcome {
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(failed)?;
    if getppid().is_none_or(|pid| pid.as_raw_nonzero().get() != parent) {
        return Err(failed("the process that started this has ended"));
    }
    let Some((program, rest)) = command.split_first() else {
        return Err(failed("no command"));
    };
    Err(failed(format!(
        "{}: {}",
        program.display(),
        Command::new(program).args(rest).exec()
    )))
}
