//! The kernel's calls that no safe wrapper has: the one room of this crate where unsafe stands.

use std::{
    io::{self, IoSlice, IoSliceMut},
    os::fd::{AsRawFd, BorrowedFd},
    ptr,
};

use percore::raw;

use super::BURST;

/// What TUNSETIFF takes and gives (`struct ifreq` with its flags; 40 bytes on every 64-bit Linux).
#[repr(C)]
struct InterfaceRequest {
    name: [u8; libc::IFNAMSIZ],
    flags: libc::c_short,
    rest: [u8; 22],
}

impl InterfaceRequest {
    /// Up to its first zero.
    fn name(&self) -> String {
        let name = self.name.split(|&b| b == 0).next().unwrap_or_default();
        String::from_utf8_lossy(name).into_owned()
    }
}

const _: () = assert!(size_of::<InterfaceRequest>() == size_of::<libc::ifreq>());

/// The number of `fd`, as a system call takes it.
fn number(fd: BorrowedFd<'_>) -> usize {
    fd.as_raw_fd().cast_unsigned() as usize
}

/// What ioctl(2) is asked for, as a system call takes it.
fn request_code(request: libc::c_ulong) -> usize {
    usize::from_ne_bytes(request.to_ne_bytes()) // a C long is a register wide on Linux
}

/// An address, as a system call takes it: the kernel may read and write there.
fn at<T>(value: &mut T) -> usize {
    ptr::from_mut(value).expose_provenance()
}

/// How a TAP is attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attachment {
    /// Frames have a virtio header.
    pub vnet_header: bool,
    /// The TAP may have several ends, a queue each.
    pub several: bool,
}

/// Makes the descriptor of `/dev/net/tun` an end of the TAP `name`, which may end in `%d` for the kernel to fill; the name it has.
pub fn tap_attach(tun: BorrowedFd<'_>, name: &str, how: Attachment) -> io::Result<String> {
    let mut flags = libc::IFF_TAP | libc::IFF_NO_PI;
    if how.vnet_header {
        flags |= libc::IFF_VNET_HDR;
    }
    if how.several {
        flags |= libc::IFF_MULTI_QUEUE;
    }
    let mut request = InterfaceRequest {
        name: [0; libc::IFNAMSIZ],
        flags: libc::c_short::try_from(flags).map_err(|_| io::ErrorKind::InvalidInput)?,
        rest: [0; 22],
    };
    // One byte stays zero: the kernel wants the end of a C string.
    let room = request
        .name
        .get_mut(..name.len())
        .filter(|_| name.len() < libc::IFNAMSIZ);
    room.ok_or(io::ErrorKind::InvalidInput)?
        .copy_from_slice(name.as_bytes());
    // SAFETY: TUNSETIFF reads and writes one `struct ifreq`, which `request` is by layout and size, and keeps no pointer to it.
    let arguments = [
        number(tun),
        request_code(libc::TUNSETIFF),
        at(&mut request),
        0,
        0,
        0,
    ];
    // SAFETY: as said.
    unsafe { raw::call(libc::SYS_ioctl, arguments) }?;
    Ok(request.name())
}

