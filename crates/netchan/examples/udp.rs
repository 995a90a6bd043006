//! Datagrams between two stacks, over a wire in memory that loses a tenth of them. Needs no rights.

use std::{io, time::Duration};

use netchan::{Net, link::wire, units};

fn main() -> io::Result<()> {
    let options = wire::Options {
        loss: units::Probability::new(0.1),
        ..wire::Options::default()
    };
    let (left, right) = wire::pair(&options);
    let here = Net::builder()
        .link_with(Box::new(left))
        .address("fd00::1/64")?
        .start()?;
    let there = Net::builder()
        .link_with(Box::new(right))
        .address("fd00::2/64")?
        .start()?;

    let receiver = there.udp().bind("[::]:5000")?;
    receiver.set_read_timeout(Some(Duration::from_millis(500)))?;
    let sender = here.udp().bind("[::]:0")?;
    let to = "[fd00::2]:5000";
    let mut byte = [0; 1];
    // Until the neighbour is known, few datagrams wait for it: the first one comes before all others.
    while receiver.recv_from(&mut byte).is_err() {
        sender.send_to(&[0], to)?;
    }
    for number in 1..=100 {
        sender.send_to(&[number], to)?;
    }
    let mut arrived = 0;
    while let Ok((len, from)) = receiver.recv_from(&mut byte) {
        assert_eq!(
            (len, from.ip()),
            (1, "fd00::1".parse().expect("an address"))
        );
        arrived += usize::from(byte != [0]);
    }
    println!("{arrived} of 100 datagrams arrived");
    assert!((50..=100).contains(&arrived));
    Ok(())
}
