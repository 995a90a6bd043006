//! The TAP: an Ethernet whose other end is this host's kernel (`/dev/net/tun`).
//!
//! Our end has a MAC address of its own, different from the kernel's end. With `offload` the kernel hands over TCP segments
//! as its own TCP made them, up to 64 KiB, and datagrams merged by their sender (since Linux 6.2), and leaves out checksums that nothing
//! on the way could break.

mod holder;
mod queue;

use std::{
    io::{self, ErrorKind},
    net::IpAddr,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::Arc,
    time::Duration,
};

use percore::{doorbell::Doorbell, own::Own};
use proto::wire::ethernet::MacAddr;
use rustix::fs::{Mode, OFlags};

use self::holder::Holder;
use super::{
    FRAME_OVERHEAD, IP_MAX, Link, Properties, Queue, Segmentation, mac, netlink,
    specification::names, sys, virtio,
};

/// How long to wait for the kernel to take an address into use, milliseconds. It takes one or two.
const SETTLE_MS_MAX: u32 = 500;

/// Frames dropped from a TAP's queue before its first use; it holds 1,000 unless that was changed (`txqueuelen`).
const STALE_MAX: usize = 100_000;

/// How to open a TAP.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// MTU to set, bytes; what the device has if `None`.
    pub mtu: Option<usize>,
    /// Our address on it; derived from the name and the kernel's address if `None`.
    pub mac: Option<MacAddr>,
    /// Whether not to take merged segments and unfinished checksums.
    pub plain: bool,
    /// Addresses for the kernel's end.
    pub peers: Vec<(IpAddr, u8)>,
    /// Queues: the kernel gives what belongs to a flow to the queue by which it last heard of the flow. One if `None`.
    pub queues: Option<usize>,
}

impl Options {
    const fn attachment(&self) -> sys::Attachment {
        sys::Attachment {
            vnet_header: !self.plain,
            several: matches!(self.queues, Some(2..)),
        }
    }
}

/// A TAP, held open. One that did not exist before goes away with it.
#[derive(Debug)]
pub struct Tap {
    /// An end for each queue.
    tuns: Vec<Own>,
    properties: Properties,
    /// Whether each frame has a [`virtio`] header before it.
    header: bool,
}

impl Tap {
    /// Opens the TAP `name` (the kernel chooses `nc0`, `nc1`, … where it is empty), makes it if need be, and brings its
    /// kernel end up.
    ///
    /// # Errors
    /// Each says what to do: no permission, no `/dev/net/tun`, busy, a bad name, a refused MTU or address. A keeper's TAP is waited for, up to 6 s.
    pub fn open(name: &str, options: &Options) -> io::Result<Self> {
        names::interface(name).map_err(|what| invalid(name, &what))?;
        let wanted = if name.is_empty() { "nc%d" } else { name };
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let device = || Ok(rustix::fs::open("/dev/net/tun", flags, Mode::empty())?);
        let attach = |name: &str| {
            let tun = Own::<OwnedFd>::open(device).map_err(explain_device)?;
            let attached = holder::after_keeper(name, || {
                sys::tap_attach(tun.as_fd(), name, options.attachment())
            });
            let name = attached.map_err(|e| explain_attach(wanted, e))?;
            Ok::<_, io::Error>((tun, name))
        };
        let (first, name) = attach(wanted)?;
        let mut tuns = vec![first];
        for _ in 1..options.queues.unwrap_or(1) {
            tuns.push(attach(&name)?.0);
        }
        let kernel = configure(&name, options)?;
        Self::over(tuns, &name, options, kernel)
    }

    /// Goes on with a TAP that another process opened as these options say, without a right of its own. What waits in it is dropped: it came
    /// while nothing answered.
    ///
    /// # Errors
    /// When `tuns` are not what they should be, or their device is not to be seen.
    pub fn adopt(tuns: Vec<OwnedFd>, name: &str, options: &Options) -> io::Result<Self> {
        let mut found = name.to_owned();
        for tun in &tuns {
            let (name, how) = sys::tap_attached(tun.as_fd())
                .map_err(|e| explain(&found, "what was handed over is no TAP", e))?;
            if (!found.is_empty() && found != name) || how != options.attachment() {
                let what = format!("what was handed over is tap:{name}, opened in another way");
                return Err(invalid(&found, &what));
            }
            found = name;
            rustix::fs::fcntl_setfl(tun, OFlags::RDWR | OFlags::NONBLOCK)?;
        }
        let kernel = find(&found)?;
        let tuns = tuns.into_iter().map(Own::stay).collect();
        let tap = Self::over(tuns, &found, options, kernel)?;
        tap.drain();
        Ok(tap)
    }

    /// The link on ends that are attached; `kernel` is the other side.
    fn over(
        tuns: Vec<Own>,
        name: &str,
        options: &Options,
        kernel: netlink::Interface,
    ) -> io::Result<Self> {
        let mut segmentation = Segmentation::None;
        if !options.plain {
            let datagrams = take_offloads(&tuns, true)
                .map_err(|e| explain(name, "cannot take offloads (offload=off does without)", e))?;
            segmentation = Segmentation::Offloaded { datagrams };
        }
        let mtu = options.mtu.unwrap_or(kernel.mtu);
        let longest = if options.plain { mtu } else { IP_MAX };
        let header = header_len(!options.plain);
        let properties = Properties {
            mac: options
                .mac
                .unwrap_or_else(|| mac::derive(&[b"tap", name.as_bytes(), &kernel.mac.0])),
            name: format!("tap:{name}"),
            kind: "tap",
            mtu,
            frame_max: frame_max(header, longest),
            segmentation,
        };
        if properties.mac == kernel.mac {
            return Err(invalid(
                name,
                &format!(
                    "mac={} is the address of the kernel's end; ours must differ",
                    properties.mac
                ),
            ));
        }
        Ok(Self {
            tuns,
            properties,
            header: !options.plain,
        })
    }

