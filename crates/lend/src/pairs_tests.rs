//! Short cuts between the leases of made-up clients.

use netchan::link::lease::{News, PEER_FILES, PeerPorts, PeerTerms, Wish};
use rustix::fs::fstat;

use super::*;

/// A client with a lease, and its end of the socket for news.
struct Holder {
    client: Client,
    news: OwnedFd,
    number: u64,
}

impl Holder {
    fn new(scene: &mut Scene) -> Self {
        let client = scene.client(0);
        client.say(&serde_json::to_vec(&attach()).unwrap()).unwrap();
        assert!(scene.turn().is_continue());
        let (_, mut files) = client.hear().unwrap();
        let number = scene.server.lender.lent.borrow().len() as u64;
        let news = files.pop().unwrap();
        Self {
            client,
            news,
            number,
        }
    }

    fn wish(&self, scene: &mut Scene, to: Binding) {
        let wish = serde_json::to_vec(&Wish { to }).unwrap();
        rustix::net::send(&self.news, &wish, SendFlags::NOSIGNAL).unwrap();
        assert!(scene.turn().is_continue());
    }

    fn hear(&self) -> Option<(News, Vec<OwnedFd>)> {
        let (text, files) = heard(&self.news)?;
        Some((serde_json::from_slice(&text).unwrap(), files))
    }

    /// It hears of a peer.
    fn meets(&self) -> (PeerTerms, Vec<OwnedFd>) {
        match self.hear() {
            Some((News::Peer(terms), files)) => (*terms, files),
            other => panic!("{other:?}"),
        }
    }

    /// It hears of a peer's ports.
    fn ports(&self) -> PeerPorts {
        match self.hear() {
            Some((News::Ports { ports, .. }, _)) => ports,
            other => panic!("{other:?}"),
        }
    }

    fn range(&self) -> PortRange {
        let first = u16::try_from(20_000 + 16 * self.number).unwrap();
        PortRange(first, first + 15)
    }
}

fn at(address: &str) -> Binding {
    Binding {
        transport: Transport::Tcp,
        address: address.parse().unwrap(),
    }
}

fn bind_at(address: &str) -> Request {
    Request::Bind(at(address), Reuse::default())
}

const SERVED: &str = "10.77.0.2:8080";

/// A server at that address, a client, and a short cut between them, of which both have heard.
fn met(name: &str) -> (Scene, Holder, Holder) {
    let mut scene = Scene::new(name, Limits::default());
    let (server, client) = (Holder::new(&mut scene), Holder::new(&mut scene));
    assert_eq!(
        scene.ask(&server.client, &bind_at(SERVED)),
        Some(Answer::Done)
    );
    client.wish(&mut scene, at(SERVED));
    let ((theirs, server_files), (ours, files)) = (server.meets(), client.meets());
    assert_eq!(
        (theirs.pair, theirs.is_maker, ours.is_maker),
        (ours.pair, false, true)
    );
    assert_eq!(
        (ours.ports.bindings, ours.ports.shared),
        (vec![at(SERVED)], Vec::new())
    );
    assert_eq!(ours.ports.ranges, [server.range()]);
    assert_eq!(
        (theirs.ports.bindings, theirs.ports.ranges),
        (Vec::new(), vec![client.range()])
    );
    assert_eq!((files.len(), server_files.len()), (PEER_FILES, PEER_FILES));
    // What one sends is what the other one receives, and the edge is one.
    let inode = |file: &OwnedFd| fstat(file).unwrap().st_ino;
    let [ours, theirs] = [files, server_files].map(|all| all.iter().map(inode).collect::<Vec<_>>());
    assert_eq!(
        (ours[0], ours[1], ours[2]),
        (theirs[1], theirs[0], theirs[2])
    );
    (scene, server, client)
}

#[test]
fn a_wish_makes_a_short_cut_of_which_both_are_told() {
    let (mut scene, server, client) = met("pair");
    // There is one, whichever asks and for whichever port.
    client.wish(&mut scene, at(SERVED));
    client.wish(&mut scene, at(&format!("10.77.0.2:{}", server.range().1)));
    server.wish(&mut scene, at(&format!("10.77.0.9:{}", client.range().0)));
    // None to itself, and none to what no lease has.
    client.wish(&mut scene, at(&format!("10.77.0.2:{}", client.range().0)));
    client.wish(&mut scene, at("10.77.0.2:9"));
    rustix::net::send(&client.news, b"{\"to\": 7}", SendFlags::NOSIGNAL).unwrap();
    assert!(scene.turn().is_continue());
    assert!(client.hear().is_none() && server.hear().is_none());
    assert_eq!(scene.count(), (2, 2));
}

