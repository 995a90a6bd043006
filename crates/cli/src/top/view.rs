//! What the user chose to see: section, order, filter, pace.

use std::time::Duration;

use crate::{
    look::{
        model::{Connection, Model},
        order::{self, Order},
    },
    show::Filter,
};

/// Paces that `+` and `-` go through.
const PACES: [Duration; 8] = [
    Duration::from_millis(200),
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(5),
    Duration::from_secs(10),
    Duration::from_secs(30),
    Duration::from_secs(60),
];

/// A part of the screen that can have all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Section {
    Cores,
    Threads,
    Channels,
    Drops,
    Connections,
}

impl Section {
    /// In the order of the screen, and of the keys 1 to 5.
    pub const ALL: [Self; 5] = [
        Self::Cores,
        Self::Threads,
        Self::Channels,
        Self::Drops,
        Self::Connections,
    ];

    /// What stands above it.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Cores => "Cores",
            Self::Threads => "Threads",
            Self::Channels => "Channels",
            Self::Drops => "Drops",
            Self::Connections => "Connections",
        }
    }
}

/// A filter that is being typed.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Draft {
    pub text: String,
    /// What is wrong with it.
    pub wrong: Option<String>,
}

/// What the user chose.
#[derive(Debug)]
pub struct View {
    /// The one that has the whole screen.
    pub enlarged: Option<Section>,
    pub order: Order,
    pub is_reversed: bool,
    pub filter: Filter,
    /// The filter's words.
    pub words: String,
    pub draft: Option<Draft>,
    pub is_paused: bool,
    pub pace: Duration,
    pub has_help: bool,
    /// Rows passed over, in the enlarged section or among the connections.
    pub passed: usize,
}

impl View {
    /// As it begins.
    pub fn new(pace: Duration, order: Order, filter: Filter, words: String) -> Self {
        Self {
            enlarged: None,
            order,
            is_reversed: false,
            filter,
            words,
            draft: None,
            is_paused: false,
            pace,
            has_help: false,
            passed: 0,
        }
    }

    /// The sockets that are wanted, in order.
    pub fn chosen<'a>(&self, model: &'a Model) -> Vec<&'a Connection> {
        order::chosen(&model.sockets, &self.filter, self.order, self.is_reversed)
    }

    /// Chooses the next order.
    pub fn reorder(&mut self) {
        self.order = self.order.next();
        self.passed = 0;
    }

    /// The section behind this one; behind the last all of them.
    pub fn turn(&mut self, forward: bool) {
        let all = Section::ALL;
        let at = self
            .enlarged
            .and_then(|section| all.iter().position(|s| *s == section));
        self.enlarged = match (at, forward) {
            (None, true) => Some(all[0]),
            (None, false) => Some(all[all.len() - 1]),
            (Some(at), true) => all.get(at + 1).copied(),
            (Some(at), false) => at.checked_sub(1).map(|at| all[at]),
        };
        self.passed = 0;
    }

    /// Gives a section the screen, or takes it back.
    pub fn enlarge(&mut self, section: Section) {
        self.enlarged = (self.enlarged != Some(section)).then_some(section);
        self.passed = 0;
    }

    /// The next pace, a slower or a quicker one.
    pub fn change_pace(&mut self, slower: bool) {
        let next = match slower {
            true => PACES.iter().find(|pace| **pace > self.pace),
            false => PACES.iter().rfind(|pace| **pace < self.pace),
        };
        self.pace = next.copied().unwrap_or(self.pace);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view() -> View {
        View::new(
            Duration::from_secs(1),
            Order::Rate,
            Filter::default(),
            String::new(),
        )
    }

    fn socket(remote: &str, bits: f64, rtt_us: u64) -> Connection {
        Connection {
            protocol: "tcp".to_owned(),
            state: "ESTAB".to_owned(),
            local: "10.0.0.1:80".to_owned(),
            remote: Some(remote.to_owned()),
            in_bits_per_s: Some(bits),
            rtt_us: Some(rtt_us),
            ..Connection::default()
        }
    }

    fn remotes(view: &View, model: &Model) -> Vec<String> {
        let chosen = view.chosen(model).into_iter();
        chosen.filter_map(|s| s.remote.clone()).collect()
    }

    #[test]
    fn connections_are_ordered_and_filtered() {
        let mut model = Model {
            sockets: vec![
                socket("10.0.0.9:1", 5.0, 9),
                socket("10.0.0.8:2", 50.0, 1),
                socket("10.0.0.7:3", 5.0, 20),
            ],
            ..Model::default()
        };
        model.sockets.push(Connection {
            state: "LISTEN".to_owned(),
            local: "0.0.0.0:80".to_owned(),
            ..Connection::default()
        });
        model.sockets.push(Connection {
            state: "TIME-WAIT".to_owned(),
            ..socket("10.0.0.6:4", 0.0, 0)
        });
        let mut view = view();
        let by_rate = ["10.0.0.8:2", "10.0.0.7:3", "10.0.0.9:1"];
        assert_eq!(remotes(&view, &model), by_rate);
        view.is_reversed = true;
        let upward = ["10.0.0.9:1", "10.0.0.7:3", "10.0.0.8:2"];
        assert_eq!(remotes(&view, &model), upward);
        (view.is_reversed, view.order) = (false, Order::Rtt);
        let by_rtt = ["10.0.0.7:3", "10.0.0.9:1", "10.0.0.8:2"];
        assert_eq!(remotes(&view, &model), by_rtt);
        view.filter = Filter::parse(&["dport = :4".to_owned()]).unwrap();
        assert_eq!(remotes(&view, &model), ["10.0.0.6:4"]);
        view.filter = Filter::parse(&["state listening".to_owned()]).unwrap();
        assert_eq!(view.chosen(&model)[0].local, "0.0.0.0:80");
    }

    #[test]
    fn orders_sections_and_paces_go_round_or_end() {
        let mut view = view();
        for _ in 0..Order::ALL.len() {
            view.reorder();
        }
        assert_eq!(view.order, Order::Rate);
        let mut seen = Vec::new();
        for _ in 0..6 {
            view.turn(true);
            seen.push(view.enlarged);
        }
        let mut all: Vec<_> = Section::ALL.map(Some).into();
        all.push(None);
        assert_eq!(seen, all);
        view.turn(false);
        assert_eq!(view.enlarged, Some(Section::Connections));
        for _ in 0..20 {
            view.change_pace(true);
        }
        assert_eq!(view.pace, PACES[7]);
        view.pace = Duration::from_secs(3);
        view.change_pace(false);
        assert_eq!(view.pace, Duration::from_secs(2));
        for _ in 0..20 {
            view.change_pace(false);
        }
        assert_eq!(view.pace, PACES[0]);
    }
}
