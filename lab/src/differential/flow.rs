//! One connection between two stacks: what its two ends do, and whether each reads what the other wrote and ends as it has to.

use std::{
    io::{self, ErrorKind},
    net::{IpAddr, SocketAddr},
};

use proto::time::{Duration, Instant};

use super::{
    Agreed, End, OURS, Side, THEIRS,
    plan::{Ending, FlowPlan, Manners, Opening, When},
};
use crate::world::app::Reading;

/// How long a listener waits for a client that gave up.
const NO_CLIENT_COMES: Duration = Duration::from_millis(1500);

/// The byte at `offset` of a stream.
fn byte(stream: u64, offset: u64) -> u8 {
    let mixed = (offset ^ stream << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed.to_be_bytes()[0]
}

enum Stage {
    /// At the listener of this number.
    Accepting(usize),
    Connecting(Box<dyn End>),
    Open(Box<dyn End>),
    Over,
}

/// One end.
struct Half {
    manners: Manners,
    stage: Stage,
    /// What it writes, and what it reads.
    streams: (u64, u64),
    written: u64,
    read: u64,
    urgent_read: bool,
    read_at: Instant,
    stalled: bool,
    shut_at: Option<Instant>,
    ended: bool,
    error: Option<io::Error>,
    agreed: Option<Agreed>,
    over_at: Option<Instant>,
}

/// See the module's documentation.
pub struct Flow {
    plan: FlowPlan,
    halves: [Half; 2],
    room: Vec<u8>,
}

fn address(side: usize, v6: bool, port: u16) -> io::Result<SocketAddr> {
    let text = [OURS, THEIRS][side][usize::from(v6)];
    let ip: IpAddr = text
        .parse()
        .map_err(|_| io::Error::from(ErrorKind::InvalidInput))?;
    Ok(SocketAddr::new(ip, port))
}

fn not_yet(e: &io::Error) -> bool {
    e.kind() == ErrorKind::WouldBlock || e.kind() == ErrorKind::Interrupted
}

impl Flow {
    /// The flow of this number begins.
    ///
    /// # Errors
    /// What a stack says.
    pub fn new(
        plan: &FlowPlan,
        number: u16,
        sides: &mut [Box<dyn Side>; 2],
        now: Instant,
    ) -> io::Result<Self> {
        let port = |side: u16| 2_000 + 10 * number + side;
        let at = |side: u16| address(usize::from(side), plan.v6, port(side));
        let addresses = [at(0)?, at(1)?];
        let mut stage = |side: usize, connects: bool| -> io::Result<Stage> {
            let manners = &plan.ends[side];
            if connects {
                let (from, to) = (addresses[side], addresses[1 - side]);
                return Ok(Stage::Connecting(sides[side].connect(from, to, manners)?));
            }
            Ok(Stage::Accepting(
                sides[side].listen(addresses[side], manners)?,
            ))
        };
        // The listener first, or the SYN finds none.
        let stages = match plan.opening {
            Opening::Theirs => [stage(0, false)?, stage(1, true)?],
            Opening::Ours => {
                let theirs = stage(1, false)?;
                [stage(0, true)?, theirs]
            }
            Opening::Both => [stage(0, true)?, stage(1, true)?],
        };
        let stream = |side: u64| u64::from(number) * 2 + side;
        let [ours, theirs] = stages;
        let half = |side: usize, stage, streams| Half {
            manners: plan.ends[side],
            stage,
            streams,
            written: 0,
            read: 0,
            urgent_read: false,
            read_at: now,
            stalled: false,
            shut_at: None,
            ended: false,
            error: None,
            agreed: None,
            over_at: None,
        };
        Ok(Self {
            plan: plan.clone(),
            halves: [
                half(0, ours, (stream(0), stream(1))),
                half(1, theirs, (stream(1), stream(0))),
            ],
            room: vec![0; 64 << 10],
        })
    }

    /// Whether both ends are done.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.halves.iter().all(|h| matches!(h.stage, Stage::Over))
    }

    /// What netchan's end agreed on, if it came so far.
    #[must_use]
    pub fn agreed(&self) -> Option<Agreed> {
        self.halves[0].agreed
    }

    /// For a report.
    #[must_use]
    pub fn describe(&self) -> String {
        let halves: Vec<_> = self.halves.iter().map(Half::describe).collect();
        format!("{:?}\n    {}", self.plan, halves.join("\n    "))
    }

    /// Times at which an end does something, past ones among them.
    #[must_use]
    pub fn next_events(&self) -> [Instant; 4] {
        let gives_up = |half: usize| {
            let over = self.halves[1 - half].over_at;
            over.map_or(self.halves[half].gives_up_at(), |at| at + NO_CLIENT_COMES)
        };
        let reads = [0, 1].map(|half: usize| self.halves[half].read_at);
        [reads[0], reads[1], gives_up(0), gives_up(1)]
    }

    /// Both ends act; whether something moved.
    ///
    /// # Errors
    /// What went wrong, in words.
    pub fn step(&mut self, sides: &mut [Box<dyn Side>; 2], now: Instant) -> Result<bool, String> {
        let mut moved = false;
        for side in [0, 1] {
            let peer = &self.halves[1 - side];
            let peer = Peer {
                manners: peer.manners,
                over_at: peer.over_at,
            };
            let stepped =
                self.halves[side].step(&mut *sides[side], side, &peer, &mut self.room, now);
            moved |= stepped.map_err(|e| format!("{e}: {}", self.describe()))?;
        }
        Ok(moved)
    }
}

