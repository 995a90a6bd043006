//! A router between two hosts: three stacks, two wires. Needs no rights.

use std::{
    io::{self, Read, Write},
    thread,
};

use netchan::{Net, link::wire};

fn main() -> io::Result<()> {
    let options = wire::Options::default();
    let (a, router_a) = wire::pair(&options);
    let (b, router_b) = wire::pair(&options);
    let router = Net::builder()
        .link_with(Box::new(router_a))
        .address("10.0.1.1/24")?
        .link_with(Box::new(router_b))
        .address("10.0.2.1/24")?
        .forwarding(true)
        .start()?;
    let host = |link, address, gateway| -> io::Result<Net> {
        let net = Net::builder().link_with(Box::new(link));
        net.address(address)?.gateway(gateway)?.start()
    };
    let client = host(a, "10.0.1.2/24", "10.0.1.1")?;
    let server = host(b, "10.0.2.2/24", "10.0.2.1")?;

    let listener = server.tcp().listen("0.0.0.0:80")?;
    let answer = thread::spawn(move || -> io::Result<()> {
        let (mut stream, peer) = listener.accept()?;
        write!(stream, "you are {}", peer.ip())
    });
    let mut stream = client.tcp().connect("10.0.2.2:80")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    println!("the server says: {text}");
    assert_eq!(text, "you are 10.0.1.2");
    answer.join().expect("the server does not panic")?;
    let links = router.show("links").unwrap_or_default();
    let sent = |link: usize| links[link]["tx_packets"].as_u64().unwrap_or(0);
    println!("the router sent {} and {} packets", sent(0), sent(1));
    Ok(())
}
