//! What a shard takes of the machine's memory before anything uses it. In a process of its own, and in one test: it looks at all of the
//! process's memory.

use netchan::{Clock, Net, Regime, Threads, link::wire};

/// Bytes of this process in memory.
fn resident() -> i64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: i64 = statm.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096
}

/// A stack with so many shards, each for a socket of its own, and the other end of its link.
fn stack(shards: usize) -> (Net, wire::Wire) {
    let (link, other) = wire::pair(&wire::Options::default());
    let builder = Net::builder().link_with(Box::new(link));
    let builder = builder.address("10.0.0.1/24").unwrap();
    let builder = builder.regime(Regime::SocketChannel).shards(shards);
    let builder = builder
        .threads(Threads::Stepped)
        .clock(Clock::new_virtual());
    (builder.seed(1).start().unwrap(), other)
}

/// What a shard has room for is address space. Also in a process in which stacks were started and dropped before: what an allocator hands
/// out a second time is not zero, and zeroing it touches all of it. In the first round, and in each one if what was freed is given back
/// in between (`malloc_trim`), a shard takes 0.8 MB; what the allocator keeps is added to that here. Zeroed send buffers took 64 MB.
#[test]
fn an_unused_shard_takes_little_memory() {
    const MOST: i64 = 2 << 20;
    let begin = resident();
    let few = stack(2);
    let two = resident() - begin;
    drop(few);
    for round in 0..4 {
        let many = stack(64);
        let each = (resident() - begin - two) / 62;
        println!("round {round}: {each} bytes a shard");
        assert!(
            each <= MOST,
            "round {round}: {each} bytes a shard in memory"
        );
        drop(many);
    }
}
