//! What applications with leases send (C4): taken from their channels, copied, checked, and sent as a shard's packets are.

mod check;
mod flows;
mod groups;

use std::{io, mem::MaybeUninit, sync::Arc};

use percore::{doorbell::Doorbell, own::Own};
use proto::{
    time::{Duration, Instant},
    wire::tcp::Flags,
};
use rustix::event::{Timespec, epoll};

use self::{
    check::{Cast, Rights},
    flows::Flows,
};
use super::Interface;
use crate::{
    channel::{Form, LeaseSource, PacketProtocol, Taken},
    counters::Counter,
    flow::{Closed, FlowKey},
    link::{
        BURST,
        lease::{Binding, PortRange, covers},
    },
    packet::Packet,
    tap::Begins,
};

/// How long the bells of leases that sleep are left alone by a thread that does not.
const LOOK: Duration = Duration::from_micros(50);

/// Bells that one look hears; those beyond are heard by the next.
const HEARD: usize = 64;

/// The leases of an interface. Those that have sent lately are polled each turn; the others sleep: their bells are armed, and lie in one set.
#[derive(Debug, Default)]
pub struct Leases {
    /// The awake ones first.
    all: Vec<Leased>,
    /// How many are awake.
    awake: usize,
    /// Where the next turn begins: behind the one that took the last place of a full link.
    first: usize,
    /// The set of bells (epoll(7)); made with the first lease.
    bells: Option<Arc<Own>>,
    /// When it is looked at again.
    look_at: Instant,
    /// The link's thread's.
    thread: Option<Arc<Doorbell>>,
}

#[derive(Debug)]
struct Leased {
    source: LeaseSource,
    rights: Rights,
    flows: Flows,
}

impl Leases {
    fn place(&self, lease: u64) -> Option<usize> {
        let is = |leased: &Leased| leased.source.core().number == lease;
        self.all.iter().position(is)
    }

    fn of(&mut self, lease: u64) -> Option<&mut Leased> {
        let place = self.place(lease)?;
        self.all.get_mut(place)
    }

    /// The set of bells, readable when one of those that sleep has something.
    ///
    /// # Errors
    /// epoll_create(2)'s.
    pub fn bells(&mut self) -> io::Result<Arc<Own>> {
        if let Some(bells) = &self.bells {
            return Ok(bells.clone());
        }
        let made = Own::open(|| Ok(epoll::create(epoll::CreateFlags::CLOEXEC)?))?;
        Ok(self.bells.insert(Arc::new(made)).clone())
    }

    /// One more lease; awake.
    ///
    /// # Errors
    /// epoll_ctl(2)'s.
    pub fn add(&mut self, source: LeaseSource) -> io::Result<()> {
        let bells = self.bells()?;
        // Edge-triggered: an application that hangs up, or writes what it likes, is heard once each time.
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        let number = epoll::EventData::new_u64(source.core().number);
        epoll::add(&*bells, source.fd(), number, flags)?;
        self.all.push(Leased {
            source,
            rights: Rights::default(),
            flows: Flows::default(),
        });
        let last = self.all.len() - 1;
        self.all.swap(self.awake, last);
        self.awake += 1;
        Ok(())
    }

    /// A lease has ended.
    fn remove(&mut self, lease: u64) -> Option<Leased> {
        let place = self.place(lease)?;
        let place = self.put_to_sleep(place);
        self.first = 0;
        Some(self.all.swap_remove(place))
    }

    /// Counts the lease at `place` among those that sleep; where it is then.
    fn put_to_sleep(&mut self, place: usize) -> usize {
        if place >= self.awake {
            return place;
        }
        self.awake -= 1;
        self.all.swap(place, self.awake);
        self.awake
    }

    /// A lease has a port from now on.
    pub fn bind(&mut self, lease: u64, binding: &Binding) {
        if let Some(leased) = self.of(lease) {
            leased.rights.ports.bind(binding);
        }
    }

