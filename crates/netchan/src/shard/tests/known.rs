//! What a shard tells of itself, and what it knows of others.

use super::*;
use crate::shard::peers::Peers;

fn rows(world: &World, what: &str) -> Vec<[u64; 3]> {
    let rows = world.nets[1].show("memory").unwrap();
    let rows = rows.as_array().unwrap().iter();
    let number = |row: &serde_json::Value, name: &str| row[name].as_u64().unwrap();
    let its = |row: &&serde_json::Value| row["what"] == what && row["of"] == "shard 0";
    rows.filter(its)
        .map(|row| ["free", "all", "each_bytes"].map(|name| number(row, name)))
        .collect()
}

/// `netchan show memory`: what is in use is not free, and is again once it was read.
#[test]
fn memory_in_use_is_not_free() {
    let world = World::new();
    let (client, server) = world.connection();
    let whats = ["transmit buffers", "segment nodes", "shelf"];
    let before = whats.map(|what| rows(&world, what));
    let counts = before.each_ref().map(Vec::len);
    assert_eq!(counts, [1, 1, 3]);
    assert!(
        before
            .iter()
            .flatten()
            .all(|&[free, all, _]| free > 1 && free <= all)
    );
    let sizes: Vec<u64> = before[2].iter().map(|row| row[2]).collect();
    assert!(sizes.is_sorted_by(|a, b| a < b), "{sizes:?}");
    assert!(before[0][0][2] >= 1500, "a packet of the link fits");
    assert_eq!(before[1][0][0], before[1][0][1], "no segment waits");
    for _ in 0..20 {
        send(&client, &[7; 100], None).unwrap();
        world.pass(1);
    }
    world.pass(100);
    let free = |what| rows(&world, what).iter().map(|row| row[0]).sum::<u64>();
    let was = |of: usize| before[of].iter().map(|row| row[0]).sum::<u64>();
    assert!(free("segment nodes") < was(1));
    assert_eq!(receive(&server).unwrap().len(), 2000);
    world.pass(100);
    assert_eq!((free("segment nodes"), free("shelf")), (was(1), was(2)));
}

/// Of two peers that share a place each has its own route and address.
#[test]
fn peers_at_one_place_are_not_taken_for_each_other() {
    let world = World::new();
    let (v4, v6) = (to("10.0.0.2:80"), to("[fd77::2]:80"));
    world.shard(0, |shard, _| {
        let mut peers = Peers::new();
        for remote in [v4, v6, v4, v4, v6] {
            let found = peers.get(&shard.host, remote, None, (None, 0)).unwrap();
            let ours: IpAddr = if remote == v4 { "10.0.0.1" } else { "fd77::1" }
                .parse()
                .unwrap();
            assert_eq!((found.source, found.interface), (ours, 0));
        }
        // From another address of ours, which is nobody else's business.
        let other = Some("10.0.0.3".parse().unwrap());
        let found = peers.get(&shard.host, v4, other, (None, 0)).unwrap();
        assert_eq!(Some(found.source), other);
        let usual = peers.get(&shard.host, v4, None, (None, 0)).unwrap();
        assert_eq!(usual.source, IpAddr::from([10, 0, 0, 1]));
        assert!(
            peers
                .get(&shard.host, to("192.0.2.1:80"), None, (None, 0))
                .is_none()
        );
    });
}
