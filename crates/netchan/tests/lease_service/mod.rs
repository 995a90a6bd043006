//! A lender and a peer, and applications with leases, whose requests a thread answers as a daemon does.

use std::{os::fd::OwnedFd, sync::Arc, thread};

use netchan::{
    Builder, Lent, Net,
    link::{
        lease::{Answer, LeasedLink, MESSAGE_MAX, Options, Request},
        wire,
    },
};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

pub const LENDER: &str = "10.0.0.1";
pub const LENDER_V6: &str = "fd00::1";
pub const PEER: &str = "10.0.0.2";
pub const PEER_V6: &str = "fd00::2";

/// A lender and a peer, joined by a wire.
pub fn lender_and_peer(options: &wire::Options) -> (Net, Net) {
    lender_of(Net::builder(), options)
}

/// The same, the lender with these settings.
pub fn lender_of(settings: Builder, options: &wire::Options) -> (Net, Net) {
    let (a, b) = wire::pair(options);
    let start = |settings: Builder, link, address: &str, v6: &str| {
        settings
            .link_with(link)
            .address(&format!("{address}/24"))
            .unwrap()
            .address(&format!("{v6}/64"))
            .unwrap()
            .start()
            .unwrap()
    };
    (
        start(settings, Box::new(a), LENDER, LENDER_V6),
        start(Net::builder(), Box::new(b), PEER, PEER_V6),
    )
}

/// An application with a lease, whose requests a thread answers as a daemon does. The lease ends with the application.
pub fn application(lender: &Net, name: &str, builder: Builder) -> (Net, Arc<Lent>) {
    application_telling(lender, name, builder, |_| ())
}

/// The same; `tell` is called with each port that it gets, before it has its answer.
pub fn application_telling(
    lender: &Net,
    name: &str,
    builder: Builder,
    tell: impl Fn(&Lent) + Send + 'static,
) -> (Net, Arc<Lent>) {
    application_of(lender, (name, 0), builder, tell)
}

/// The same of a user.
pub fn application_of(
    lender: &Net,
    (name, user): (&str, u32),
    builder: Builder,
    tell: impl Fn(&Lent) + Send + 'static,
) -> (Net, Arc<Lent>) {
    let lent = Arc::new(lender.lend("", name, user).unwrap());
    let link = leased(&lent, tell);
    let net = builder.link_with(Box::new(link)).start().unwrap();
    (net, lent)
}

/// The application's side of a lease, whose requests a thread answers.
pub fn leased(lent: &Arc<Lent>, tell: impl Fn(&Lent) + Send + 'static) -> LeasedLink {
    let flags = SocketFlags::CLOEXEC;
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    let (socket, far) = rustix::net::socketpair(family, kind, flags, None).unwrap();
    let answering = lent.clone();
    thread::spawn(move || answer(&socket, &answering, &tell));
    let mut files: Vec<OwnedFd> = Vec::new();
    for file in lent.files() {
        files.push(file.try_clone_to_owned().unwrap());
    }
    files.push(far);
    LeasedLink::adopt(files, &Options::default()).unwrap()
}

fn answer(socket: &OwnedFd, lent: &Lent, tell: &dyn Fn(&Lent)) {
    let mut message = vec![0; MESSAGE_MAX];
    while let Ok((n @ 1.., _)) = rustix::net::recv(socket, &mut message[..], RecvFlags::empty()) {
        let refused = |errno| Answer::Refused {
            errno,
            why: "no".into(),
        };
        let answer = match serde_json::from_slice(&message[..n]).unwrap() {
            Request::Attach { .. } | Request::Links { .. } => refused(libc::EPROTO),
            Request::Terms => Answer::Terms(Box::new(lent.terms())),
            Request::Bind(binding, reuse) => {
                (lent.bind(binding, reuse)).map_or_else(refused, |()| Answer::Done)
            }
            Request::Leave(binding) => {
                lent.close(binding, &[]);
                Answer::Done
            }
            Request::Close(binding, others) => {
                lent.close(binding, &others);
                continue;
            }
            Request::Return(binding) => {
                lent.give_back(binding);
                continue;
            }
            Request::Packets(protocol) => lent
                .packets(protocol)
                .map_or_else(refused, |()| Answer::Done),
            Request::Frames(kind) => lent.frames(kind).map_or_else(refused, |()| Answer::Done),
            Request::Loopback => lent
                .share_loopback()
                .map_or_else(refused, |()| Answer::Done),
            Request::Join(membership) => lent
                .join(&membership)
                .map_or_else(refused, |()| Answer::Done),
            Request::Drop(membership) => {
                lent.leave(&membership);
                continue;
            }
            Request::Over => {
                lent.over();
                continue;
            }
            Request::MorePorts => lent.more_ports().map_or_else(refused, Answer::Ports),
        };
        if matches!(answer, Answer::Done | Answer::Ports(_)) {
            tell(lent);
        }
        let answer = serde_json::to_vec(&answer).unwrap();
        rustix::net::send(socket, &answer, SendFlags::NOSIGNAL).unwrap();
    }
}

/// Bytes that show where they were lost or mixed up.
pub fn pattern(len: usize, seed: u8) -> Vec<u8> {
    let byte = |i: usize| {
        let [low, high, ..] = i.to_le_bytes();
        low.wrapping_mul(31).wrapping_add(high) ^ seed
    };
    (0..len).map(byte).collect()
}