    /// A lease has a port no more.
    pub fn unbind(&mut self, lease: u64, binding: &Binding) {
        if let Some(leased) = self.of(lease) {
            leased.rights.ports.unbind(binding);
        }
    }

    /// Adds the TCP connections that a lease has at a port to `found`, as far as its packets tell, and as one look below the place `below` goes; where the next
    /// one goes on.
    pub fn flows_at(
        &mut self,
        (lease, binding): (u64, &Binding),
        below: usize,
        found: &mut Vec<FlowKey>,
    ) -> usize {
        let (ip, port) = (binding.address.ip(), binding.address.port());
        let Some(leased) = self.of(lease) else {
            return 0;
        };
        leased.flows.look(below, |key| {
            if key.local_port == port && covers(ip, key.local) {
                found.push(*key);
            }
        })
    }

    /// A lease's connections were closed in order: their peers hear nothing of its end.
    pub fn over(&mut self, lease: u64) {
        if let Some(leased) = self.of(lease) {
            leased.flows.over();
        }
    }

    /// A lease has the packets of a protocol from now on.
    pub fn add_protocol(&mut self, lease: u64, protocol: PacketProtocol) {
        if let Some(leased) = self.of(lease) {
            leased.rights.protocols.insert(protocol);
        }
    }

    /// A lease has these ports of all protocols.
    pub fn add_ports(&mut self, lease: u64, ports: PortRange) {
        if let Some(leased) = self.of(lease) {
            leased.rights.ports.add_ports(ports);
        }
    }

    /// A lease shares the loopback addresses from now on.
    pub fn share_loopback(&mut self, lease: u64) {
        if let Some(leased) = self.of(lease) {
            leased.rights.ports.share_loopback();
        }
    }

    /// Whether there is none.
    pub const fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Puts to sleep those that have nothing; whether all do.
    fn arm(&mut self) -> bool {
        for place in (0..self.awake).rev() {
            let source = &mut self.all[place].source;
            source.arm();
            if source.has_packets() {
                source.disarm();
            } else {
                self.put_to_sleep(place);
            }
        }
        self.look_at = Instant::ZERO;
        self.awake == 0
    }

    /// Wakes the leases that have rung.
    #[cold]
    fn hear(&mut self, now: Instant) {
        self.look_at = now + LOOK;
        let Some(bells) = &self.bells else {
            return;
        };
        let mut events = [MaybeUninit::<epoll::Event>::uninit(); HEARD];
        let heard = epoll::wait(&**bells, &mut events[..], Some(&Timespec::default()));
        let Ok((heard, _)) = heard else {
            return;
        };
        // They ring no more. Where this is another thread, the link's may sleep, and the set says nothing any more.
        if !heard.is_empty()
            && let Some(thread) = &self.thread
        {
            thread.ring();
        }
        for event in heard {
            let Some(place) = self.place(event.data.u64()) else {
                continue;
            };
            if place >= self.awake {
                self.all[place].source.disarm();
                self.all.swap(place, self.awake);
                self.awake += 1;
            }
        }
    }
}

impl Interface {
    /// The thread that turns the link is about to sleep, and can be called by `thread`: whether it may. What comes from now on from leases rings; what they have already,
    /// has to wait where the link is full.
    pub fn arm_leases(&mut self, thread: &Arc<Doorbell>) -> bool {
        self.leases.thread.get_or_insert_with(|| thread.clone());
        self.leases.arm() || self.room() == 0
    }

    /// Connections that a lease has closed in order, as far as its packets tell: where some go past us, those to other hosts only.
    pub fn closed_of(&mut self, lease: u64, now: Instant) -> Vec<Closed> {
        let Some(leased) = self.leases.of(lease) else {
            return Vec::new();
        };
        let goes_past_us = leased.source.core().pairs.read() > 0;
        let net = &self.host.net;
        let all = leased.flows.closed(now);
        all.filter(|closed| !goes_past_us || !net.is_local(closed.key.remote))
            .collect()
    }