/// What an end has to know of the other.
struct Peer {
    manners: Manners,
    over_at: Option<Instant>,
}

impl Half {
    fn describe(&self) -> String {
        let stage = match self.stage {
            Stage::Accepting(_) => "accepting",
            Stage::Connecting(_) => "connecting",
            Stage::Open(_) => "open",
            Stage::Over => "over",
        };
        format!(
            "{stage}: wrote {} read {} shut {} ended {} error {:?}",
            self.written,
            self.read,
            self.shut_at.is_some(),
            self.ended,
            self.error
        )
    }

    fn gives_up_at(&self) -> Instant {
        match (self.manners.ending, self.shut_at) {
            (Ending::Abort(When::ShutFor(time)), Some(at)) => at + time,
            _ => Instant::FAR,
        }
    }

    fn step(
        &mut self,
        side: &mut dyn Side,
        number: usize,
        peer: &Peer,
        room: &mut [u8],
        now: Instant,
    ) -> Result<bool, String> {
        match &mut self.stage {
            Stage::Over => Ok(false),
            Stage::Accepting(listener) => {
                let come = side.accept(*listener).map_err(|e| format!("accept: {e}"))?;
                if let Some(end) = come {
                    self.agreed = end.agreed();
                    self.stage = Stage::Open(end);
                    return Ok(true);
                }
                if peer.over_at.is_some_and(|at| now >= at + NO_CLIENT_COMES) {
                    self.over(now);
                }
                Ok(false)
            }
            Stage::Connecting(end) => {
                if self.manners.ending == Ending::Abort(When::Connecting) {
                    end.abort();
                    self.over(now);
                    return Ok(true);
                }
                match end.connected() {
                    Ok(false) => Ok(false),
                    Ok(true) => {
                        self.agreed = end.agreed();
                        if let Stage::Connecting(end) =
                            std::mem::replace(&mut self.stage, Stage::Over)
                        {
                            self.stage = Stage::Open(end);
                        }
                        Ok(true)
                    }
                    Err(e) => self.fails(e, peer, now).map(|()| true),
                }
            }
            Stage::Open(_) => self
                .act(peer, room, now)
                .map_err(|e| format!("end {number}: {e}")),
        }
    }

    fn over(&mut self, now: Instant) {
        self.stage = Stage::Over;
        self.over_at = Some(now);
    }

    /// An error is only well if the peer gave up.
    fn fails(&mut self, error: io::Error, peer: &Peer, now: Instant) -> Result<(), String> {
        let reset = matches!(
            error.kind(),
            ErrorKind::ConnectionReset
                | ErrorKind::BrokenPipe
                | ErrorKind::ConnectionRefused
                | ErrorKind::ConnectionAborted
        );
        if !reset || !peer.manners.is_rude() || peer.over_at.is_none() {
            return Err(format!("unexpected error: {error}"));
        }
        self.error = Some(error);
        self.over(now);
        Ok(())
    }

    fn act(&mut self, peer: &Peer, room: &mut [u8], now: Instant) -> Result<bool, String> {
        if self.gives_up(now) {
            return Ok(true);
        }
        let mut moved = false;
        match self.take(peer, room, now) {
            Ok(some) => moved |= some?,
            Err(e) => return self.fails(e, peer, now).map(|()| true),
        }
        match self.put(room, now) {
            Ok(some) => moved |= some,
            Err(e) => return self.fails(e, peer, now).map(|()| true),
        }
        Ok(moved)
    }

    /// Whether it is time to be rude.
    fn gives_up(&mut self, now: Instant) -> bool {
        let Stage::Open(end) = &mut self.stage else {
            return false;
        };
        let all = self.written == self.manners.bytes;
        let due = match self.manners.ending {
            Ending::Abort(when) => match when {
                When::Connecting | When::Open => true,
                When::Written(n) => self.written >= n.min(self.manners.bytes),
                When::Shut => self.shut_at.is_some(),
                When::ShutFor(time) => self.shut_at.is_some_and(|at| now >= at + time),
                When::PeerEnded => self.ended,
                When::BothEnded => self.ended && self.shut_at.is_some(),
            },
            Ending::Close { needs } => all && self.read >= needs,
            Ending::Shut | Ending::ShutAfterPeer => false,
        };
        if !due {
            return false;
        }
        if matches!(self.manners.ending, Ending::Abort(_)) {
            end.abort();
        }
        self.over(now);
        true
    }

