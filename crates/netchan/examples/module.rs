//! A module of one's own: it lets nothing through to port 23, and counts. Needs no rights.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use netchan::{
    Instant, Net,
    link::wire,
    module::{Boxed, Module, Point, Verdict, View},
};

struct NoTelnet {
    refused: Arc<AtomicU64>,
}

impl Module for NoTelnet {
    fn name(&self) -> &str {
        "no-telnet"
    }
    fn points(&self) -> &[Point] {
        &[Point::In]
    }
    fn packet(&self, _: Point, packet: &View<'_>, _: Instant) -> Verdict {
        match packet.ports() {
            Some((_, 23)) => {
                self.refused.fetch_add(1, Relaxed);
                Verdict::Drop
            }
            _ => Verdict::Pass,
        }
    }
}

fn main() -> io::Result<()> {
    let (left, right) = wire::pair(&wire::Options::default());
    let refused = Arc::new(AtomicU64::new(0));
    let server = Net::builder()
        .link_with(Box::new(left))
        .address("10.0.0.1/24")?
        .start()?;
    server.load_module(Boxed::any(NoTelnet {
        refused: refused.clone(),
    }))?;
    let client = Net::builder()
        .link_with(Box::new(right))
        .address("10.0.0.2/24")?
        .start()?;

    let _telnet = server.tcp().listen("0.0.0.0:23")?;
    let _web = server.tcp().listen("0.0.0.0:80")?;
    let limit = Duration::from_millis(300);
    let connect = |port| {
        client
            .tcp()
            .connect_timeout(([10, 0, 0, 1], port).into(), limit)
    };
    println!("port 80: {:?}", connect(80).map(drop));
    println!("port 23: {:?}", connect(23).map(drop));
    println!("{} packets were dropped", refused.load(Relaxed));
    assert!(refused.load(Relaxed) > 0);
    server.unload_module("no-telnet")?;
    client.tcp().connect("10.0.0.1:23")?;
    println!("port 23, without the module: a connection");
    Ok(())
}
