//! The thread that answers, turned by hand: its clients are sockets of this process, their users made up, and time is a number.

use std::{
    cell::{Cell, RefCell},
    fs::File,
    io::{self, IoSlice, IoSliceMut},
    mem::MaybeUninit,
    net::SocketAddr,
    os::fd::{BorrowedFd, OwnedFd},
    path::{Path, PathBuf},
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use netchan::{
    LeaseSize, PairEnd,
    link::lease::{
        Answer, Binding, FILES, Membership, PortRange, Request, Reuse, Terms, Transport, VERSION,
    },
};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketType, connect, recvmsg, sendmsg,
    socket_with, socketpair,
};
use serde_json::json;

use super::{
    super::{peer::Peer, request::WHY_MAX, rules::Rule, service::begin},
    *,
};

#[path = "memory_tests.rs"]
mod memory;
#[path = "pairs_tests.rs"]
mod pairs;

const SECOND: u64 = 1_000_000_000;

/// A lender without a stack.
struct MadeUp {
    /// Of the next client.
    user: Cell<u32>,
    /// Leases that there are.
    leases: Arc<AtomicUsize>,
    /// Of which link, and the holder.
    lent: RefCell<Vec<String>>,
    /// Which lease has which port alone.
    taken: Taken,
    steps: Steps,
}

type Taken = Arc<Mutex<Vec<(Binding, u64)>>>;

/// What was done with leases, in order.
type Steps = Arc<Mutex<Vec<&'static str>>>;

struct Part {
    files: [File; FILES],
    leases: Arc<AtomicUsize>,
    steps: Steps,
    number: u64,
    bound: RefCell<Vec<Binding>>,
    taken: Taken,
    loopback: Cell<bool>,
    news: OwnedFd,
    size: LeaseSize,
}

impl Drop for Part {
    fn drop(&mut self) {
        let mut taken = self.taken.lock().unwrap();
        taken.retain(|(_, by)| *by != self.number);
        self.leases.fetch_sub(1, Relaxed);
        self.did("ended");
    }
}

impl Part {
    fn did(&self, step: &'static str) {
        self.steps.lock().unwrap().push(step);
    }
}

impl Lender for MadeUp {
    type Lease = Part;

    /// The numbers of leases.
    type Set = u64;

    fn links(&self) -> Vec<String> {
        vec!["nc0".into(), "lo".into()]
    }

    fn lend(
        &self,
        beside: Option<&u64>,
        link: &str,
        holder: &str,
        user: u32,
        size: LeaseSize,
    ) -> io::Result<Part> {
        assert_eq!(user, self.user.get());
        if link == "nc9" {
            return Err(io::Error::new(
                io::ErrorKind::NotFound,
                "there is no link nc9",
            ));
        }
        let beside = beside.map_or_else(String::new, |number| format!(" beside {number}"));
        (self.lent.borrow_mut()).push(format!("{link}: {holder}{beside}"));
        self.leases.fetch_add(1, Relaxed);
        let mut files = std::array::from_fn(|_| File::open("/dev/null").unwrap());
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let kind = SocketType::SEQPACKET;
        let (news, far) = socketpair(AddressFamily::UNIX, kind, flags, None).unwrap();
        files[FILES - 1] = far.into();
        set_socket_send_buffer_size(&news, UNREAD_MAX)?;
        Ok(Part {
            files,
            leases: Arc::clone(&self.leases),
            steps: Arc::clone(&self.steps),
            number: self.lent.borrow().len() as u64,
            bound: RefCell::default(),
            taken: Arc::clone(&self.taken),
            loopback: Cell::default(),
            news,
            size,
        })
    }

    fn set(&self, lease: &Part, link: &str) -> Option<u64> {
        (link == "lo").then_some(lease.number)
    }

    fn peer(&self, _: BorrowedFd<'_>) -> io::Result<Peer> {
        let user = self.user.get();
        Ok(Peer::made_up(i32::MAX, user, user))
    }

    fn runs(&self, _: &Peer, program: &Path) -> io::Result<bool> {
        Ok(program == Path::new("/bin/it"))
    }
}

impl Lease for Part {
    fn terms(&self) -> Terms {
        let layout = [0; 16];
        let terms = json!({
            "version": VERSION, "link": "tap:nc0", "mac": [2, 0, 0, 0, 0, 1], "mtu": 1500, "segmentation": "none",
            "addresses": ["10.77.0.2/24"], "inward": layout, "outward": layout, "slots": 64, "ports": self.ports().1,
            "loopback": true,
        });
        serde_json::from_value(terms).unwrap()
    }

