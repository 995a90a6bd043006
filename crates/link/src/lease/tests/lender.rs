//! A lender for these tests: it lends by hand, and answers on a thread what the test says.

use std::{
    io::IoSlice,
    mem::{self, MaybeUninit},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    thread::{self, JoinHandle},
};

use netchan_base::{
    descriptor::{Bounds, Descriptor, Return, Writer},
    packet::Packet,
};
use percore::{
    edge::{self, EdgeLayout, Side},
    slab::{LendingSlab, Slab},
};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    net::{
        AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
        SocketFlags, SocketType, recv, sendmsg, socketpair,
    },
};

use crate::{
    Link, Queue,
    lease::{
        Answer, Binding, Client, Cutting, LeasedLink, MESSAGE_MAX, News, Options, PortRange,
        Request, Terms, VERSION, Wish,
    },
};

pub type Item = [u8; Descriptor::ENCODED];
pub type Back = [u8; Return::ENCODED];

/// Buffers of each slab, and bytes in each.
pub const BUFFERS: usize = 8;
pub const SIZE: usize = 2048;
/// The lender's link address.
pub const MAC: [u8; 6] = [0x02, 0, 0, 0, 0, 7];

/// What is lent, from the lender's side.
pub struct Lender {
    pub side: Side<Item, Back>,
    pub inward: LendingSlab,
    pub outward: LendingSlab,
    pub terms: Terms,
    /// Its end of the socket for news.
    pub news: OwnedFd,
    /// What the notice says.
    notice: u32,
    /// The far end's files, in their order.
    files: Vec<OwnedFd>,
}

fn copy(fd: impl AsFd) -> OwnedFd {
    fd.as_fd().try_clone_to_owned().unwrap()
}

impl Lender {
    pub fn new() -> Self {
        Self::of(BUFFERS, 16)
    }

    /// One with so many buffers in each slab, and slots in each ring.
    pub fn of(buffers: usize, slots: u32) -> Self {
        let inward = LendingSlab::new(buffers, SIZE, buffers, buffers).unwrap();
        let mut outward = LendingSlab::new(buffers, SIZE, buffers, buffers).unwrap();
        while let Some(buffer) = outward.alloc() {
            assert_eq!(outward.lend(buffer).unwrap().generation, 1);
        }
        let (side, end) = edge::create(EdgeLayout::new(slots).unwrap()).unwrap();
        let terms = Terms {
            version: VERSION,
            link: "tap:nc0".into(),
            mac: MAC,
            mtu: 1500,
            segmentation: Cutting::Offloaded,
            addresses: vec!["10.77.0.2/24".into(), "fd77::2/64".into()],
            inward: inward.layout().encode(),
            outward: outward.layout().encode(),
            slots,
            ports: vec![PortRange(40_000, 40_063)],
            loopback: true,
        };
        let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (news, far_news) = socketpair(family, kind, flags, None).unwrap();
        let files = vec![
            copy(inward.file()),
            copy(outward.file()),
            copy(&end.file),
            copy(&end.socket),
            far_news,
        ];
        Self {
            news,
            notice: 0,
            side,
            inward,
            outward,
            terms,
            files,
        }
    }

    pub fn files(&self) -> Vec<OwnedFd> {
        self.files.iter().map(copy).collect()
    }

    /// A lease of it, over a thread that answers little else.
    pub fn link(&self) -> LeasedLink {
        let (client, _) = serve(self.attaching());
        LeasedLink::attach(client, &Options::default()).unwrap()
    }

    pub fn queue(&self) -> Queue {
        Queue::of(Box::new(self.link())).unwrap()
    }

    /// That of a lease that shares the loopback addresses.
    pub fn sharing_queue(&self) -> Queue {
        let link = self.link();
        link.lease().unwrap().share_loopback().unwrap();
        Queue::of(Box::new(link)).unwrap()
    }

    /// Answers requests for the lease, its terms and the loopback addresses, as often as they come.
    pub fn attaching(&self) -> impl FnMut(&Request) -> Vec<Reply> + Send + use<> {
        let (terms, files) = (Answer::Terms(Box::new(self.terms.clone())), self.files());
        move |request| match request {
            Request::Attach { .. } => vec![Reply::with(&terms, files.iter().map(copy).collect())],
            Request::Terms => vec![Reply::of(&terms)],
            Request::Loopback => vec![Reply::of(&Answer::Done)],
            other => panic!("{other:?}"),
        }
    }

    /// Lends a packet; false where no buffer is left.
    pub fn send(&mut self, packet: &[u8], flags: u32) -> bool {
        self.collect();
        let Some(mut buffer) = self.inward.alloc() else {
            return false;
        };
        let offset = 6;
        buffer.copy_in(offset, packet).unwrap();
        let name = self.inward.lend(buffer).unwrap();
        let descriptor = Descriptor {
            name,
            offset: u32::try_from(offset).unwrap(),
            length: u32::try_from(packet.len()).unwrap(),
            link: 0,
            flags,
            segment: 0,
        };
        self.stage(descriptor.encode());
        true
    }

    /// Sends whatever these bytes are.
    pub fn stage(&mut self, item: Item) {
        self.side.sending.stage(item).unwrap();
        self.side.sending.publish();
        self.side.far_bell.ring();
    }

    /// Takes back what came back of the inward slab; how many names.
    pub fn collect(&mut self) -> usize {
        let Self { side, inward, .. } = self;
        let layout = inward.layout();
        side.sending.take_returns(usize::MAX, |back| {
            let name = Return::decode(&back, layout).unwrap().name;
            let buffer = inward.take_back(name).unwrap();
            inward.free(buffer);
        })
    }

