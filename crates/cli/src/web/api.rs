//! What the page asks: each question is a name and a JSON object. Synchronous; its caller bounds how many are answered at once.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use hyper::{StatusCode, body::Bytes};
use netchan::control::Change;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use super::{
    capture,
    jobs::{self, Jobs, Kind},
    refused::Refused,
    stacks::{Row, Seen, Stacks},
};
use crate::{
    look::{
        model::{Connection, Model},
        order::{self, Order},
        walk::Walk,
    },
    output::printable,
    plot::served,
    show::Filter,
};

/// Connections that one answer has.
const CONNECTIONS_MAX: usize = 200;
/// Rows of a topic.
const ROWS_MAX: usize = 4096;
/// Of a filter, characters.
const FILTER_MAX: usize = 400;
/// How long a plot may take, seconds.
const PLOT_MAX: u64 = 60;

/// An answer.
pub enum Answer {
    Json(Bytes),
    /// A file, of this kind.
    File(&'static str, Bytes),
}

/// What answers.
pub struct Api {
    pub stacks: Arc<Stacks>,
    jobs: Jobs,
}

/// Asks what there is to see now.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Live {
    /// `None`: the first one.
    stack: Option<String>,
    #[serde(default)]
    filter: String,
    order: Order,
    reversed: bool,
}