#[test]
fn ports_are_told_before_their_lease_has_the_answer() {
    let (mut scene, server, client) = met("pair-ports");
    assert_eq!(
        scene.ask(&server.client, &bind_at("10.77.0.2:81")),
        Some(Answer::Done)
    );
    assert_eq!(client.ports().bindings, [at(SERVED), at("10.77.0.2:81")]);
    assert!(matches!(
        scene.ask(&client.client, &Request::MorePorts),
        Some(Answer::Ports(_))
    ));
    assert_eq!(server.ports().ranges, [client.range()]);
    // What is refused is no change.
    assert_eq!(
        errno(scene.ask(&server.client, &bind(9999))),
        libc::EADDRINUSE
    );
    assert!(client.hear().is_none());
}

#[test]
fn a_lease_that_shares_the_loopback_addresses_is_there_for_its_peers() {
    let (mut scene, server, client) = met("pair-loopback");
    let loopback = |scene: &mut Scene, of: &Holder| scene.ask(&of.client, &Request::Loopback);
    assert_eq!(loopback(&mut scene, &server), Some(Answer::Done));
    assert!(client.ports().loopback);
    assert_eq!(loopback(&mut scene, &client), Some(Answer::Done));
    assert!(server.ports().loopback);
    // One that comes later is told with the short cut.
    let third = Holder::new(&mut scene);
    third.wish(&mut scene, at(SERVED));
    assert!(third.meets().0.ports.loopback && !server.meets().0.ports.loopback);
}

#[test]
fn a_port_that_two_leases_have_is_said_to_be_shared() {
    let (mut scene, server, client) = met("pair-shared");
    let third = Holder::new(&mut scene);
    assert_eq!(
        scene.ask(&third.client, &bind_at("10.77.0.3:8080")),
        Some(Answer::Done)
    );
    let ports = client.ports();
    assert_eq!(
        (ports.bindings, ports.shared),
        (Vec::new(), vec![at(SERVED)])
    );
    client.wish(&mut scene, at("10.77.0.3:8080"));
    assert_eq!(client.meets().0.ports.shared, [at("10.77.0.3:8080")]);
    assert_eq!(third.meets().0.ports.ranges, [client.range()]);
    assert!(server.hear().is_none());
}

/// What another lease may have, too, goes by the lender from the beginning: it has to know the connections by then.
#[test]
fn a_port_that_others_may_have_is_shared_before_they_do() {
    let (mut scene, server, client) = met("pair-reuse");
    let reuse = Reuse {
        address: false,
        port: true,
    };
    let shared = Request::Bind(at("10.77.0.2:81"), reuse);
    assert_eq!(scene.ask(&server.client, &shared), Some(Answer::Done));
    let ports = client.ports();
    assert_eq!(
        (ports.bindings, ports.shared),
        (vec![at(SERVED)], vec![at("10.77.0.2:81")])
    );
}

#[test]
fn a_closed_port_is_its_leases_until_another_one_has_it() {
    let (mut scene, server, client) = met("pair-closed");
    let say = |scene: &mut Scene, request: &Request| {
        assert_eq!(scene.ask(&server.client, request), None, "no answer");
    };
    say(&mut scene, &Request::Close(at(SERVED), Vec::new()));
    assert!(client.hear().is_none());
    let next = Holder::new(&mut scene);
    assert_eq!(
        scene.ask(&next.client, &bind_at(SERVED)),
        Some(Answer::Done)
    );
    let ports = client.ports();
    assert_eq!(
        (ports.bindings, ports.shared),
        (Vec::new(), vec![at(SERVED)])
    );
    // What is new is for the next one, which gets the port alone when the first one has no connections any more.
    client.wish(&mut scene, at(SERVED));
    assert_eq!(client.meets().0.ports.shared, [at(SERVED)]);
    say(&mut scene, &Request::Return(at(SERVED)));
    let first = client.ports();
    assert_eq!((first.bindings, first.shared), (Vec::new(), Vec::new()));
    assert_eq!(client.ports().bindings, [at(SERVED)]);
    // What was not its own comes back as often as it likes.
    say(&mut scene, &Request::Return(at(SERVED)));
    say(&mut scene, &Request::Close(at(SERVED), Vec::new()));
    assert_eq!(scene.count(), (3, 3));
}

