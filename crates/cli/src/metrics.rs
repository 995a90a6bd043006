//! `netchan metrics`: what running stacks count, for Prometheus.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use clap::ValueEnum;
use hyper::header::{ACCEPT, HeaderMap};
use netchan::control::Stack;
use prometheus_client::{
    encoding::{prometheus_text, text},
    registry::Registry,
};

mod families;
mod serve;
#[cfg(test)]
mod tests;

use self::families::{Facts, Scrape};
use crate::{
    failure::{Failure, Outcome, failed},
    output::print,
    show::choose,
};

/// Prints what running stacks count, or serves it, for Prometheus
#[derive(clap::Args)]
#[command(
    after_help = "Every number of `netchan show counters`, `links`, `channels`, `shards`, `threads` and `memory`; docs/metrics.md lists them. A stack that does not answer has \
        netchan_stack_up 0, and the others' numbers come all the same. With --listen, GET /metrics gives them (one at a time, at most 16 connections, 10 s each).\n\n\
        Examples:\n  netchan metrics > /var/lib/prometheus/node-exporter/netchan.prom\n  netchan metrics --listen 127.0.0.1:9477\n  \
        netchan metrics --listen 0.0.0.0:9477 --token-file /etc/netchan/token"
)]
pub struct Arguments {
    /// Only this stack: its process, or PID-N where one process has several (as `netchan show` lists them)
    #[arg(long, value_name = "PID")]
    pid: Option<String>,
    /// How it is written (default: prometheus)
    #[arg(long, value_enum, conflicts_with = "listen")]
    format: Option<Format>,
    /// Serve it at this address until interrupted; what is no loopback address needs --token-file
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<SocketAddr>,
    /// A file with a token that each request must bring along (`Authorization: Bearer TOKEN`)
    #[arg(long, value_name = "FILE", requires = "listen")]
    token_file: Option<PathBuf>,
}

/// A connection's life.
const TIME: Duration = Duration::from_secs(10);

/// How metrics are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Prometheus' text format, 0.0.4
    Prometheus,
    /// OpenMetrics 1.0
    Openmetrics,
}

impl Format {
    /// What its HTTP header says.
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Self::Openmetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }

    /// OpenMetrics for those that ask for it.
    pub fn wanted(headers: &HeaderMap) -> Self {
        let accepts = headers.get_all(ACCEPT).iter();
        let mut accepts = accepts.filter_map(|value| value.to_str().ok());
        match accepts.any(|value| value.contains("application/openmetrics-text")) {
            true => Self::Openmetrics,
            false => Self::Prometheus,
        }
    }
}

/// Runs the command.
pub fn metrics(arguments: &Arguments) -> Outcome {
    let pid = arguments.pid.clone();
    if let Some(address) = arguments.listen {
        // Before the first one asks: a stack that is named and not there, say.
        if pid.is_some() {
            choose(pid.as_deref())?;
        }
        return serve::serve(
            address,
            arguments.token_file.as_deref(),
            TIME,
            move |format| {
                // None at all is no failure here: the next may come.
                let stacks = choose(pid.as_deref()).unwrap_or_default();
                page(&stacks, format)
            },
        );
    }
    let stacks = choose(pid.as_deref())?;
    print(&page(
        &stacks,
        arguments.format.unwrap_or(Format::Prometheus),
    )?)
}

/// What `stacks` count now.
///
/// # Errors
/// What the library says.
pub fn page(stacks: &[Stack], format: Format) -> Result<String, Failure> {
    let facts: Vec<Facts> = stacks.iter().map(ask).collect();
    write(&facts, format).map_err(failed)
}

/// All that one stack says. One that has not answered once is not asked again: each question would wait as long.
fn ask(stack: &Stack) -> Facts {
    let mut hello = stack.hello().ok();
    let mut topics = Vec::new();
    for topic in families::topics() {
        let rows = hello.as_ref().and_then(|_| stack.show(topic).ok());
        if rows.is_none() {
            hello = None;
        }
        topics.push((topic, rows));
    }
    Facts {
        stack: stack.id.clone(),
        topics,
        hello,
    }
}

fn write(facts: &[Facts], format: Format) -> Result<String, std::fmt::Error> {
    let mut registry = Registry::with_prefix("netchan");
    registry.register_collector(Box::new(Scrape(families::families(facts))));
    let mut page = String::new();
    match format {
        Format::Prometheus => prometheus_text::encode(&mut page, &registry)?,
        Format::Openmetrics => text::encode(&mut page, &registry)?,
    }
    Ok(page)
}