    fn files(&self) -> [BorrowedFd<'_>; FILES] {
        self.files.each_ref().map(AsFd::as_fd)
    }

    fn bind(&self, binding: Binding, reuse: Reuse) -> Result<(), i32> {
        let mut taken = self.taken.lock().unwrap();
        let stands = |(there, by): &(Binding, u64)| *there == binding && *by != self.number;
        if binding.address.port() == 9999 || taken.iter().any(stands) {
            return Err(libc::EADDRINUSE);
        }
        if binding.address.port() == 8000 && !reuse.port {
            taken.push((binding, self.number));
        }
        self.bound.borrow_mut().push(binding);
        Ok(())
    }

    fn close(&self, binding: Binding, _: &[(SocketAddr, SocketAddr)]) {
        let mut taken = self.taken.lock().unwrap();
        taken.retain(|one| *one != (binding, self.number));
    }

    fn give_back(&self, binding: Binding) {
        self.close(binding, &[]);
        self.bound.borrow_mut().retain(|bound| *bound != binding);
    }

    fn over(&self) {
        self.did("over");
    }

    fn packets(&self, protocol: u8) -> Result<(), i32> {
        match protocol {
            6 => Err(libc::EINVAL),
            _ => Ok(()),
        }
    }

    fn frames(&self, kind: u16) -> Result<(), i32> {
        match kind {
            0x0800 => Err(libc::EINVAL),
            _ => Ok(()),
        }
    }

    fn share_loopback(&self) -> Result<(), i32> {
        self.loopback.set(true);
        Ok(())
    }

    fn has_loopback(&self) -> bool {
        self.loopback.get()
    }

    fn join(&self, membership: &Membership) -> Result<(), i32> {
        membership.filter().map(drop)
    }

    fn leave(&self, _: &Membership) {}

    fn more_ports(&self) -> Result<Vec<PortRange>, i32> {
        Ok(vec![PortRange(41_000, 41_999)])
    }

    fn memory(&self) -> u64 {
        self.size.memory()
    }

    fn number(&self) -> u64 {
        self.number
    }

    fn ports(&self) -> (Vec<Binding>, Vec<PortRange>) {
        let first = u16::try_from(20_000 + 16 * self.number).unwrap();
        (
            self.bound.borrow().clone(),
            vec![PortRange(first, first + 15)],
        )
    }

    fn news(&self) -> BorrowedFd<'_> {
        self.news.as_fd()
    }

    fn ring(&self) {
        self.did("told");
    }

    fn pair(&self, _: &Self, number: u64) -> io::Result<[PairEnd; 2]> {
        PairEnd::both(number)
    }

    fn silence(&self) {
        self.did("silent");
    }
}

/// A socket's file, which goes with it.
struct Place(PathBuf);

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// A socket that listens, and where.
fn door(name: &str) -> (Place, Door) {
    let name = format!("netchan-lend-{name}-{}.sock", std::process::id());
    let path = std::env::temp_dir().join(name);
    let _ = std::fs::remove_file(&path);
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
    rustix::net::bind(&socket, &SocketAddrUnix::new(&path).unwrap()).unwrap();
    rustix::net::listen(&socket, 512).unwrap();
    (Place(path), Box::new(socket))
}

/// A server with its clients.
struct Scene {
    server: Server<MadeUp>,
    orders: Sender<Order>,
    wake: Arc<Own>,
    now: u64,
    path: Place,
}

impl Scene {
    fn new(name: &str, limits: Limits) -> Self {
        let (path, door) = door(name);
        let lender = MadeUp {
            user: Cell::new(1000),
            leases: Arc::default(),
            lent: RefCell::default(),
            taken: Taken::default(),
            steps: Steps::default(),
        };
        let (orders, wake, server) =
            Server::new(Some(door), lender, Rules::default(), limits).unwrap();
        Self {
            server,
            orders,
            wake,
            now: SECOND,
            path,
        }
    }

    /// A client of `user`, admitted or not.
    fn client(&mut self, user: u32) -> Client {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let pair = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
        let (theirs, ours) = pair.unwrap();
        self.server.lender.user.set(user);
        self.server.admit(self.now, Own::keep(ours));
        Client(theirs)
    }

    /// One that has a lease.
    fn attached(&mut self, user: u32) -> Client {
        let client = self.client(user);
        let answer = self.ask(&client, &attach());
        assert!(matches!(answer, Some(Answer::Terms(_))), "{answer:?}");
        client
    }

    /// Does what is ready.
    fn turn(&mut self) -> ControlFlow<End> {
        let ready = self.server.wait(self.now, Some(Duration::ZERO)).unwrap();
        self.server.turn(self.now, &ready)
    }