    /// Takes the urgent byte, if it is there and not part of the stream; whether it was.
    fn take_urgent(&mut self, peer: &Peer) -> Result<bool, String> {
        let Stage::Open(end) = &mut self.stage else {
            return Ok(false);
        };
        let Some(got) = end.read_urgent() else {
            return Ok(false);
        };
        let wanted = peer.manners.urgent.map(|at| byte(self.streams.1, at));
        if self.urgent_read || self.manners.inline || wanted != Some(got) {
            return Err(format!("urgent byte {got}, expected {wanted:?}"));
        }
        self.urgent_read = true;
        Ok(true)
    }

    /// How much it would read now; `None`: nothing yet.
    fn appetite(&mut self, now: Instant) -> Option<usize> {
        if self.ended || now < self.read_at {
            return None;
        }
        Some(match self.manners.reading {
            Reading::Eager => usize::MAX,
            Reading::Slow { bytes, every } => {
                self.read_at = now + every;
                bytes as usize
            }
            Reading::Stall { from, lasts } if self.read >= from && !self.stalled => {
                self.stalled = true;
                self.read_at = now + lasts;
                return None;
            }
            Reading::Stall { from, .. } if !self.stalled => {
                usize::try_from(from - self.read).unwrap_or(usize::MAX)
            }
            Reading::Stall { .. } => usize::MAX,
        })
    }

    /// Reads as it does.
    fn take(
        &mut self,
        peer: &Peer,
        room: &mut [u8],
        now: Instant,
    ) -> io::Result<Result<bool, String>> {
        let Some(most) = self.appetite(now) else {
            return Ok(self.take_urgent(peer));
        };
        let Stage::Open(end) = &mut self.stage else {
            return Ok(Ok(false));
        };
        let mut most = most.min(room.len());
        // A read that passes the urgent byte's place takes it away, and the byte may come between a look for it and the read: what is read was
        // there before the look. (At the end, of 0 bytes, none is to come any more.)
        match end.peek(&mut room[..most]) {
            Err(e) if not_yet(&e) => return Ok(self.take_urgent(peer)),
            Ok(0) => {}
            there => most = there?,
        }
        if let Err(e) = self.take_urgent(peer) {
            return Ok(Err(e));
        }
        let Stage::Open(end) = &mut self.stage else {
            return Ok(Ok(false));
        };
        let n = end.read(&mut room[..most])?;
        Ok(self.judge(peer, &room[..n], now).map(|()| true))
    }

    /// Whether what was read is what was written.
    fn judge(&mut self, peer: &Peer, text: &[u8], now: Instant) -> Result<(), String> {
        let skipped = peer.manners.urgent.filter(|_| !self.manners.inline);
        for got in text {
            // An urgent byte is not part of the stream.
            self.read += u64::from(Some(self.read) == skipped);
            if *got != byte(self.streams.1, self.read) || self.read >= peer.manners.bytes {
                return Err(format!("another byte at {}", self.read));
            }
            self.read += 1;
        }
        if !text.is_empty() {
            return Ok(());
        }
        self.ended = true;
        self.read += u64::from(Some(self.read) == skipped);
        if self.read != peer.manners.bytes {
            return Err(format!(
                "an end after {} of {}",
                self.read, peer.manners.bytes
            ));
        }
        if skipped.is_some() && !self.urgent_read {
            return Err("the urgent byte never came".to_owned());
        }
        self.done(now);
        Ok(())
    }

    /// Writes and ends as it does.
    fn put(&mut self, room: &mut [u8], now: Instant) -> io::Result<bool> {
        let Stage::Open(end) = &mut self.stage else {
            return Ok(false);
        };
        let (all, mut moved) = (self.manners.bytes, false);
        let urgent = self.manners.urgent.filter(|at| *at >= self.written);
        if self.written < all {
            let until = urgent.filter(|at| *at > self.written).unwrap_or(all);
            let most = usize::try_from(until - self.written).unwrap_or(usize::MAX);
            let n = most.min(self.manners.chunk).min(room.len());
            for (place, at) in room[..n].iter_mut().zip(self.written..) {
                *place = byte(self.streams.0, at);
            }
            let wrote = if urgent == Some(self.written) {
                end.write_urgent(room[0])
            } else {
                end.write(&room[..n])
            };
            match wrote {
                Err(e) if not_yet(&e) => {}
                other => {
                    self.written += other? as u64;
                    moved = true;
                }
            }
        }
        let waits = self.manners.ending == Ending::ShutAfterPeer && !self.ended;
        let closes = matches!(self.manners.ending, Ending::Close { .. });
        if self.written == all && !waits && !closes && self.shut_at.is_none() {
            end.shut()?;
            self.shut_at = Some(now);
            moved = true;
        }
        self.done(now);
        Ok(moved)
    }

    /// Closes once both directions have ended.
    fn done(&mut self, now: Instant) {
        let rude = self.manners.is_rude();
        if self.ended && self.shut_at.is_some() && !rude {
            self.over(now);
        }
    }
}
