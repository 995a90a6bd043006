//! A link of another process's, lent to this one: packets are copied out of and into its slabs.

mod ends;
mod line;
mod peers;
mod queue;

use std::{
    fs, io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::{Path, PathBuf},
    sync::Arc,
};

use netchan_base::descriptor::{Descriptor, Return};
use percore::{
    doorbell::{Doorbell, several},
    edge::{self, EdgeLayout, Which},
    own::Own,
    slab::{BorrowedSlab, MapError},
};
use proto::wire::ethernet::MacAddr;
use rustix::net::{SocketType, sockopt};

use super::{
    Lease,
    client::{Client, Leased, default_path},
    terms::{FILES, Terms},
};
use crate::{HEADER_MIN, Link, Properties, Queue};

/// The link address that packets of a lease come from, and the only neighbour that there is: "nc" in ASCII, locally administered. No frame with it
/// leaves this process.
pub const LENDER: MacAddr = MacAddr([0x02, 0x6e, 0x63, 0x00, 0x00, 0x01]);

/// What crosses the edge: a packet.
type Item = [u8; Descriptor::ENCODED];
/// And what comes back for it: a buffer.
type Back = [u8; Return::ENCODED];

/// How to open a link of another process's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Where the lender listens; [`default_path`] if `None`.
    pub path: Option<PathBuf>,
    /// Which of its links, without its kind; the only one if empty.
    pub link: String,
    /// MTU, bytes, at most the lender's; the lender's if `None`.
    pub mtu: Option<usize>,
    /// What the lender wants to hear; nothing if empty.
    pub secret: String,
    /// Most memory that the lease is to have, bytes; as much as the lender gives if `None`.
    pub memory: Option<u64>,
}

impl Options {
    fn place(&self) -> PathBuf {
        self.path.clone().unwrap_or_else(default_path)
    }
}

/// A link of another process's. The lease ends with it, or with its queue.
#[derive(Debug)]
pub struct LeasedLink {
    properties: Properties,
    leased: Arc<Leased>,
    /// As they came: the two slabs, which are mapped, the edge and its socket and that of the news, which are taken into use at the start.
    files: [Own; FILES],
    inward: BorrowedSlab,
    outward: BorrowedSlab,
    edge: EdgeLayout,
}

impl LeasedLink {
    /// Asks the lender for a lease.
    ///
    /// # Errors
    /// Each says what to do: no lender is there, it refuses, its terms are no good, a larger MTU than its own.
    pub fn open(options: &Options) -> io::Result<Self> {
        let place = options.place();
        let open = || {
            let client = Client::connect(&place)?;
            if options.path.is_none() {
                client.check_user()?;
            }
            Self::attach(client, options)
        };
        open().map_err(|e| named(&place, &e))
    }

    /// Goes on with a lease that another program asked for and left to this one ([`Link::handed_on`]). Where a third has used it, or it has
    /// ended, this program asks for one of its own.
    ///
    /// # Errors
    /// As for [`open`](Self::open), with what was wrong with the one that was left.
    pub fn adopt(handed: Vec<OwnedFd>, options: &Options) -> io::Result<Self> {
        Self::inherit(handed, options).or_else(|why| {
            Self::open(options).map_err(|e| {
                let what = format!("{e} (the inherited lease is of no use: {why})");
                io::Error::new(e.kind(), what)
            })
        })
    }

    /// A lease over a connection.
    ///
    /// # Errors
    /// As for [`open`](Self::open).
    pub fn attach(client: Client, options: &Options) -> io::Result<Self> {
        let Options {
            link,
            secret,
            memory,
            ..
        } = options;
        let (terms, files) = client.attach(link, &program(), secret, *memory)?;
        Self::over(client, &terms, files.map(Own::keep), options.mtu)
    }