    /// One request and its answer; `None`: the end.
    fn ask(&mut self, client: &Client, request: &Request) -> Option<Answer> {
        client.say(&serde_json::to_vec(request).unwrap()).unwrap();
        assert!(self.turn().is_continue());
        client.hear().map(|(answer, _)| answer)
    }

    /// Turns until there are so many connections and leases.
    fn comes_to(&mut self, count: (usize, usize)) -> bool {
        let turned = soon(|| {
            let _ = self.turn();
            (self.count() == count).then_some(())
        });
        turned.is_some()
    }

    fn count(&self) -> (usize, usize) {
        let leases = self.server.lender.leases.load(Relaxed);
        (self.server.connections.len(), leases)
    }
}

/// What `look` finds in the end. A test beside this one may start a program: between fork and exec it has copies of all sockets, and what was closed is
/// open still.
fn soon<T>(mut look: impl FnMut() -> Option<T>) -> Option<T> {
    (0..10_000).find_map(|_| {
        let found = look();
        if found.is_none() {
            std::thread::sleep(Duration::from_millis(1));
        }
        found
    })
}

/// A message, and the files that came with it; `None`: the end, or nothing.
fn heard(socket: &OwnedFd) -> Option<(Vec<u8>, Vec<OwnedFd>)> {
    let mut text = vec![0; MESSAGE_MAX];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [IoSliceMut::new(&mut text)];
    let got = recvmsg(socket, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC).ok()?;
    let files = control.drain().flat_map(|message| match message {
        RecvAncillaryMessage::ScmRights(files) => files.collect(),
        _ => Vec::new(),
    });
    let files = files.collect();
    text.truncate(got.bytes);
    (got.bytes > 0).then_some((text, files))
}

struct Client(OwnedFd);

impl Client {
    fn say(&self, bytes: &[u8]) -> Result<usize, Errno> {
        rustix::net::send(&self.0, bytes, SendFlags::NOSIGNAL)
    }

    /// An answer, and how many files came with it; `None`: the end, or nothing.
    fn hear(&self) -> Option<(Answer, Vec<OwnedFd>)> {
        let (text, files) = heard(&self.0)?;
        Some((serde_json::from_slice(&text).unwrap(), files))
    }

    /// The errno of the refusal that it hears.
    fn refusal(&self) -> Option<(i32, String)> {
        match self.hear()? {
            (Answer::Refused { errno, why }, files) if files.is_empty() => Some((errno, why)),
            other => panic!("{other:?}"),
        }
    }

    /// Whether it hears the end, now or soon.
    fn is_closed(&self) -> bool {
        let is_closed = || match recv(&self.0, &mut [0; 1], RecvFlags::empty()) {
            Ok((_, n)) => Some(n == 0),
            Err(Errno::CONNRESET) => Some(true),
            Err(_) => None,
        };
        soon(is_closed).unwrap_or(false)
    }
}

fn attach() -> Request {
    attach_to("", VERSION)
}

fn attach_to(link: &str, version: u32) -> Request {
    Request::Attach {
        version,
        link: link.to_owned(),
        program: "a liar".to_owned(),
        secret: String::new(),
        memory: None,
    }
}

fn bind(port: u16) -> Request {
    let binding = Binding {
        transport: Transport::Tcp,
        address: ([10, 77, 0, 2], port).into(),
    };
    Request::Bind(binding, Reuse::default())
}

fn errno(answer: Option<Answer>) -> i32 {
    match answer {
        Some(Answer::Refused { errno, .. }) => errno,
        Some(_) => 0,
        None => -1,
    }
}

#[test]
fn a_lease_comes_with_its_files_and_goes_with_its_socket() {
    let mut scene = Scene::new("lease", Limits::default());
    let client = scene.client(1000);
    client
        .say(&serde_json::to_vec(&attach_to("nc0", VERSION)).unwrap())
        .unwrap();
    assert!(scene.turn().is_continue());
    let (answer, files) = client.hear().unwrap();
    let Answer::Terms(terms) = answer else {
        panic!("{answer:?}")
    };
    assert_eq!((terms.link.as_str(), files.len()), ("tap:nc0", FILES));
    // The holder is what the kernel says, not what the program does.
    let lent = scene.server.lender.lent.borrow().clone();
    assert_eq!(lent, [format!("nc0: process (pid {})", i32::MAX)]);
    // Again without files; ports; and one that is taken.
    client
        .say(&serde_json::to_vec(&Request::Terms).unwrap())
        .unwrap();
    assert!(scene.turn().is_continue());
    let (answer, files) = client.hear().unwrap();
    assert!(matches!(answer, Answer::Terms(again) if again == terms) && files.is_empty());
    assert_eq!(scene.ask(&client, &bind(8080)), Some(Answer::Done));
    assert_eq!(errno(scene.ask(&client, &bind(9999))), libc::EADDRINUSE);
    let more = Answer::Ports(vec![PortRange(41_000, 41_999)]);
    assert_eq!(scene.ask(&client, &Request::MorePorts), Some(more));
    assert_eq!(scene.count(), (1, 1));
    // A process that was forked has the socket still: the lease stays.
    let inherited = rustix::io::dup(&client.0).unwrap();
    drop(client);
    let _ = scene.turn();
    assert_eq!(scene.count(), (1, 1));
    drop(inherited);
    assert!(scene.comes_to((0, 0)));
}

