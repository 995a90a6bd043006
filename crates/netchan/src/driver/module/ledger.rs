//! A ledger: packets and bytes of each peer, both ways. It really needs Giant: its accounts are plain cells, without an atomic or a lock
//! of their own, and therefore not `Sync`; the compiler refuses it as a module of concurrency `any`:
//!
//! ```compile_fail,E0277
//! use netchan::driver::module::{Boxed, ledger::Ledger};
//! let refused = Boxed::any(Ledger::new("ledger", 16));
//! ```

use std::{cell::Cell, net::IpAddr};

use proto::{ip::keyed::Seed, time::Instant};

use super::{Module, Point, Verdict, View};

/// Accounts, unless it says otherwise: 64 KiB.
pub const PEERS: usize = 1024;
/// Most accounts.
pub const PEERS_MAX: usize = 1 << 20;
/// Places where a peer's account may lie; where all are others', it goes to the account of the rest.
const WAYS: usize = 8;

/// What one peer sent and got.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// The peer; `None`: an unused account, or that of all peers that found no place.
    pub peer: Option<IpAddr>,
    /// Packets from it, and their bytes from the IP header on.
    pub received: (u64, u64),
    /// Packets to it.
    pub sent: (u64, u64),
}

/// The ledger.
#[derive(Debug)]
pub struct Ledger {
    name: String,
    accounts: Vec<Cell<Account>>,
    rest: Cell<Account>,
    key: Seed,
}

impl Ledger {
    /// A ledger called `name` with accounts for `peers` peers, rounded up to a power of two, at most [`PEERS_MAX`].
    pub fn new(name: impl Into<String>, peers: usize) -> Self {
        let peers = peers.clamp(WAYS, PEERS_MAX).next_power_of_two();
        // Without randomness the places can be aimed at; a peer that does so finds itself in the account of the rest.
        let random = || crate::sys::random_u64().unwrap_or(0);
        Self {
            name: name.into(),
            accounts: vec![Cell::default(); peers],
            rest: Cell::default(),
            key: Seed([random(), random()]),
        }
    }

    fn account(&self, peer: IpAddr) -> &Cell<Account> {
        #[allow(clippy::cast_possible_truncation)] // the mask keeps fewer bits than a usize has
        let hash = self.key.hash_ip(peer) as usize;
        let at = |way: usize| &self.accounts[(hash + way) & (self.accounts.len() - 1)];
        let own = (0..WAYS).map(at).find(|cell| {
            let owner = cell.get().peer;
            owner.is_none() || owner == Some(peer)
        });
        let Some(cell) = own else { return &self.rest };
        cell.set(Account {
            peer: Some(peer),
            ..cell.get()
        });
        cell
    }

    /// All accounts in use, the largest (by bytes) first; last the one of the rest, if it was needed.
    pub fn accounts(&self) -> Vec<Account> {
        let mut all: Vec<_> = self
            .accounts
            .iter()
            .map(Cell::get)
            .filter(|a| a.peer.is_some())
            .collect();
        all.sort_by_key(|a| std::cmp::Reverse(a.received.1 + a.sent.1));
        let rest = self.rest.get();
        if rest != Account::default() {
            all.push(rest);
        }
        all
    }
}

impl Module for Ledger {
    fn name(&self) -> &str {
        &self.name
    }
    fn points(&self) -> &[Point] {
        &[Point::In, Point::Out]
    }
    fn packet(&self, point: Point, packet: &View<'_>, _now: Instant) -> Verdict {
        let is_in = point == Point::In;
        let cell = self.account(if is_in {
            packet.source()
        } else {
            packet.destination()
        });
        // Read, added to, written back: two threads at once would lose packets. Giant sees to it that there is one.
        let mut account = cell.get();
        let (packets, bytes) = if is_in {
            &mut account.received
        } else {
            &mut account.sent
        };
        *packets += 1;
        *bytes += packet.len() as u64;
        cell.set(account);
        Verdict::Pass
    }
    fn describe(&self) -> String {
        let all = self.accounts();
        let mut text = format!("{} accounts", all.len());
        for account in all.iter().take(3) {
            let peer = account
                .peer
                .map_or("the rest".to_owned(), |ip| ip.to_string());
            let ((packets_in, bytes_in), (packets_out, bytes_out)) =
                (account.received, account.sent);
            text.push_str(&format!(
                "; {peer}: {packets_in} packets {bytes_in} B in, {packets_out} packets {bytes_out} B out"
            ));
        }
        text
    }
}
