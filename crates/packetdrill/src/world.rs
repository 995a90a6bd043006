//! The world of one script: a stack turned by its caller, its virtual clock, and the cable.
//!
//! Every move in time goes through [`World::advance_to`], which stops at each timer on the way: what leaves because of one is stamped with
//! the moment at which that was due.

use std::io;

use netchan::{Clock, Net, Regime, Threads};
use proto::time::{Duration, Instant};

use crate::{
    cable::{Cable, Sent},
    settings::Settings,
};

/// Turns of the stack that one packet or timer may lead to. A stack that has work for ever is a bug; it shall not hang a test.
const TURNS_MAX: usize = 10_000;
/// The least step in time: nothing here is finer than packetdrill's stamps.
const MICROSECOND: Duration = Duration::from_micros(1);

/// The addresses that packetdrill gives the two ends unless told otherwise.
pub mod address {
    /// Ours, IPv4.
    pub const LOCAL_V4: &str = "192.168.0.1/16";
    /// The next hop to the script's end, IPv4.
    pub const GATEWAY_V4: &str = "192.168.255.254";
    /// The script's end, IPv4.
    pub const REMOTE_V4: &str = "192.0.2.1";
    /// Ours, IPv6.
    pub const LOCAL_V6: &str = "fd3d:a0b:17d6::1/48";
    /// The next hop to the script's end, IPv6.
    pub const GATEWAY_V6: &str = "fd3d:a0b:17d6:8888::1";
    /// The script's end, IPv6.
    pub const REMOTE_V6: &str = "fd3d:fa7b:d17d::1";
}

/// A stack, its time and its cable.
#[derive(Clone)]
pub struct World {
    net: Net,
    clock: Clock,
    cable: Cable,
}

impl World {
    /// A fresh stack in the time of `clock`, which must be virtual. The same settings and the same script give the same packets.
    ///
    /// # Errors
    /// As [`netchan::Builder::start`].
    pub fn start(settings: &Settings, clock: Clock) -> io::Result<Self> {
        let cable = Cable::default();
        let local_v4 = match settings.local_v4 {
            Some(address) => format!("{address}/16"),
            None => address::LOCAL_V4.to_owned(),
        };
        let net = Net::builder()
            .clock(clock.clone())
            .threads(Threads::Caller)
            .regime(Regime::Locked)
            .shards(1)
            .seed(settings.seed)
            .tcp(settings.tcp)
            .send_buffer(settings.send_buffer)
            .link_with(cable.link(settings.mtu, settings.longest, settings.trains))
            .address(&local_v4)?
            .gateway(address::GATEWAY_V4)?
            .address(address::LOCAL_V6)?
            .gateway(address::GATEWAY_V6)?
            .start()?;
        let world = Self { net, clock, cable };
        world.turn();
        Ok(world)
    }

    /// The stack.
    pub const fn net(&self) -> &Net {
        &self.net
    }

    /// Changes what connections begin with from now on, and has the stack forget its peers if that is asked for: what of `settings` may change
    /// while it runs.
    ///
    /// # Errors
    /// As [`netchan::Tcp::configure`], which takes all that is left here.
    pub fn change(&self, settings: &Settings) -> io::Result<()> {
        self.net.tcp().configure(|tcp| {
            let before = *tcp;
            *tcp = settings.tcp;
            // The memory for it was reserved at the start.
            tcp.receive_buffer = before.receive_buffer;
            tcp.receive_buffer_max = before.receive_buffer_max;
        })?;
        if settings.forget_peers {
            self.net.tcp().forget_peers();
        }
        Ok(())
    }

    /// The time now.
    pub fn now(&self) -> Instant {
        self.clock.now()
    }

    /// Turns the stack until it has nothing more to do at this moment.
    pub fn turn(&self) {
        for _ in 0..TURNS_MAX {
            if !self.net.poll() {
                return;
            }
        }
    }

    /// An IP packet arrives.
    pub fn inject(&self, packet: &[u8]) {
        self.cable.inject(packet);
        self.turn();
    }

    /// IP packets arrive, all before the stack has looked at any.
    pub fn inject_burst(&self, packets: &[Vec<u8>]) {
        for packet in packets {
            self.cable.inject(packet);
        }
        self.turn();
    }

    /// The next packet that has left, if one has.
    pub fn take(&self) -> Option<Sent> {
        self.cable.take()
    }

    /// Whether a packet has left that was not taken.
    pub fn has_packet(&self) -> bool {
        self.cable.has_packet()
    }

    /// When something will happen by time alone.
    pub fn next_event(&self) -> Option<Instant> {
        self.net.next_event()
    }

    /// Lets time pass until `at`, from timer to timer.
    pub fn advance_to(&self, at: Instant) {
        self.turn();
        while let Some(due) = self.next_event().filter(|due| *due <= at) {
            let now = self.now();
            // A timer that is due and stays so must not stop the world.
            let next = if due > now { due } else { now + MICROSECOND };
            if next > at {
                break;
            }
            self.clock.advance_to(next);
            self.turn();
        }
        self.clock.advance_to(at);
        self.turn();
    }

    /// Lets time pass until a packet leaves, at most until `limit`: whether one has.
    pub fn advance_to_packet(&self, limit: Instant) -> bool {
        self.turn();
        while !self.has_packet() {
            let now = self.now();
            let Some(due) = self.next_event().filter(|due| *due <= limit) else {
                return false;
            };
            self.advance_to(if due > now { due } else { now + MICROSECOND });
        }
        true
    }
}