#[test]
fn a_second_lease_is_refused_and_the_first_stays() {
    let mut scene = Scene::new("second", Limits::default());
    let client = scene.attached(1000);
    assert_eq!(errno(scene.ask(&client, &attach())), libc::EISCONN);
    assert_eq!(scene.count(), (1, 1));
    assert_eq!(scene.ask(&client, &bind(8080)), Some(Answer::Done));
}

#[test]
fn what_was_closed_in_order_is_heard_and_not_answered() {
    let mut scene = Scene::new("over", Limits::default());
    let client = scene.attached(1000);
    let before = scene.server.lender.steps.lock().unwrap().len();
    client
        .say(&serde_json::to_vec(&Request::Over).unwrap())
        .unwrap();
    let _ = scene.turn();
    assert!(client.hear().is_none());
    let steps = scene.server.lender.steps.lock().unwrap();
    assert_eq!(steps[before..], ["over"]);
}

/// A question for the links, of these.
fn links_of(version: u32, secret: &str) -> Request {
    Request::Links {
        version,
        secret: secret.into(),
    }
}

#[test]
fn what_is_lent_is_told_before_a_lease_to_those_that_may_have_one() {
    let mut scene = Scene::new("links", Limits::default());
    let client = scene.client(1000);
    let links = || Some(Answer::Links(vec!["nc0".into(), "lo".into()]));
    assert_eq!(scene.ask(&client, &links_of(VERSION, "")), links());
    assert_eq!(scene.ask(&client, &links_of(VERSION, "")), links());
    assert_eq!(scene.count(), (1, 0));
    assert!(matches!(
        scene.ask(&client, &attach()),
        Some(Answer::Terms(_))
    ));
    assert_eq!(
        errno(scene.ask(&client, &links_of(VERSION, ""))),
        libc::EISCONN
    );
    assert_eq!(scene.count(), (1, 1));

    scene.server.rules = Rules::free_to("hidden".into());
    let knows = scene.client(1000);
    assert_eq!(scene.ask(&knows, &links_of(VERSION, "hidden")), links());
    for (version, secret, expected) in [
        (VERSION, "hidde", libc::EACCES),
        (VERSION + 1, "hidden", libc::EPROTONOSUPPORT),
    ] {
        let other = scene.client(1000);
        assert_eq!(
            errno(scene.ask(&other, &links_of(version, secret))),
            expected
        );
        assert!(other.is_closed());
    }
}

#[test]
fn a_lease_that_cannot_be_is_refused_with_the_reason() {
    let mut scene = Scene::new("none", Limits::default());
    for (request, expected, says) in [
        (attach_to("nc9", VERSION), libc::ENODEV, "no link nc9"),
        (
            attach_to("", VERSION + 1),
            libc::EPROTONOSUPPORT,
            "this daemon speaks",
        ),
        (Request::Terms, libc::EPROTO, "first request"),
        (Request::MorePorts, libc::EPROTO, "first request"),
        (bind(8080), libc::EPROTO, "first request"),
    ] {
        let client = scene.client(0);
        client.say(&serde_json::to_vec(&request).unwrap()).unwrap();
        let _ = scene.turn();
        let (errno, why) = client.refusal().unwrap();
        assert_eq!(errno, expected, "{why}");
        assert!(why.contains(says), "{why}");
        assert!(client.is_closed());
        assert_eq!(scene.count(), (0, 0));
    }
}

