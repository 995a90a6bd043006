//! A link that writes down what passes another one, both directions, as pcapng with nanoseconds.
//!
//! For looking at single links, in tests and when something is wrong: the file is written in the link's own thread. A file
//! that can be written no longer (a full disk) ends the capture, with a line on the standard error, and never harms a packet.

use std::{
    borrow::Cow,
    collections::VecDeque,
    fmt,
    fs::{File, Permissions},
    io::{self, BufWriter, Write},
    mem,
    os::{
        fd::{AsFd, BorrowedFd},
        unix::fs::{MetadataExt, PermissionsExt},
    },
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, UNIX_EPOCH},
};

use netchan_base::{Concurrency, clock::Clock, locks, packet::Packet};
use pcap_file::{
    DataLink,
    pcapng::{
        Block, PcapNgWriter,
        blocks::{
            enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption},
            interface_description::{
                InterfaceDescriptionBlock, InterfaceDescriptionOption, InterfaceTsResolution,
            },
        },
    },
};
use percore::{
    doorbell::Doorbell,
    lock::{Mutex, mutex},
    own::Own,
    slab::Slab,
};
use proto::time::Instant;
use rustix::{
    fs::{Mode, OFlags},
    io::Errno,
};

use crate::{
    BURST, Link, LinkError, LinkRx, LinkTx, Properties, Queue, RxStatistics, TxStatistics,
    lease::Lease,
};

/// How long at most something lies here before it is in the file.
const FLUSH: Duration = Duration::from_millis(100);

/// epb_flags of pcapng: which way a packet went.
#[derive(Clone, Copy, Debug)]
enum Way {
    In = 1,
    Out = 2,
}

/// A link and the file that records it.
pub struct Capture {
    link: Box<dyn Link>,
    recorder: Recorder,
}

impl fmt::Debug for Capture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Capture({}, {:?})",
            self.link.properties().name,
            self.recorder
        )
    }
}

impl Capture {
    /// Records what passes `link` in `file`, which is made or emptied, and only its owner's to read: packets hold passwords. `clock` is the one
    /// whose moments the link is given; the stamps in the file are wall-clock time, or with a virtual clock its own time from 1970 on.
    ///
    /// # Errors
    /// When the file cannot be made, or is a symbolic link or one file of several names, which another user may have laid there; the error names it.
    pub fn new(link: Box<dyn Link>, file: &Path, clock: &Clock) -> io::Result<Self> {
        let recorder = create(file)
            .and_then(|opened| Recorder::new(link.properties(), opened, true, file, clock))
            .map_err(|e| named(file, &e))?;
        Ok(Self { link, recorder })
    }

    /// Goes on in a file that another process opened in this way, of the same link.
    ///
    /// # Errors
    /// As for [`Self::new`].
    pub fn adopt(
        link: Box<dyn Link>,
        opened: File,
        file: &Path,
        clock: &Clock,
    ) -> io::Result<Self> {
        let recorder = Recorder::new(link.properties(), opened, false, file, clock)
            .map_err(|e| named(file, &e))?;
        Ok(Self { link, recorder })
    }
}

impl Link for Capture {
    fn properties(&self) -> &Properties {
        self.link.properties()
    }

    fn for_forwarding(&mut self) -> io::Result<()> {
        self.link.for_forwarding()
    }

    fn handed_on(&self) -> Vec<BorrowedFd<'_>> {
        let file = self.recorder.writer.get_ref().get_ref().file.as_fd();
        std::iter::once(file).chain(self.link.handed_on()).collect()
    }

    fn concurrency(&self) -> Concurrency {
        self.link.concurrency()
    }

    fn lease(&self) -> Option<Arc<dyn Lease>> {
        self.link.lease()
    }

    fn queues(&self) -> usize {
        self.link.queues()
    }

    fn start(self: Box<Self>, bells: &[Arc<Doorbell>]) -> io::Result<Vec<Queue>> {
        let frame_max = self.link.properties().frame_max;
        let Self { link, recorder } = *self;
        let recorder = Arc::new(mutex(&locks::CAPTURE, Some(recorder)));
        let recorded = |queue: Queue| Queue {
            rx: Box::new(Rx {
                link: queue.rx,
                recorder: recorder.clone(),
            }),
            tx: Box::new(Tx {
                link: queue.tx,
                recorder: recorder.clone(),
                burst: VecDeque::with_capacity(BURST),
                bytes: Vec::with_capacity(BURST * frame_max),
                ends: Vec::with_capacity(BURST),
            }),
        };
        Ok(link.start(bells)?.into_iter().map(recorded).collect())
    }
}