    /// Drops what waits, at most as much as a long queue holds.
    fn drain(&self) {
        for tun in &self.tuns {
            for _ in 0..STALE_MAX {
                if rustix::io::read(tun, &mut [0; 64][..]).is_err() {
                    break;
                }
            }
        }
    }
}

/// They are the device's: one end says it for all. Whether datagrams are among them.
fn take_offloads(tuns: &[Own], take: bool) -> io::Result<bool> {
    let first = tuns.first().ok_or(ErrorKind::InvalidInput)?;
    sys::tap_take_offloads(first.as_fd(), take)
}

impl Link for Tap {
    fn properties(&self) -> &Properties {
        &self.properties
    }

    fn for_forwarding(&mut self) -> io::Result<()> {
        if !self.header {
            return Ok(());
        }
        take_offloads(&self.tuns, false)
            .map_err(|e| explain(&self.properties.name, "cannot do without offloads", e))?;
        self.properties.frame_max = frame_max(header_len(true), self.properties.mtu);
        Ok(())
    }

    fn handed_on(&self) -> Vec<BorrowedFd<'_>> {
        self.tuns.iter().map(|tun| tun.as_fd()).collect()
    }

    fn queues(&self) -> usize {
        self.tuns.len()
    }

    /// Ends for which there is no bell are detached: the kernel gives no frame to those.
    fn start(self: Box<Self>, bells: &[Arc<Doorbell>]) -> io::Result<Vec<Queue>> {
        let Self {
            tuns,
            properties,
            header,
        } = *self;
        let used = tuns.into_iter().take(bells.len());
        Ok(used
            .map(|tun| queue::of(Arc::new(tun), &properties, header))
            .collect())
    }
}

/// Bytes before each frame.
const fn header_len(header: bool) -> usize {
    if header { virtio::LEN } else { 0 }
}

/// Bytes of a buffer for IP packets of up to `longest`: one more, to notice a frame that is longer still.
const fn frame_max(header: usize, longest: usize) -> usize {
    header + longest + FRAME_OVERHEAD + 1
}

/// Does to the kernel's end what the options ask for; what it is then.
fn configure(name: &str, options: &Options) -> io::Result<netlink::Interface> {
    let kernel = find(name)?;
    if let Some(mtu) = options.mtu.filter(|&mtu| mtu != kernel.mtu) {
        netlink::set_mtu(kernel.index, mtu)
            .map_err(|e| explain(name, &format!("mtu={mtu} refused"), e))?;
    }
    if !kernel.up {
        match netlink::bring_up(kernel.index) {
            // A device made for this user: its maker brings it up. Without that no frame passes, but none is refused.
            Err(e) if e.kind() == ErrorKind::PermissionDenied && options.peers.is_empty() => {}
            done => done.map_err(|e| explain(name, "cannot bring the kernel's end up", e))?,
        }
    }
    for &(address, prefix) in &options.peers {
        netlink::add_address(kernel.index, address, prefix).map_err(|e| {
            explain(
                name,
                &format!("cannot give the kernel's end the address {address}/{prefix}"),
                e,
            )
        })?;
    }
    // The first question to the kernel's end shall not go unanswered, which would cost its asker a second.
    for _ in 0..SETTLE_MS_MAX {
        let usable = |&(address, _): &(IpAddr, u8)| match address {
            IpAddr::V4(_) => true,
            IpAddr::V6(address) => netlink::is_usable(address).unwrap_or(true),
        };
        if options.peers.iter().all(usable) {
            break;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    find(name)
}

/// The kernel's end.
fn find(name: &str) -> io::Result<netlink::Interface> {
    netlink::find(name)
        .and_then(|found| found.ok_or_else(|| io::Error::from_raw_os_error(libc::ENODEV)))
        .map_err(|e| explain(name, "cannot look at the device", e))
}

fn invalid(name: &str, what: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidInput, format!("tap:{name}: {what}"))
}

fn explain(name: &str, what: &str, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("tap:{name}: {what}: {error}"))
}

/// Why `/dev/net/tun` does not open.
fn explain_device(error: io::Error) -> io::Error {
    let what = match error.kind() {
        ErrorKind::NotFound => {
            "there is no /dev/net/tun: the kernel has no TUN/TAP (`modprobe tun`), or this container was not given the device"
        }
        ErrorKind::PermissionDenied => {
            "may not open /dev/net/tun: its permissions, or the rules of this container, keep this user out"
        }
        _ => "cannot open /dev/net/tun",
    };
    io::Error::new(error.kind(), format!("tap: {what}: {error}"))
}

/// Why the kernel does not give us the device.
fn explain_attach(name: &str, error: io::Error) -> io::Error {
    let busy;
    let what = match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => {
            "not permitted: making a TAP needs CAP_NET_ADMIN (root, or a user namespace: `unshare -Urn`); or have one made \
             for this user: `ip tuntap add dev NAME mode tap user USER`"
        }
        Some(libc::EBUSY) => {
            let holder = Holder::of(name).map(|holder| holder.to_string());
            busy = format!(
                "busy: {} holds it, a virtual machine or a second stack on the same TAP; each needs its own",
                holder.as_deref().unwrap_or("another program")
            );
            &busy
        }
        Some(libc::EINVAL) => {
            "there is an interface of this name that is no TAP, or one with several queues where this asks for one, or the other way round \
             (`queues=2`, `ip tuntap add dev NAME mode tap multi_queue`)"
        }
        _ => "the kernel refuses it",
    };
    explain(name, what, error)
}