#[test]
fn nonsense_is_told_so_and_closed() {
    let mut scene = Scene::new("nonsense", Limits::default());
    let deep = "[".repeat(10_000);
    let long_name =
        json!({ "attach": { "version": 1, "link": "x".repeat(MESSAGE_MAX), "program": "" } });
    let long_name = long_name.to_string();
    let beyond = vec![b' '; 3 * MESSAGE_MAX];
    let wrong: [&[u8]; 10] = [
        b"hello",
        b"\0",
        b"\xff\xfe",
        b"{}",
        b"null",
        br#"{"attach": {"version": 1, "link": "", "program": "", "rights": "all"}}"#,
        br#"{"bind": {"transport": "sctp", "address": "10.0.0.1:1"}}"#,
        deep.as_bytes(),
        long_name.as_bytes(),
        &beyond,
    ];
    for message in wrong {
        for attached in [false, true] {
            let client = match attached {
                true => scene.attached(1000),
                false => scene.client(1000),
            };
            let said = String::from_utf8_lossy(&message[..message.len().min(40)]).into_owned();
            assert_eq!(client.say(message), Ok(message.len()), "{said}");
            let _ = scene.turn();
            let (errno, why) = client.refusal().expect(&said);
            assert_eq!(errno, libc::EPROTO, "{said}: {why}");
            assert!(why.chars().count() <= WHY_MAX, "{why}");
            assert!(client.is_closed(), "{said}");
            assert_eq!(scene.count(), (0, 0), "{said}");
        }
    }
    // An empty message looks like the end, and is one.
    let client = scene.attached(1000);
    assert_eq!(client.say(b""), Ok(0));
    let _ = scene.turn();
    assert!(client.is_closed());
    assert_eq!(scene.count(), (0, 0));
}