/// What both halves write to, until its first error.
type Shared = Arc<Mutex<Option<Recorder>>>;

/// Does something with the file; the first error is the last.
fn record(recorder: &mut Option<Recorder>, write: impl FnOnce(&mut Recorder) -> io::Result<()>) {
    let Some(open) = recorder else {
        return;
    };
    if let Err(e) = write(open) {
        tracing::error!(
            target: "netchan::link",
            file = %open.file.display(),
            "the capture in {} ends here: {e}",
            open.file.display()
        );
        // What is buffered would meet the same error when dropped.
        *recorder = None;
    }
}

struct Rx {
    link: Box<dyn LinkRx>,
    recorder: Shared,
}

impl LinkRx for Rx {
    fn receive(
        &mut self,
        now: Instant,
        slab: &mut Slab,
        burst: &mut VecDeque<Packet>,
        max: usize,
    ) -> Result<usize, LinkError> {
        let before = burst.len();
        let n = self.link.receive(now, slab, burst, max);
        record(&mut self.recorder.lock(), |recorder| {
            burst
                .iter()
                .skip(before)
                .try_for_each(|packet| recorder.write(now, Way::In, packet.bytes()))?;
            recorder.flush_if_due(now)
        });
        n
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.link.fd()
    }

    fn next_event(&mut self) -> Instant {
        let flush = match &*self.recorder.lock() {
            Some(recorder) => recorder.flush_at,
            None => Instant::FAR,
        };
        self.link.next_event().min(flush)
    }

    fn statistics(&self) -> RxStatistics {
        self.link.statistics()
    }
}

