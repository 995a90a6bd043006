//! Packets of protocols that the stack does not speak, through channels of the application's own: IP protocol 253 and an EtherType for experiments.
//! Two stacks on a wire in memory. Needs no rights.

use std::{io, thread, time::Duration};

use netchan::{MacAddr, Net, PacketDestination, PacketProtocol, link::wire};

fn main() -> io::Result<()> {
    let (left, right) = wire::pair(&wire::Options::default());
    let here = Net::builder()
        .link_with(Box::new(left))
        .address("10.0.0.1/24")?
        .start()?;
    let there = Net::builder()
        .link_with(Box::new(right))
        .address("10.0.0.2/24")?
        .start()?;

    // IP packets: the stack makes the header, finds the route and the neighbour, and cuts what is too long.
    let protocol = PacketProtocol::Ip(253); // for experiments (RFC 3692)
    let server = there.packet_channel(protocol)?;
    let echo = thread::spawn(move || -> io::Result<()> {
        let mut packets = Vec::new();
        for _ in 0..2 {
            server.recv_batch(&mut packets, 32)?;
            // Read where they lie; their buffers go home as the list is cleared.
            for packet in packets.drain(..) {
                let from = packet.source_ip().expect("an IP packet");
                server.send_to(packet.payload(), from)?;
            }
        }
        Ok(())
    });
    let client = here.packet_channel(protocol)?;
    client.set_read_timeout(Some(Duration::from_secs(10)))?;
    let to: std::net::IpAddr = "10.0.0.2".parse().expect("an address");
    for text in [&b"short"[..], &[b'x'; 10_000]] {
        client.send_to(text, to)?;
        let answer = client.recv()?;
        assert_eq!((answer.payload(), answer.source_ip()), (text, Some(to)));
        println!("{} bytes there and back", text.len());
    }
    echo.join().expect("the echo does not panic")?;

    // Frames: to a station on a link, from the link's own address.
    let protocol = PacketProtocol::EtherType(0x88b5); // for experiments (IEEE 802)
    let receiver = there.packet_channel(protocol)?;
    receiver.set_read_timeout(Some(Duration::from_secs(10)))?;
    let mac = MacAddr(there.links()[0].mac);
    let station = PacketDestination::Station { link: 0, mac };
    here.packet_channel(protocol)?
        .send_to(b"a frame", station)?;
    let frame = receiver.recv()?;
    assert_eq!(frame.payload(), b"a frame");
    println!("a frame from {}", frame.source_mac().expect("a frame"));
    Ok(())
}