#[test]
fn descriptors_that_a_client_sends_are_not_kept() {
    let mut scene = Scene::new("descriptors", Limits::default());
    let client = scene.client(1000);
    let text = serde_json::to_vec(&attach()).unwrap();
    let (near, far) = std::os::unix::net::UnixStream::pair().unwrap();
    let files = [near.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(control.push(SendAncillaryMessage::ScmRights(&files)));
    let parts = [IoSlice::new(&text)];
    sendmsg(&client.0, &parts, &mut control, SendFlags::empty()).unwrap();
    drop(near);
    let _ = scene.turn();
    assert!(matches!(client.hear(), Some((Answer::Terms(_), _))));
    // The near end is closed everywhere.
    let read = soon(|| recv(&far, &mut [0; 1], RecvFlags::DONTWAIT).ok());
    assert_eq!(read.map(|(_, n)| n), Some(0));
}

#[test]
fn a_silent_client_is_closed_after_five_seconds() {
    let mut scene = Scene::new("silent", Limits::default());
    let silent = scene.client(1000);
    let served = scene.attached(1000);
    assert_eq!(
        scene.server.timeout(scene.now),
        Some(Duration::from_nanos(ATTACH_NS + 1))
    );
    scene.now += ATTACH_NS - 1;
    let _ = scene.turn();
    assert_eq!(scene.count(), (2, 1));
    scene.now += 1;
    let _ = scene.turn();
    assert_eq!(
        silent.refusal().map(|(errno, _)| errno),
        Some(libc::ETIMEDOUT)
    );
    assert!(silent.is_closed());
    // One with a lease may be silent for ever.
    scene.now += 1000 * SECOND;
    let _ = scene.turn();
    assert_eq!(scene.count(), (1, 1));
    assert_eq!(scene.server.timeout(scene.now), None);
    assert_eq!(scene.ask(&served, &bind(8080)), Some(Answer::Done));
}

#[test]
fn there_are_as_many_connections_as_there_may_be() {
    let mut scene = Scene::new("many", Limits { all: 6, each: 2 });
    let mut clients = vec![scene.attached(1000), scene.attached(1000)];
    // Asked before it is refused, as a client does: it reads the reason all the same.
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let pair = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
    let (theirs, ours) = pair.unwrap();
    let early = Client(theirs);
    early.say(&serde_json::to_vec(&attach()).unwrap()).unwrap();
    scene.server.admit(scene.now, Own::keep(ours));
    let (errno, why) = early.refusal().unwrap();
    assert_eq!(errno, libc::EUSERS);
    assert!(
        why.contains("user 1000 has 2") && early.is_closed(),
        "{why}"
    );
    // Another user has its own share, root all that there is.
    clients.push(scene.attached(1001));
    clients.extend((0..3).map(|_| scene.attached(0)));
    assert_eq!(scene.count(), (6, 6));
    for user in [0, 1002] {
        let refused = scene.client(user);
        assert_eq!(
            refused.refusal().map(|(errno, _)| errno),
            Some(libc::EUSERS)
        );
    }
    // One place that is free is had.
    drop(clients.remove(0));
    assert!(scene.comes_to((5, 5)));
    clients.push(scene.attached(1000));
    assert_eq!(scene.count(), (6, 6));
    for client in &clients {
        assert_eq!(scene.ask(client, &bind(8080)), Some(Answer::Done));
    }
}

/// Any user may join groups, as with a kernel. Leaving is not answered, whatever it says; what is no request at all ends the lease.
#[test]
fn groups_are_joined_and_left() {
    let mut scene = Scene::new("groups", Limits::default());
    let client = scene.attached(1000);
    let of = |group: &str, excludes| Membership {
        group: group.parse().unwrap(),
        excludes,
        sources: Vec::new(),
    };
    let join =
        |scene: &mut Scene, group| errno(scene.ask(&client, &Request::Join(of(group, true))));
    assert_eq!(join(&mut scene, "239.1.2.3"), 0);
    assert_eq!(join(&mut scene, "ff02::fb"), 0);
    assert_eq!(join(&mut scene, "10.77.0.2"), libc::EINVAL);
    for group in ["239.1.2.3", "10.77.0.2"] {
        let request = serde_json::to_vec(&Request::Drop(of(group, false))).unwrap();
        client.say(&request).unwrap();
        assert!(scene.turn().is_continue());
    }
    assert_eq!(
        join(&mut scene, "239.1.2.4"),
        0,
        "the next answer is its own"
    );
    let nonsense = br#"{"join":{"group":"239.1.2.3","excludes":true,"sources":[],"link":1}}"#;
    client.say(nonsense).unwrap();
    let _ = scene.turn();
    assert!(scene.comes_to((0, 0)));
}

#[test]
fn ports_below_1024_follow_the_rules_of_the_moment() {
    let mut scene = Scene::new("ports", Limits::default());
    let (root, web, other) = (
        scene.attached(0),
        scene.attached(1000),
        scene.attached(1001),
    );
    let ask = |scene: &mut Scene, client: &Client, port| errno(scene.ask(client, &bind(port)));
    assert_eq!(ask(&mut scene, &root, 80), 0);
    assert_eq!(ask(&mut scene, &web, 80), libc::EACCES);
    assert_eq!(ask(&mut scene, &web, 1023), libc::EACCES);
    assert_eq!(ask(&mut scene, &web, 1024), 0);
    assert_eq!(ask(&mut scene, &root, 0), libc::EINVAL);
    let packets =
        |scene: &mut Scene, client: &Client, of| errno(scene.ask(client, &Request::Packets(of)));
    assert_eq!(packets(&mut scene, &root, 89), 0);
    assert_eq!(packets(&mut scene, &root, 6), libc::EINVAL);
    assert_eq!(packets(&mut scene, &web, 89), libc::EACCES);
    let frames =
        |scene: &mut Scene, client: &Client, of| errno(scene.ask(client, &Request::Frames(of)));
    assert_eq!(frames(&mut scene, &root, 0x88b5), 0);
    assert_eq!(frames(&mut scene, &root, 0x0800), libc::EINVAL);
    let Some(Answer::Refused { errno: eacces, why }) = scene.ask(&web, &Request::Frames(0x88b5))
    else {
        panic!("they are root's")
    };
    assert_eq!(eacces, libc::EACCES);
    assert!(
        why.contains("frames of EtherType 0x88b5 are root's"),
        "{why}"
    );
    let rule = |user: Option<u32>, program: Option<&str>, port| Rule {
        user,
        group: None,
        program: program.map(Into::into),
        ports: vec![PortRange(port, port)],
        protocol: None,
        packets: Vec::new(),
    };
    let mut first = rule(Some(1000), None, 80);
    first.packets = vec![netchan::PacketProtocol::EtherType(0x88b5)];
    let rules = Rules::of(vec![
        first,
        rule(None, Some("/bin/it"), 81),
        rule(None, Some("/bin/other"), 82),
    ]);
    scene.orders.send(Order::Rules(rules)).unwrap();
    rustix::io::write(&scene.wake, &1_u64.to_ne_bytes()).unwrap();
    assert!(scene.turn().is_continue());
    assert_eq!(ask(&mut scene, &web, 80), 0);
    assert_eq!(frames(&mut scene, &web, 0x88b5), 0);
    assert_eq!(frames(&mut scene, &web, 0x88b6), libc::EACCES);
    assert_eq!(frames(&mut scene, &other, 0x88b5), libc::EACCES);
    assert_eq!(ask(&mut scene, &other, 80), libc::EACCES);
    assert_eq!(ask(&mut scene, &other, 81), 0);
    assert_eq!(ask(&mut scene, &other, 82), libc::EACCES);
    let Some(Answer::Refused { why, .. }) = scene.ask(&other, &bind(443)) else {
        panic!("it is root's")
    };
    assert!(
        why.contains("port 443") && why.contains("user 1001"),
        "{why}"
    );
    // Those that are refused are there all the same.
    assert_eq!(scene.count(), (3, 3));
}

#[test]
fn a_client_that_does_not_read_is_closed_and_others_are_served() {
    let mut scene = Scene::new("deaf", Limits::default());
    let (deaf, good) = (scene.attached(1000), scene.attached(1000));
    let request = serde_json::to_vec(&Request::Terms).unwrap();
    let mut asked = 0;
    while scene.count() == (2, 2) {
        assert_eq!(deaf.say(&request), Ok(request.len()), "{asked}");
        assert!(scene.turn().is_continue());
        asked += 1;
        assert!(asked < 10_000, "it holds every answer that is not read");
        if asked % 16 == 0 {
            assert_eq!(scene.ask(&good, &bind(8080)), Some(Answer::Done));
        }
    }
    assert!(asked > 4, "{asked}: a client may have a few under way");
    assert_eq!(scene.count(), (1, 1));
    assert_eq!(scene.ask(&good, &bind(8080)), Some(Answer::Done));
}

#[test]
fn a_client_that_asks_without_end_does_not_keep_others_waiting() {
    let mut scene = Scene::new("eager", Limits::default());
    let (eager, good) = (scene.attached(1000), scene.attached(1000));
    let request = serde_json::to_vec(&bind(8080)).unwrap();
    let mut queued = 0;
    while queued < 100 && eager.say(&request).is_ok() {
        queued += 1;
    }
    assert!(queued > 2);
    // One turn, one answer each.
    assert_eq!(scene.ask(&good, &bind(8080)), Some(Answer::Done));
    assert!(eager.hear().is_some() && eager.hear().is_none());
}

#[test]
fn clients_connect_at_the_file_and_the_end_closes_them() {
    let mut scene = Scene::new("file", Limits::default());
    let client = |path: &Path| {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let kind = SocketType::SEQPACKET;
        let socket = socket_with(AddressFamily::UNIX, kind, flags, None).unwrap();
        let address = SocketAddrUnix::new(path).unwrap();
        connect(&socket, &address).map(|()| Client(socket))
    };
    let clients: Vec<_> = (0..100).map(|_| client(&scene.path.0).unwrap()).collect();
    let _ = scene.turn();
    let _ = scene.turn();
    assert_eq!(scene.count(), (100, 0));
    for client in &clients {
        client.say(&serde_json::to_vec(&attach()).unwrap()).unwrap();
    }
    let _ = scene.turn();
    assert_eq!(scene.count(), (100, 100));
    assert!(clients.iter().all(|client| client.hear().is_some()));
    scene.orders.send(Order::Stop).unwrap();
    rustix::io::write(&scene.wake, &1_u64.to_ne_bytes()).unwrap();
    assert!(scene.turn().is_break());
    let Scene { server, path, .. } = scene;
    let leases = Arc::clone(&server.lender.leases);
    drop(server);
    assert_eq!(leases.load(Relaxed), 0);
    assert!(clients.iter().all(Client::is_closed));
    assert!(client(&path.0).is_err());
}

#[test]
fn the_thread_starts_pauses_goes_on_and_stops() {
    let (path, door) = door("thread");
    let leases = Arc::new(AtomicUsize::new(0));
    let lender = MadeUp {
        user: Cell::new(1000),
        leases: Arc::clone(&leases),
        lent: RefCell::default(),
        taken: Taken::default(),
        steps: Steps::default(),
    };
    let (orders, wake, server) =
        Server::new(Some(door), lender, Rules::default(), Limits::default()).unwrap();
    let tell = |order| {
        orders.send(order).unwrap();
        rustix::io::write(&wake, &1_u64.to_ne_bytes()).unwrap();
    };
    let thread = begin(Box::new(server), ()).unwrap();
    let kind = SocketType::SEQPACKET;
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, kind, flags, None).unwrap();
    let address = SocketAddrUnix::new(&path.0).unwrap();
    connect(&socket, &address).unwrap();
    let client = Client(socket);
    client.say(&serde_json::to_vec(&attach()).unwrap()).unwrap();
    let (_, files) = client.hear().unwrap();
    assert_eq!((files.len(), leases.load(Relaxed)), (FILES, 1));
    tell(Order::Rules(Rules::of(vec![Rule {
        user: Some(1000),
        group: None,
        program: None,
        ports: vec![PortRange(80, 80)],
        protocol: None,
        packets: Vec::new(),
    }])));
    client.say(&serde_json::to_vec(&bind(80)).unwrap()).unwrap();
    assert_eq!(client.hear().map(|(answer, _)| answer), Some(Answer::Done));
    // Without its thread all stays, and what is asked meanwhile is answered later.
    tell(Order::Pause);
    let server = thread.join().unwrap().unwrap();
    assert_eq!((server.connections.len(), leases.load(Relaxed)), (1, 1));
    client.say(&serde_json::to_vec(&bind(80)).unwrap()).unwrap();
    let (ended, end) = channel::<()>();
    let thread = begin(server, ended).unwrap();
    assert_eq!(client.hear().map(|(answer, _)| answer), Some(Answer::Done));
    tell(Order::Stop);
    assert!(thread.join().unwrap().is_none() && client.is_closed());
    assert_eq!(leases.load(Relaxed), 0);
    assert!(end.recv().is_err(), "the end is told");
}