    /// The packets that came, with their descriptors. Their buffers stay here.
    pub fn take(&mut self) -> Vec<(Descriptor, Vec<u8>)> {
        let bounds = Bounds {
            layout: self.outward.layout(),
            links: 1,
            frames: true,
        };
        let mut came = Vec::new();
        while let Some(item) = self.side.receiving.take_one() {
            let descriptor = Descriptor::decode(&item, Writer::FarSide, &bounds).unwrap();
            let mut packet = vec![0; descriptor.length as usize];
            let buffer = self.outward.look(descriptor.name).unwrap();
            buffer
                .copy_out(descriptor.offset as usize, &mut packet)
                .unwrap();
            came.push((descriptor, packet));
        }
        came
    }

    /// Lends the buffer of a packet that came once more, by a new name.
    pub fn give_back(&mut self, descriptor: &Descriptor) {
        let buffer = self.outward.take_back(descriptor.name).unwrap();
        let name = self.outward.lend(buffer).unwrap();
        self.return_name(Return { name }.encode());
    }

    /// Gives back whatever these bytes are.
    pub fn return_name(&mut self, back: Back) {
        self.side.receiving.give_back(back).unwrap();
        self.side.receiving.publish_returns();
        self.side.far_bell.ring();
    }

    /// Tells something unasked.
    pub fn tell(&mut self, news: &News, files: Vec<OwnedFd>) {
        let text = serde_json::to_vec(news).unwrap();
        self.tell_reply(&Reply { text, files });
    }

    /// Tells whatever this is.
    pub fn tell_reply(&mut self, reply: &Reply) {
        reply.send(&self.news);
        self.notice += 2;
        self.side.notice.set(self.notice);
        self.side.far_bell.ring();
    }

    /// Holds short cuts back, or no longer.
    pub fn hold(&mut self, is_held: bool) {
        self.notice = self.notice & !1 | u32::from(is_held);
        self.side.notice.set(self.notice);
    }

    /// What was wished for since the last time.
    pub fn wishes(&self) -> Vec<Binding> {
        let mut wishes = Vec::new();
        let mut text = [0; MESSAGE_MAX];
        while let Ok((_, n)) = recv(&self.news, &mut text[..], RecvFlags::DONTWAIT) {
            let Wish { to } = serde_json::from_slice(&text[..n]).unwrap();
            wishes.push(to);
        }
        wishes
    }

    /// Ends without a word, as a process does that is killed.
    pub fn die(self) {
        let Side {
            sending,
            receiving,
            own_bell,
            far_bell,
            notice: _,
        } = self.side;
        mem::forget((sending, receiving));
        drop((own_bell, far_bell));
    }
}

/// A message, and what goes with it.
pub struct Reply {
    pub text: Vec<u8>,
    pub files: Vec<OwnedFd>,
}

impl Reply {
    pub fn of(answer: &Answer) -> Self {
        Self::with(answer, Vec::new())
    }

    pub fn with(answer: &Answer, files: Vec<OwnedFd>) -> Self {
        let text = serde_json::to_vec(answer).unwrap();
        Self { text, files }
    }

    pub fn text(text: &[u8]) -> Self {
        Self {
            text: text.to_vec(),
            files: Vec::new(),
        }
    }

    fn send(&self, socket: &OwnedFd) {
        let files: Vec<BorrowedFd<'_>> = self.files.iter().map(AsFd::as_fd).collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(16))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !files.is_empty() {
            assert!(control.push(SendAncillaryMessage::ScmRights(&files)));
        }
        let text = [IoSlice::new(&self.text)];
        let _ = sendmsg(socket, &text, &mut control, SendFlags::NOSIGNAL); // it may be gone
    }
}

/// A client, and the thread that answers it until it is closed, which says what it was asked.
pub fn serve(
    answer: impl FnMut(&Request) -> Vec<Reply> + Send + 'static,
) -> (Client, JoinHandle<Vec<Request>>) {
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    let (here, there) = socketpair(family, kind, SocketFlags::CLOEXEC, None).unwrap();
    (Client::over(here), answers(there, answer))
}

/// The thread that answers at this end.
pub fn answers(
    socket: OwnedFd,
    mut answer: impl FnMut(&Request) -> Vec<Reply> + Send + 'static,
) -> JoinHandle<Vec<Request>> {
    thread::spawn(move || {
        let mut asked = Vec::new();
        let mut text = vec![0; MESSAGE_MAX];
        loop {
            let n = match recv(&socket, &mut text[..], RecvFlags::empty()) {
                Ok((_, n)) if n > 0 => n,
                _ => return asked,
            };
            let request: Request = serde_json::from_slice(&text[..n]).unwrap();
            answer(&request)
                .iter()
                .for_each(|reply| reply.send(&socket));
            asked.push(request);
        }
    })
}

/// A packet of IPv4, or of what this version is.
pub fn packet(version: u8, fill: u8, len: usize) -> Vec<u8> {
    let mut packet = vec![fill; len];
    packet[0] = version << 4 | 5;
    packet
}

/// A frame that a stack might send.
pub fn frame(slab: &mut Slab, kind: u16, packet: &[u8]) -> Packet {
    let mut frame = Packet::new(slab.alloc().unwrap(), 26);
    frame.set_len(14 + packet.len());
    frame.bytes_mut()[12..14].copy_from_slice(&kind.to_be_bytes());
    frame.bytes_mut()[14..].copy_from_slice(packet);
    frame
}

pub fn slab() -> Slab {
    Slab::new(64, 4096).unwrap()
}

/// Whether it is readable, now or within this time.
pub fn is_readable(fd: BorrowedFd<'_>, seconds: i64) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
    let timeout = Timespec {
        tv_sec: seconds,
        tv_nsec: 0,
    };
    poll(&mut fds, Some(&timeout)).unwrap() == 1
}