/// A program that closes its socket and tells another one finds the port free, in whichever order their words are read.
#[test]
fn a_port_that_was_given_back_is_free_at_once() {
    let mut scene = Scene::new("returned", Limits::default());
    let (one, two) = (scene.attached(0), scene.attached(0));
    assert_eq!(
        scene.ask(&one, &bind_at("10.77.0.2:8000")),
        Some(Answer::Done)
    );
    let ask = |scene: &mut Scene| scene.ask(&two, &bind_at("10.77.0.2:8000"));
    assert_eq!(errno(ask(&mut scene)), libc::EADDRINUSE);
    let before = [
        Request::Close(at("10.77.0.2:9"), Vec::new()),
        Request::Return(at("10.77.0.2:8000")),
        Request::MorePorts,
    ];
    for request in &before {
        one.say(&serde_json::to_vec(request).unwrap()).unwrap();
    }
    // The last client is served first.
    assert_eq!(ask(&mut scene), Some(Answer::Done));
    assert!(scene.turn().is_continue());
    let heard = one.hear().map(|(answer, _)| answer);
    assert!(matches!(heard, Some(Answer::Ports(_))), "{heard:?}");
}

/// The peers of its connections are told last: what they answer does not go by a short cut that nothing reads any more.
#[test]
fn the_end_of_a_lease_is_told_when_its_ports_are_free() {
    let (mut scene, server, client) = met("pair-end");
    scene.server.lender.steps.lock().unwrap().clear();
    drop(server);
    assert!(scene.comes_to((1, 1)));
    let steps = scene.server.lender.steps.lock().unwrap().clone();
    assert_eq!(steps, ["silent", "told", "ended"]);
    assert!(matches!(client.hear(), Some((News::Gone { pair: 1 }, _))));
    assert_eq!(scene.server.lender.leases.load(Relaxed), 1);
    // Another one may have the port then.
    let again = Holder::new(&mut scene);
    assert_eq!(
        scene.ask(&again.client, &bind_at(SERVED)),
        Some(Answer::Done)
    );
    client.wish(&mut scene, at(SERVED));
    assert_eq!(client.meets().0.pair, 2);
}

#[test]
fn wishes_are_heeded_so_often() {
    let (mut scene, _server, client) = met("pair-wishes");
    let others: Vec<_> = (0..2).map(|_| Holder::new(&mut scene)).collect();
    for _ in 0..70 {
        client.wish(&mut scene, at("10.77.0.2:9"));
    }
    let to = |other: &Holder| at(&format!("10.77.0.2:{}", other.range().0));
    client.wish(&mut scene, to(&others[0]));
    assert!(client.hear().is_none());
    scene.now += SECOND;
    client.wish(&mut scene, to(&others[1]));
    assert!(client.hear().is_some());
}

#[test]
fn a_lease_has_so_many() {
    let mut scene = Scene::new("pair-many", Limits::default());
    let server = Holder::new(&mut scene);
    assert_eq!(
        scene.ask(&server.client, &bind_at(SERVED)),
        Some(Answer::Done)
    );
    let clients: Vec<_> = (0..20).map(|_| Holder::new(&mut scene)).collect();
    let mut met = 0;
    for client in &clients {
        client.wish(&mut scene, at(SERVED));
        met += usize::from(client.hear().is_some());
    }
    assert_eq!(met, 16);
    // Between others there may be more.
    clients[18].wish(
        &mut scene,
        at(&format!("10.77.0.2:{}", clients[19].range().0)),
    );
    assert!(clients[18].hear().is_some() && clients[19].hear().is_some());
}

#[test]
fn an_application_that_reads_no_news_loses_its_short_cuts() {
    let (mut scene, server, client) = met("pair-silent");
    let mut told = 0;
    let other = soon(|| {
        let address = format!("10.77.0.2:{}", 10_000 + told);
        told += 1;
        assert_eq!(
            scene.ask(&server.client, &bind_at(&address)),
            Some(Answer::Done)
        );
        server.hear()
    });
    assert!(
        matches!(other, Some((News::Gone { pair: 1 }, _))),
        "{other:?}"
    );
    assert!(told > 10, "some are held");
    while client.hear().is_some() {}
    assert_eq!(
        recv(&client.news, &mut [0; 1], RecvFlags::empty())
            .unwrap()
            .1,
        0,
        "the end"
    );
    assert!(scene.turn().is_continue());
    let ready = scene.server.wait(scene.now, Some(Duration::ZERO)).unwrap();
    assert!(ready.wishes.is_empty(), "it is not listened to for ever");
    assert_eq!(scene.ask(&client.client, &bind(8081)), Some(Answer::Done));
    assert_eq!(scene.count(), (2, 2), "the leases go on");
}