#[test]
fn a_client_that_is_brought_is_served_and_the_last_one_is_the_end() {
    let mut scene = Scene::new("brought", Limits::default());
    scene.server.door = None;
    let flags = SocketFlags::CLOEXEC;
    let pair = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
    let (theirs, ours) = pair.unwrap();
    let client = Client(theirs);
    scene.orders.send(Order::Admit(Own::keep(ours))).unwrap();
    rustix::io::write(&scene.wake, &1_u64.to_ne_bytes()).unwrap();
    assert!(scene.turn().is_continue());
    let answer = scene.ask(&client, &attach());
    assert!(matches!(answer, Some(Answer::Terms(_))), "{answer:?}");
    assert_eq!(scene.count(), (1, 1));
    scene.orders.send(Order::EndWithClients).unwrap();
    rustix::io::write(&scene.wake, &1_u64.to_ne_bytes()).unwrap();
    let Scene { server, .. } = scene;
    let leases = Arc::clone(&server.lender.leases);
    let thread = begin(Box::new(server), ()).unwrap();
    assert!(!thread.is_finished());
    drop(client);
    assert!(thread.join().unwrap().is_none());
    assert_eq!(leases.load(Relaxed), 0);
}

#[test]
fn leases_of_a_process_stand_side_by_side() {
    let mut scene = Scene::new("beside", Limits::default());
    let of = |link: &str| Request::Attach {
        version: VERSION,
        link: link.to_owned(),
        program: "it".to_owned(),
        secret: String::new(),
        memory: None,
    };
    // All clients of a scene are one process; only a link that it has no lease of is beside what it has.
    for (user, link) in [(1000, "nc0"), (1000, "lo"), (1001, "lo"), (1001, "nc0")] {
        let client = scene.client(user);
        assert!(matches!(
            scene.ask(&client, &of(link)),
            Some(Answer::Terms(_))
        ));
        std::mem::forget(client);
    }
    let lent = scene.server.lender.lent.borrow();
    let beside: Vec<_> = lent.iter().map(|lent| lent.contains("beside 1")).collect();
    assert_eq!(beside, [false, true, false, false], "{lent:?}");
    assert!(!lent[2].contains("beside"), "another user's: {lent:?}");
}