struct Tx {
    link: Box<dyn LinkTx>,
    recorder: Shared,
    /// Frames on their way to the link: a burst at a time.
    burst: VecDeque<Packet>,
    /// Their bytes, one after the other, and where each ends: a link takes a frame away, and only what it takes is recorded.
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl LinkTx for Tx {
    fn transmit(
        &mut self,
        now: Instant,
        frames: &mut VecDeque<Packet>,
    ) -> Result<usize, LinkError> {
        // Held while the link takes them: an answer is not recorded before its question.
        let mut recorder = self.recorder.lock();
        if recorder.is_none() {
            return self.link.transmit(now, frames);
        }
        let mut total = 0;
        while !frames.is_empty() {
            self.bytes.clear();
            self.ends.clear();
            self.burst.extend(frames.drain(..frames.len().min(BURST)));
            for packet in &self.burst {
                self.bytes.extend_from_slice(packet.bytes());
                self.ends.push(self.bytes.len());
            }
            let taken = self.link.transmit(now, &mut self.burst);
            let full = !self.burst.is_empty();
            while let Some(left) = self.burst.pop_back() {
                frames.push_front(left);
            }
            let n = taken.as_ref().map_or(0, |&n| n);
            let (bytes, ends) = (&self.bytes, &self.ends);
            record(&mut recorder, |recorder| {
                let starts = std::iter::once(0).chain(ends.iter().copied());
                starts.zip(ends).take(n).try_for_each(|(start, &end)| {
                    recorder.write(now, Way::Out, bytes.get(start..end).unwrap_or_default())
                })
            });
            total += taken?;
            if full {
                break;
            }
        }
        Ok(total)
    }

    fn statistics(&self) -> TxStatistics {
        self.link.statistics()
    }
}

/// The file.
struct Recorder {
    file: PathBuf,
    writer: PcapNgWriter<BufWriter<Gate>>,
    /// Added to a moment of the stack's clock to make it wall-clock time.
    epoch: Duration,
    /// Whether the file is awaited in the time of this clock.
    real: bool,
    /// When what lies here is to be in the file.
    flush_at: Instant,
    /// The packet's options, kept for the next one so that none is allocated for each.
    options: Vec<EnhancedPacketOption<'static>>,
}

/// A file whose header is written only where it is new.
struct Gate {
    file: Own<File>,
    open: bool,
}

impl Write for Gate {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.open {
            self.file.write(bytes)
        } else {
            Ok(bytes.len())
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn named(file: &Path, e: &io::Error) -> io::Error {
    io::Error::new(e.kind(), format!("capture={}: {e}", file.display()))
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Recorder({})", self.file.display())
    }
}

/// Makes or empties the file.
fn create(file: &Path) -> io::Result<File> {
    // NONBLOCK: a FIFO that nothing reads would keep the program from its start, for ever.
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let flags = flags | OFlags::NONBLOCK;
    let opened = rustix::fs::open(file, flags, Mode::RUSR | Mode::WUSR).map_err(|e| match e {
        Errno::LOOP => io::Error::other("is a symbolic link; name the file itself"),
        Errno::NXIO => {
            io::Error::other("is a FIFO that nothing reads, or no file: start its reader first")
        }
        e => e.into(),
    })?;
    // But what is written waits for its reader.
    let rest = rustix::fs::fcntl_getfl(&opened)?.difference(OFlags::NONBLOCK);
    rustix::fs::fcntl_setfl(&opened, rest)?;
    let opened = File::from(opened);
    let found = opened.metadata()?;
    if found.is_file() {
        if found.nlink() > 1 {
            return Err(io::Error::other("is a file of several names (hard links)"));
        }
        opened.set_permissions(Permissions::from_mode(0o600))?;
        opened.set_len(0)?;
    }
    Ok(opened)
}

/// What the format's library says, as what the file said where it was that.
fn error(e: &(dyn std::error::Error + 'static)) -> io::Error {
    let mut source = Some(e);
    while let Some(e) = source {
        if let Some(e) = e.downcast_ref::<io::Error>() {
            return io::Error::new(e.kind(), e.to_string());
        }
        source = e.source();
    }
    io::Error::other(e.to_string())
}

impl Recorder {
    fn new(
        properties: &Properties,
        opened: File,
        fresh: bool,
        file: &Path,
        clock: &Clock,
    ) -> io::Result<Self> {
        let gate = Gate {
            file: Own::keep(opened),
            open: fresh,
        };
        let writer = BufWriter::with_capacity(256 << 10, gate);
        let mut writer = PcapNgWriter::new(writer).map_err(|e| error(&e))?;
        let interface = InterfaceDescriptionBlock {
            linktype: DataLink::ETHERNET,
            snaplen: 0,
            options: vec![
                InterfaceDescriptionOption::IfName(Cow::Borrowed(&properties.name)),
                InterfaceDescriptionOption::IfMacAddr(Cow::Borrowed(&properties.mac.0)),
                InterfaceDescriptionOption::IfTsResol(InterfaceTsResolution::NANO),
            ],
        };
        writer
            .write_pcapng_block(interface)
            .map_err(|e| error(&e))?;
        writer.get_mut().flush()?;
        writer.get_mut().get_mut().open = true;
        let real = matches!(clock, Clock::Real);
        Ok(Self {
            file: file.to_owned(),
            writer,
            epoch: if real {
                wall_clock().saturating_sub(Duration::from_nanos(clock.now().0))
            } else {
                Duration::ZERO
            },
            real,
            flush_at: Instant::FAR,
            options: Vec::with_capacity(1),
        })
    }

    fn write(&mut self, now: Instant, way: Way, bytes: &[u8]) -> io::Result<()> {
        let mut options = mem::take(&mut self.options);
        options.clear();
        options.push(EnhancedPacketOption::Flags(way as u32));
        let block = Block::EnhancedPacket(EnhancedPacketBlock {
            interface_id: 0,
            timestamp: self.epoch + Duration::from_nanos(now.0),
            original_len: u32::try_from(bytes.len()).unwrap_or(u32::MAX),
            data: Cow::Borrowed(bytes),
            options,
        });
        let written = self.writer.write_block(&block).map_err(|e| error(&e));
        if let Block::EnhancedPacket(block) = block {
            // The only option is a number: it borrows nothing.
            self.options = block.options.into_iter().filter_map(flags).collect();
        }
        written?;
        if self.real && self.flush_at == Instant::FAR {
            self.flush_at = now + FLUSH;
        }
        Ok(())
    }

    fn flush_if_due(&mut self, now: Instant) -> io::Result<()> {
        if self.flush_at <= now {
            self.flush_at = Instant::FAR;
            self.writer.get_mut().flush()?;
        }
        Ok(())
    }
}

/// The option without the block's lifetime. (`collect` reuses the vector's memory.)
fn flags(option: EnhancedPacketOption<'_>) -> Option<EnhancedPacketOption<'static>> {
    match option {
        EnhancedPacketOption::Flags(flags) => Some(EnhancedPacketOption::Flags(flags)),
        _ => None,
    }
}

/// Time since 1970: what the file format wants.
#[allow(clippy::disallowed_methods)] // the one place of a link where wall-clock time is asked for
fn wall_clock() -> Duration {
    std::time::SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
}