/// The TAP that a descriptor is an end of: its name, and how it is. `InvalidInput` for any other descriptor.
pub fn tap_attached(tun: BorrowedFd<'_>) -> io::Result<(String, Attachment)> {
    let mut request = InterfaceRequest {
        name: [0; libc::IFNAMSIZ],
        flags: 0,
        rest: [0; 22],
    };
    let arguments = [
        number(tun),
        request_code(libc::TUNGETIFF),
        at(&mut request),
        0,
        0,
        0,
    ];
    // SAFETY: TUNGETIFF writes one `struct ifreq`, which `request` is by layout and size, and keeps no pointer to it. Its number has its size in it:
    // no other device takes it for a call of its own.
    unsafe { raw::call(libc::SYS_ioctl, arguments) }?;
    let flags = libc::c_int::from(request.flags);
    if flags & libc::IFF_TAP == 0 {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let how = Attachment {
        vnet_header: flags & libc::IFF_VNET_HDR != 0,
        several: flags & libc::IFF_MULTI_QUEUE != 0,
    };
    Ok((request.name(), how))
}

/// Tells the kernel whether this end takes frames whose checksum is still to be filled in, and segments not yet cut to the MTU: TCP's, and
/// datagrams too where it knows these (since Linux 6.2), in which case it takes them of us as well. Whether it does.
pub fn tap_take_offloads(tun: BorrowedFd<'_>, take: bool) -> io::Result<bool> {
    const DATAGRAMS: libc::c_uint = 0x20 | 0x40; // TUN_F_USO4, TUN_F_USO6
    let segments = libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6 | libc::TUN_F_TSO_ECN;
    let set = |offloads: libc::c_uint| {
        let request = request_code(libc::TUNSETOFFLOAD);
        let arguments = [number(tun), request, offloads as usize, 0, 0, 0];
        // SAFETY: TUNSETOFFLOAD takes its argument by value.
        unsafe { raw::call(libc::SYS_ioctl, arguments) }.map(|_| ())
    };
    if !take {
        return set(0).map(|()| false);
    }
    // An older kernel refuses what it does not know.
    match set(segments | DATAGRAMS) {
        Ok(()) => Ok(true),
        Err(_) => set(segments).map(|()| false),
    }
}

/// Sets a socket option that is one C value.
fn set_option<T>(
    socket: BorrowedFd<'_>,
    level: libc::c_int,
    option: libc::c_int,
    value: &T,
) -> io::Result<()> {
    let (level, option) = (level.cast_unsigned(), option.cast_unsigned());
    let value_at = ptr::from_ref(value).expose_provenance();
    let arguments = [
        number(socket),
        level as usize,
        option as usize,
        value_at,
        size_of::<T>(),
        0,
    ];
    // SAFETY: the kernel reads as many bytes at `value` as it has, and it outlives the call.
    unsafe { raw::call(libc::SYS_setsockopt, arguments) }.map(|_| ())
}

/// Switches a packet socket's option on (packet(7)).
pub fn packet_switch_on(socket: BorrowedFd<'_>, option: libc::c_int) -> io::Result<()> {
    set_option(socket, libc::SOL_PACKET, option, &1)
}

/// Joins what `kind` names (PACKET_MR_PROMISC, PACKET_MR_ALLMULTI) on an interface, until the socket is closed.
pub fn packet_join(socket: BorrowedFd<'_>, interface: u32, kind: libc::c_int) -> io::Result<()> {
    let request = libc::packet_mreq {
        mr_ifindex: index(interface)?,
        mr_type: libc::c_ushort::try_from(kind).map_err(|_| io::ErrorKind::InvalidInput)?,
        mr_alen: 0,
        mr_address: [0; 8],
    };
    set_option(
        socket,
        libc::SOL_PACKET,
        libc::PACKET_ADD_MEMBERSHIP,
        &request,
    )
}

/// One instruction of the classic packet filter (bpf(4)): code, jump if true, jump if false, operand.
pub type Instruction = (u16, u8, u8, u32);

/// Lets through only what `program` accepts.
pub fn attach_filter(socket: BorrowedFd<'_>, program: &[Instruction]) -> io::Result<()> {
    let mut program: Vec<libc::sock_filter> = program
        .iter()
        .map(|&(code, jt, jf, k)| libc::sock_filter { code, jt, jf, k })
        .collect();
    let filter = libc::sock_fprog {
        len: libc::c_ushort::try_from(program.len()).map_err(|_| io::ErrorKind::InvalidInput)?,
        filter: program.as_mut_ptr(),
    };
    // The kernel copies the program before the call returns.
    set_option(socket, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &filter)
}

fn index(interface: u32) -> io::Result<libc::c_int> {
    libc::c_int::try_from(interface).map_err(|_| io::ErrorKind::InvalidInput.into())
}

const ADDRESS_LEN: usize = size_of::<libc::sockaddr_ll>();

fn link_address() -> libc::sockaddr_ll {
    libc::sockaddr_ll {
        sll_family: libc::c_ushort::try_from(libc::AF_PACKET).unwrap_or(17),
        sll_protocol: 0,
        sll_ifindex: 0,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    }
}

/// Binds a packet socket to an interface, for frames of every protocol.
pub fn packet_bind(socket: BorrowedFd<'_>, interface: u32) -> io::Result<()> {
    let mut address = link_address();
    address.sll_protocol = libc::c_ushort::try_from(libc::ETH_P_ALL)
        .unwrap_or(3)
        .to_be();
    address.sll_ifindex = index(interface)?;
    let arguments = [number(socket), at(&mut address), ADDRESS_LEN, 0, 0, 0];
    // SAFETY: the kernel reads that many bytes at `address`, which is that long and outlives the call.
    unsafe { raw::call(libc::SYS_bind, arguments) }.map(|_| ())
}

/// Makes a bound packet socket the only member that the group `id` of its interface can have (PACKET_FANOUT, since Linux 5.11 with a limit):
/// what other sockets can find out is taken as long as this one is open anywhere. False: another one is.
pub fn packet_claim(socket: BorrowedFd<'_>, id: u16) -> io::Result<bool> {
    // A group deals frames out to its members; by processor costs least, where there is one.
    let kind = u16::try_from(libc::PACKET_FANOUT_CPU).map_err(|_| io::ErrorKind::InvalidInput)?;
    // `struct fanout_args`: both halves of the first word, in the order of its bytes, then the most members.
    let word = u32::from(kind) << 16 | u32::from(id);
    match set_option(socket, libc::SOL_PACKET, libc::PACKET_FANOUT, &[word, 1]) {
        Err(e) if e.raw_os_error() == Some(libc::ENOSPC) => Ok(false),
        done => done.map(|()| true),
    }
}

/// Makes a bound packet socket a member of a group to which the kernel deals frames out by their flows (PACKET_FANOUT_HASH): of the group `id`,
/// or of a new one. The group's number.
pub fn packet_deal(socket: BorrowedFd<'_>, id: Option<u16>) -> io::Result<u16> {
    let kind = match id {
        Some(_) => libc::PACKET_FANOUT_HASH,
        None => libc::PACKET_FANOUT_HASH | libc::PACKET_FANOUT_FLAG_UNIQUEID,
    };
    let kind = u16::try_from(kind).map_err(|_| io::ErrorKind::InvalidInput)?;
    let word = u32::from(kind) << 16 | u32::from(id.unwrap_or(0));
    set_option(socket, libc::SOL_PACKET, libc::PACKET_FANOUT, &word)?;
    let mut word = 0_u32;
    let mut len =
        libc::socklen_t::try_from(size_of_val(&word)).map_err(|_| io::ErrorKind::InvalidInput)?;
    let (level, option) = (
        libc::SOL_PACKET.cast_unsigned(),
        libc::PACKET_FANOUT.cast_unsigned(),
    );
    let (value, size) = (at(&mut word), at(&mut len));
    let arguments = [
        number(socket),
        level as usize,
        option as usize,
        value,
        size,
        0,
    ];
    // SAFETY: the kernel writes at most `len` bytes at `word`, which has as many, and then `len`.
    unsafe { raw::call(libc::SYS_getsockopt, arguments) }?;
    u16::try_from(word & 0xffff).map_err(|_| io::ErrorKind::InvalidData.into())
}

/// The interface that a packet socket is bound to; negative or 0 where there is none any more. `InvalidInput` for any other socket.
pub fn packet_interface(socket: BorrowedFd<'_>) -> io::Result<i32> {
    let mut address = link_address();
    let mut len =
        libc::socklen_t::try_from(ADDRESS_LEN).map_err(|_| io::ErrorKind::InvalidInput)?;
    let arguments = [number(socket), at(&mut address), at(&mut len), 0, 0, 0];
    // SAFETY: the kernel writes at most `len` bytes at `address`, which is that long, and then `len`.
    unsafe { raw::call(libc::SYS_getsockname, arguments) }?;
    if libc::c_int::from(address.sll_family) != libc::AF_PACKET {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    Ok(address.sll_ifindex)
}

/// Whether the interface that a packet socket was bound to still exists.
pub fn packet_is_bound(socket: BorrowedFd<'_>) -> io::Result<bool> {
    // af_packet.c sets it to -1 when the interface is unregistered.
    Ok(packet_interface(socket)? > 0)
}

/// The program that [`attach_filter`] attached, if it has `N` instructions.
pub fn attached_filter<const N: usize>(
    socket: BorrowedFd<'_>,
) -> io::Result<Option<[Instruction; N]>> {
    const EMPTY: libc::sock_filter = libc::sock_filter {
        code: 0,
        jt: 0,
        jf: 0,
        k: 0,
    };
    let mut program = [EMPTY; N];
    // SO_GET_FILTER counts instructions, not bytes (net/core/filter.c, sk_get_filter).
    let mut len = libc::socklen_t::try_from(N).map_err(|_| io::ErrorKind::InvalidInput)?;
    let level = libc::SOL_SOCKET.cast_unsigned() as usize;
    let option = libc::SO_ATTACH_FILTER.cast_unsigned() as usize;
    let (value, size) = (at(&mut program), at(&mut len));
    let arguments = [number(socket), level, option, value, size, 0];
    // SAFETY: the kernel writes at most `len` instructions at `program`, which has as many, and then `len`.
    unsafe { raw::call(libc::SYS_getsockopt, arguments) }?;
    let whole = usize::try_from(len) == Ok(N);
    Ok(whole.then(|| program.map(|i| (i.code, i.jt, i.jf, i.k))))
}

/// Frames that a packet socket had no room for since the last time this was asked.
pub fn packet_drops(socket: BorrowedFd<'_>) -> io::Result<u32> {
    let mut counts = libc::tpacket_stats {
        tp_packets: 0,
        tp_drops: 0,
    };
    let mut len =
        libc::socklen_t::try_from(size_of_val(&counts)).map_err(|_| io::ErrorKind::InvalidInput)?;
    let level = libc::SOL_PACKET.cast_unsigned() as usize;
    let option = libc::PACKET_STATISTICS.cast_unsigned() as usize;
    let (value, size) = (at(&mut counts), at(&mut len));
    let arguments = [number(socket), level, option, value, size, 0];
    // SAFETY: the kernel writes at most `len` bytes at `counts`, which is that long, and then `len`.
    unsafe { raw::call(libc::SYS_getsockopt, arguments) }?;
    Ok(counts.tp_drops)
}

/// What came with a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// Bytes written to its buffer.
    pub len: usize,
    /// Whether it was longer than its buffer.
    pub cut: bool,
    /// The VLAN tag that the kernel took out of it: protocol and control information.
    pub vlan: Option<(u16, u16)>,
}

/// Room for one `tpacket_auxdata` with its `cmsghdr`, aligned as the kernel wants it.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
struct Control([u8; 40]);

impl Control {
    /// The tag in the auxiliary data, read by offset (`struct cmsghdr`: 16 bytes; `struct tpacket_auxdata`: 20).
    fn vlan(&self, len: usize) -> Option<(u16, u16)> {
        const TPID_ETHERNET: u16 = 0x8100;
        let bytes = self.0.get(..len.min(40))?;
        let int = |at: usize| {
            bytes
                .get(at..at + 4)?
                .try_into()
                .ok()
                .map(u32::from_ne_bytes)
        };
        let short = |at: usize| {
            bytes
                .get(at..at + 2)?
                .try_into()
                .ok()
                .map(u16::from_ne_bytes)
        };
        let kind = (int(8)?, int(12)?);
        if kind
            != (
                libc::SOL_PACKET.cast_unsigned(),
                libc::PACKET_AUXDATA.cast_unsigned(),
            )
        {
            return None;
        }
        let status = int(16)?;
        let tag = (short(34)?, short(32)?);
        match (
            status & libc::TP_STATUS_VLAN_VALID,
            status & libc::TP_STATUS_VLAN_TPID_VALID,
        ) {
            (0, _) => None,
            (_, 0) => Some((TPID_ETHERNET, tag.1)),
            _ => Some(tag),
        }
    }
}

/// Messages without names, vectors or control data.
fn empty_messages() -> [libc::mmsghdr; BURST] {
    // SAFETY: `mmsghdr` is integers and pointers; all zero is an empty message.
    unsafe { std::mem::zeroed() }
}

/// recvmmsg(2) without waiting: one frame into each of `buffers` (at most [`BURST`] count); how many came, each described in `received`.
pub fn receive_many(
    socket: BorrowedFd<'_>,
    buffers: &mut [IoSliceMut<'_>],
    received: &mut [Received; BURST],
) -> io::Result<usize> {
    let mut messages = empty_messages();
    let mut controls = [Control([0; 40]); BURST];
    let mut count = 0;
    for ((message, control), buffer) in messages.iter_mut().zip(&mut controls).zip(buffers) {
        // `IoSliceMut` has the layout of `iovec`: std says so.
        message.msg_hdr.msg_iov = std::ptr::from_mut(buffer).cast();
        message.msg_hdr.msg_iovlen = 1;
        message.msg_hdr.msg_control = std::ptr::from_mut(control).cast();
        message.msg_hdr.msg_controllen = size_of::<Control>();
        count += 1;
    }
    let flags = libc::MSG_DONTWAIT.cast_unsigned() as usize;
    let arguments = [number(socket), at(&mut messages), count, flags, 0, 0];
    // SAFETY: the first `count` messages point to one vector each, which describes memory borrowed for writing until the
    // end of this function, and to control data of the length given, which lives as long. No timeout.
    let n = unsafe { raw::call(libc::SYS_recvmmsg, arguments) }?;
    for (what, (message, control)) in received
        .iter_mut()
        .zip(messages.iter().zip(&controls))
        .take(n)
    {
        *what = Received {
            len: usize::try_from(message.msg_len).unwrap_or(0),
            cut: message.msg_hdr.msg_flags & libc::MSG_TRUNC != 0,
            vlan: control.vlan(message.msg_hdr.msg_controllen),
        };
    }
    Ok(n)
}

/// sendmmsg(2) without waiting: the header and then the bytes of each of `frames` (the first [`BURST`] of them); how many went.
pub fn send_many<'a, const N: usize>(
    socket: BorrowedFd<'_>,
    frames: impl Iterator<Item = ([u8; N], &'a [u8])>,
) -> io::Result<usize> {
    let mut messages = empty_messages();
    let mut headers = [[0; N]; BURST];
    let mut vectors = [[IoSlice::new(&[]); 2]; BURST];
    let mut count = 0;
    let places = messages.iter_mut().zip(&mut vectors).zip(&mut headers);
    for (((message, vector), header), (first, frame)) in places.zip(frames) {
        *header = first;
        *vector = [IoSlice::new(header), IoSlice::new(frame)];
        // `IoSlice` has the layout of `iovec`: std says so. The kernel only reads what it describes.
        message.msg_hdr.msg_iov = vector.as_mut_ptr().cast();
        message.msg_hdr.msg_iovlen = vector.len();
        count += 1;
    }
    let flags = (libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL).cast_unsigned() as usize;
    let arguments = [number(socket), at(&mut messages), count, flags, 0, 0];
    // SAFETY: the first `count` messages point to two vectors each, which describe memory borrowed until the end of this
    // function; there are at least `count` messages.
    unsafe { raw::call(libc::SYS_sendmmsg, arguments) }
}