/// What there is to see now.
#[derive(Serialize)]
struct Shown<'a> {
    stacks: &'a [Row],
    stack: Option<&'a str>,
    /// What was wrong with the last question to the stack.
    trouble: Option<String>,
    age_s: Option<f64>,
    model: Option<&'a Model>,
    connections: Vec<&'a Connection>,
    /// How many there are that the filter lets through, how many at all, and how many listen.
    chosen: usize,
    sockets: usize,
    listening: usize,
    walk: Option<&'a Walk>,
    taps: &'a [Value],
    links: &'a [String],
    jobs: Vec<jobs::Row>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Of {
    stack: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ChangeOf {
    stack: String,
    change: Change,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Plot {
    stack: String,
    local: SocketAddr,
    remote: SocketAddr,
    seconds: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Numbered {
    id: u64,
}

fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, Refused> {
    serde_json::from_slice(body).map_err(|e| Refused::bad(format!("not what is asked so: {e}")))
}

fn written(answer: &impl Serialize) -> Result<Answer, Refused> {
    let text = serde_json::to_vec(answer);
    let text = text.map_err(|e| Refused::new(StatusCode::INTERNAL_SERVER_ERROR, e))?;
    Ok(Answer::Json(text.into()))
}

impl Api {
    /// For these stacks.
    pub fn new(stacks: Arc<Stacks>) -> Self {
        Self {
            stacks,
            jobs: Jobs::default(),
        }
    }

    /// Answers the question `name`, whose object is `body`.
    ///
    /// # Errors
    /// Why not.
    pub fn answer(&self, name: &str, body: &[u8]) -> Result<Answer, Refused> {
        match name {
            "live" => self.live(&read(body)?),
            "facts" => self.facts(&read(body)?),
            "change" => self.change(&read(body)?),
            "capture" => self.capture(&read(body)?),
            "plot" => self.plot(&read(body)?),
            "jobs" => written(&json!({ "jobs": self.jobs.rows() })),
            "stop" => {
                let Numbered { id } = read(body)?;
                self.jobs.stop(id)?;
                written(&json!({}))
            }
            "forget" => {
                let Numbered { id } = read(body)?;
                self.jobs.forget(id)?;
                written(&json!({}))
            }
            "file" => self.file(&read(body)?),
            "data" => {
                let Numbered { id } = read(body)?;
                let (_, data) = self.result(id, Kind::Plot)?;
                Ok(Answer::Json(data))
            }
            _ => Err(Refused::new(StatusCode::NOT_FOUND, "no such question")),
        }
    }

    fn live(&self, asked: &Live) -> Result<Answer, Refused> {
        if asked.filter.chars().count() > FILTER_MAX {
            return Err(Refused::bad(format!(
                "filter: at most {FILTER_MAX} characters"
            )));
        }
        let words: Vec<String> = asked.filter.split_whitespace().map(str::to_owned).collect();
        let filter = Filter::parse(&words).map_err(|why| Refused::bad(format!("filter: {why}")))?;
        let rows = self.stacks.rows();
        let stack = match &asked.stack {
            Some(id) => Some(self.stacks.find(id)?),
            None => self.stacks.all().into_iter().next(),
        };
        let (seen, trouble) = stack.as_ref().map_or((None, None), |s| self.stacks.look(s));
        let seen = seen.as_deref();
        let sockets = seen.map_or(&[][..], |seen| &seen.sockets[..]);
        let mut chosen = order::chosen(sockets, &filter, asked.order, asked.reversed);
        let count = chosen.len();
        chosen.truncate(CONNECTIONS_MAX);
        written(&Shown {
            stacks: &rows,
            stack: stack.as_ref().map(|stack| stack.id.as_str()),
            trouble,
            age_s: seen.map(Seen::age_s),
            model: seen.map(|seen| &seen.model),
            connections: chosen,
            chosen: count,
            sockets: sockets.len(),
            listening: sockets.iter().filter(|s| s.state == "LISTEN").count(),
            walk: seen.map(|seen| &seen.walk),
            taps: seen.map_or(&[][..], |seen| &seen.taps[..]),
            links: seen.map_or(&[][..], |seen| &seen.links[..]),
            jobs: self.jobs.rows(),
        })
    }

    /// What changes rarely: it is asked for by itself.
    fn facts(&self, asked: &Of) -> Result<Answer, Refused> {
        let stack = self.stacks.find(&asked.stack)?;
        let topic = |topic: &str| -> Result<Value, Refused> {
            let mut facts = stack.show(topic)?;
            if let Some(rows) = facts.as_array_mut() {
                rows.truncate(ROWS_MAX);
            }
            Ok(facts)
        };
        written(&json!({
            "settings": topic("settings")?, "links": topic("links")?, "addresses": topic("addresses")?,
            "routes": topic("routes")?, "modules": topic("modules")?,
        }))
    }

    fn change(&self, asked: &ChangeOf) -> Result<Answer, Refused> {
        match asked.change {
            Change::AddAddress { .. }
            | Change::RemoveAddress { .. }
            | Change::AddRoute { .. }
            | Change::RemoveRoute { .. }
            | Change::Set { .. }
            | Change::UnloadModule { .. } => {}
            // Their rules may lie in files.
            Change::LoadModule { .. } | Change::ReplaceModule { .. } => {
                let why = "modules are loaded and replaced with `netchan module`";
                return Err(Refused::new(StatusCode::FORBIDDEN, why));
            }
        }
        let done = self.stacks.find(&asked.stack)?.change(&asked.change)?;
        written(&json!({ "done": printable(&done) }))
    }

    fn capture(&self, asked: &capture::Ask) -> Result<Answer, Refused> {
        let stack = self.stacks.find(&asked.stack)?;
        let (request, bounds) = asked.request()?;
        let id = stack.id.clone();
        let work = move |job: &jobs::Job| capture::take(&stack, &request, bounds, job);
        let id = self.jobs.start(Kind::Capture, &id, asked.about(), work)?;
        written(&json!({ "id": id }))
    }

    fn plot(&self, asked: &Plot) -> Result<Answer, Refused> {
        let stack = self.stacks.find(&asked.stack)?;
        if !(1..=PLOT_MAX).contains(&asked.seconds) {
            return Err(Refused::bad(format!("seconds: want 1 to {PLOT_MAX}")));
        }
        let (ends, time) = (
            (asked.local, asked.remote),
            Duration::from_secs(asked.seconds),
        );
        let about = format!("{}-{}", asked.local, asked.remote);
        let id = stack.id.clone();
        let work = move |job: &jobs::Job| {
            served::data(&stack, ends, time, &|| job.is_stopped()).map(Bytes::from)
        };
        let id = self.jobs.start(Kind::Plot, &id, about, work)?;
        written(&json!({ "id": id }))
    }

    /// What a job has left, as a file to keep.
    fn file(&self, asked: &Numbered) -> Result<Answer, Refused> {
        let (job, bytes) = self.jobs.result(asked.id)?;
        match job.kind {
            Kind::Capture => Ok(Answer::File("application/x-pcapng", bytes)),
            Kind::Plot => {
                let data = std::str::from_utf8(&bytes).unwrap_or_default();
                let page = served::of_data(data);
                Ok(Answer::File("text/html; charset=utf-8", page.into()))
            }
        }
    }

    fn result(&self, id: u64, kind: Kind) -> Result<(Arc<jobs::Job>, Bytes), Refused> {
        let (job, bytes) = self.jobs.result(id)?;
        match job.kind == kind {
            true => Ok((job, bytes)),
            false => Err(Refused::bad("it is of another kind")),
        }
    }
}

#[cfg(test)]
#[path = "api_tests.rs"]
mod tests;