    /// A lease has ended. The peers of its connections hear of it.
    pub fn end_lease(&mut self, lease: u64, now: Instant) {
        let Some(Leased { source, flows, .. }) = self.leases.remove(lease) else {
            return;
        };
        let goes_past_us = source.core().pairs.read() > 0;
        for (number, (key, mut reset)) in flows.resets().enumerate() {
            if goes_past_us && self.host.net.is_local(key.remote) {
                // What was sent by a short cut is not known here. To a SYN a connection answers whatever its state is (RFC 5961 §4), and to that our TCP.
                reset.flags = Flags::SYN;
            }
            self.say_reset(&reset, (key.local, key.remote), now);
            // There are more of them than the host has buffers.
            if number % BURST == BURST - 1
                && let Err(error) = self.flush(now)
            {
                self.link_failed(&error);
            }
        }
    }

    /// lease ──► check ──► modules ──► link: what applications have to send, of each at most a burst. How many packets were taken.
    #[inline(never)]
    pub fn transmit_leased(&mut self, now: Instant) -> usize {
        let mut leases = std::mem::take(&mut self.leases);
        if leases.awake < leases.all.len() && now >= leases.look_at {
            leases.hear(now);
        }
        let first = leases.first.min(leases.awake);
        let (later, sooner) = leases.all[..leases.awake].split_at_mut(first);
        let (mut taken, mut next) = (0, 0);
        for (number, leased) in (first + 1..).zip(sooner).chain((1..).zip(later)) {
            if self.room() == 0 {
                next = number - 1; // it got nothing: it is its turn next
                break;
            }
            taken += self.transmit_of(leased, now);
        }
        leases.first = next;
        self.leases = leases;
        taken
    }

    fn transmit_of(&mut self, leased: &mut Leased, now: Instant) -> usize {
        let (mut taken, mut wants_buffers) = (0, false);
        while taken < BURST.min(self.room()) {
            match leased.source.take(&mut wants_buffers) {
                Taken::Nothing => break,
                Taken::Nonsense => self.count(Counter::LeaseNonsense),
                Taken::Packet(packet, Form::Ip) => self.send_leased(leased, packet, now),
                Taken::Packet(frame, Form::Frame) => self.send_leased_frame(leased, frame),
            }
            taken += 1;
        }
        if taken > 0 {
            leased.source.flush(wants_buffers);
        }
        taken
    }

    /// *check*, and what follows it.
    fn send_leased(&mut self, leased: &mut Leased, mut packet: Packet, now: Instant) {
        let core = leased.source.core().clone();
        let facts = self.facts();
        let link = (facts.mtu, facts.segmentation);
        let may = (leased.rights).check(&mut packet, (&self.host.net, self.number), link);
        let Ok(cast) = may else {
            core.refused.add(1);
            return self.count_lost(Counter::DropCheck, &packet, Begins::Own);
        };
        leased.flows.note(&packet, now);
        core.packets_out.add(1);
        self.count(Counter::LeaseOut);
        if !self.screen(&mut packet, now) {
            return;
        }
        match cast {
            Cast::One => self.send(packet, now),
            Cast::Many { hops } => self.send_to_many(leased, packet, hops, now),
        }
    }

    /// *check* of a frame, which modules do not see. It leaves with a header of our own.
    #[cold]
    fn send_leased_frame(&mut self, leased: &Leased, mut frame: Packet) {
        let core = leased.source.core();
        let facts = self.facts();
        let checked = (leased.rights).check_frame(&mut frame, facts.mac, facts.mtu);
        let Ok((destination, kind)) = checked else {
            core.refused.add(1);
            return self.count_lost(Counter::DropCheck, &frame, Begins::Frame);
        };
        core.packets_out.add(1);
        self.count(Counter::LeaseOut);
        self.frame_of(kind, destination, frame);
    }
}