#[test]
fn a_programs_own_processes_say_its_secret() {
    let limits = Limits { all: 64, each: 2 };
    let mut scene = Scene::new("secret", limits);
    scene.server.rules = Rules::free_to("hidden".to_owned());
    let asking = |secret: &str| Request::Attach {
        version: VERSION,
        link: String::new(),
        program: "it".to_owned(),
        secret: secret.to_owned(),
        memory: None,
    };
    for wrong in ["", "hidde", "hidden "] {
        let client = scene.client(1000);
        assert_eq!(
            errno(scene.ask(&client, &asking(wrong))),
            libc::EACCES,
            "{wrong}"
        );
        assert!(scene.comes_to((0, 0)), "it is closed");
    }
    // As many as there may be at all, with any port; those that say nothing have each user's share.
    let own: Vec<_> = (0..5)
        .map(|_| {
            let client = scene.client(1000);
            let answer = scene.ask(&client, &asking("hidden"));
            assert!(matches!(answer, Some(Answer::Terms(_))), "{answer:?}");
            client
        })
        .collect();
    assert_eq!(scene.ask(&own[0], &bind(80)), Some(Answer::Done));
    let silent: Vec<_> = (0..4).map(|_| scene.client(1000)).collect();
    assert_eq!(scene.count(), (7, 5));
    drop(silent);
}