    pub(super) fn inherit(handed: Vec<OwnedFd>, options: &Options) -> io::Result<Self> {
        let mut handed: Vec<Own> = handed.into_iter().map(Own::stay).collect();
        let socket = handed.pop();
        let files = <[Own; FILES]>::try_from(handed);
        let (Some(socket), Ok(files)) = (socket, files) else {
            return Err(invalid("it has another number of descriptors".into()));
        };
        let client = Client::of(socket);
        let terms = client.terms()?;
        Self::over(client, &terms, files, options.mtu)
    }

    /// The link of these terms.
    fn over(
        client: Client,
        terms: &Terms,
        files: [Own; FILES],
        mtu: Option<usize>,
    ) -> io::Result<Self> {
        let checked = (terms.check())
            .map_err(|what| invalid(format!("the daemon's terms are no good: {what}")))?;
        let mtu = mtu.unwrap_or(terms.mtu);
        if mtu > terms.mtu {
            let what = format!("mtu={mtu} is more than the daemon's {}", terms.mtu);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        let [inward, outward, edge, socket, news] = &files;
        let slab = |which, file: &Own, layout| {
            BorrowedSlab::map(file, layout).map_err(|e| unmapped(which, &e))
        };
        let inward = slab("slab of packets to this program", inward, checked.inward)?;
        let outward = slab(
            "slab of packets from this program",
            outward,
            checked.outward,
        )?;
        if edge::is_taken::<Item, Back>(edge, checked.edge).map_err(|e| unmapped("edge", &e))? {
            return Err(unmapped("edge", &MapError::Taken));
        }
        let is = |socket, kind| sockopt::socket_type(socket).ok() == Some(kind);
        for (which, is_it) in [
            ("edge has", is(socket, SocketType::STREAM)),
            ("news have", is(news, SocketType::SEQPACKET)),
        ] {
            if !is_it {
                return Err(invalid(format!(
                    "the daemon's {which} no socket of their kind"
                )));
            }
        }
        let properties = Properties {
            name: format!("daemon:{}", terms.link),
            kind: "daemon",
            mac: checked.mac,
            mtu,
            frame_max: HEADER_MIN + checked.inward.buffer_bytes() as usize, // widening: u32 to usize
            segmentation: terms.segmentation.into(),
        };
        let leased = Leased::new(client, checked.addresses, terms);
        Ok(Self {
            properties,
            leased: Arc::new(leased),
            files,
            inward,
            outward,
            edge: checked.edge,
        })
    }
}

impl Link for LeasedLink {
    fn properties(&self) -> &Properties {
        &self.properties
    }

    fn handed_on(&self) -> Vec<BorrowedFd<'_>> {
        let files = self.files.iter().map(|file| file.as_fd());
        files.chain([self.leased.as_fd()]).collect()
    }

    fn lease(&self) -> Option<Arc<dyn Lease>> {
        Some(self.leased.clone())
    }

    fn start(self: Box<Self>, _bells: &[Arc<Doorbell>]) -> io::Result<Vec<Queue>> {
        let Self {
            properties,
            leased,
            files: [_, _, file, socket, news],
            inward,
            outward,
            edge,
        } = *self;
        several::look();
        let side = edge::map(file, edge, socket, Which::Mapper);
        let side = side.map_err(|e| unmapped("edge", &e))?;
        let parts = queue::Parts {
            mac: properties.mac,
            mtu: properties.mtu,
            news,
            leased,
            inward,
            outward,
        };
        Ok(vec![queue::of(side, parts)?])
    }
}

/// What this program is called, for people.
fn program() -> String {
    let name = fs::read_to_string("/proc/self/comm").unwrap_or_default();
    name.trim().to_owned()
}

fn invalid(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

fn unmapped(which: &str, error: &MapError) -> io::Error {
    let kind = match error {
        MapError::System(error) => error.kind(),
        MapError::Taken => io::ErrorKind::AddrInUse,
        _ => io::ErrorKind::InvalidData,
    };
    io::Error::new(
        kind,
        format!("the daemon's {which} cannot be mapped: {error}"),
    )
}

fn named(place: &Path, error: &io::Error) -> io::Error {
    let what = format!("daemon:{}: {error}", place.display());
    io::Error::new(error.kind(), what)
}
