//! Random worlds: two connections with random settings, a channel that changes its faults, applications and peers that do anything.

use super::*;
use crate::tcp::Keepalive;
use crate::wire::tcp::FastOpen;

/// In each of the four parts.
const WORLDS: u64 = 60;

/// A world that has come to so many lines is over.
const LINES: usize = 1500;

fn pick<T: Copy>(rng: &mut Rng, of: &[T]) -> T {
    of[rng.below(of.len() as u64) as usize]
}

fn config(rng: &mut Rng) -> Config {
    let delayed_ack = Duration::from_millis(pick(rng, &[40, 40, 1, 200]));
    Config {
        mss: pick(rng, &[1460, 1460, 1460, 536, 8960]),
        receive_buffer: pick(rng, &[1 << 20, 1 << 20, 65_535, 20_000]),
        receive_buffer_max: pick(rng, &[0, 0, 1 << 21]),
        max_segments: pick(rng, &[4096, 4096, 60]),
        max_gaps: pick(rng, &[256, 256, 3]),
        window_scale: rng.per_mille(900),
        timestamps: rng.per_mille(800),
        sack: rng.per_mille(800),
        rack: rng.per_mille(850),
        nagle: rng.per_mille(600),
        quick_ack: rng.per_mille(800),
        delayed_ack,
        congestion: pick(rng, &CongestionControl::ALL),
        ecn: pick(rng, &EcnMode::ALL),
        pacing: rng.per_mille(150),
        burst: pick(rng, &[0, 0, 65_535]),
        user_timeout_option: pick(
            rng,
            &[
                UserTimeoutOption::Off,
                UserTimeoutOption::Off,
                UserTimeoutOption::Negotiable,
            ],
        ),
        mtu_probing: pick(
            rng,
            &[MtuProbing::Off, MtuProbing::BlackHole, MtuProbing::Always],
        ),
        retry_timeout: Duration::from_secs(pick(rng, &[924, 924, 10])),
        ..Config::default()
    }
}

/// The channel as it is for a while.
fn faults(rng: &mut Rng) -> Faults {
    Faults {
        loss: pick(rng, &[0, 0, 0, 10, 30, 100, 300, 1000]),
        duplicate: pick(rng, &[0, 0, 0, 20, 200]),
        reorder: pick(rng, &[0, 0, 30, 300]),
        delay: Duration::from_micros(pick(rng, &[500, 5_000, 5_000, 40_000])),
    }
}

/// What an application does, to read and to write.
fn transfer(pair: &mut Pair, at: usize, rng: &mut Rng) {
    let end = &mut pair.ends[at];
    match rng.below(8) {
        0 => end.paused = !end.paused,
        1 | 2 => end.read(pick(rng, &[1, 700, 5000, usize::MAX])),
        _ => {
            let open = end
                .conn
                .as_ref()
                .is_some_and(Connection::is_open_for_writing);
            if open && end.send.len() < 400_000 {
                let most = pick(rng, &[1, 100, 3_000, 20_000, 120_000]);
                let len = rng.below(most) as usize + 1;
                let text = rng.bytes(len);
                end.write(&text);
            }
        }
    }
}

/// What an application says of how it wants to be served.
fn set(conn: &mut Connection, now: Instant, rng: &mut Rng) {
    let on = rng.per_mille(500);
    match rng.below(16) {
        0 => conn.set_nagle(on),
        1 => conn.set_cork(on),
        2 => conn.set_quick_ack(on),
        3 => conn.mark_urgent(),
        4 => conn.end_record(),
        5 => conn.set_pacing_rate_max(pick(rng, &[0, 0, 1_000_000, 50_000])),
        6 => conn.set_congestion(pick(rng, &CongestionControl::ALL), now),
        7 => conn.set_burst(pick(rng, &[0, 10_000, 65_535])),
        8 => {
            let keepalive = Keepalive {
                idle: Duration::from_secs(3),
                interval: Duration::from_millis(700),
                probes: 3,
            };
            conn.set_keepalive(on.then_some(keepalive), now);
        }
        9 => conn.set_user_timeout(Duration::from_secs(pick(rng, &[5, 200, 924]))),
        10 => conn.limit_window(pick(rng, &[0, 3000, u32::MAX, u32::MAX])),
        11 => conn.set_receive_buffer(pick(rng, &[5000, 100_000, 1 << 20])),
        12 => conn.expect_at_once(200_000),
        13 => conn.set_path_limit(pick(rng, &[1000, 1400]), now),
        14 => conn.limit_window(u32::MAX),
        _ => conn.set_cork(false),
    }
}

/// A segment that the peer did not send, but could have, or nearly.
fn forge(pair: &mut Pair, to: usize, may_part: bool, rng: &mut Rng) {
    let all = [
        Flags::ACK,
        Flags::ACK,
        Flags::ACK | Flags::PSH,
        Flags::SYN,
        Flags::ACK | Flags::SYN,
    ];
    let rare = [
        Flags::RST,
        Flags::NONE,
        Flags::ACK | Flags::URG,
        Flags::ACK | Flags::RST,
    ];
    let flags = if rng.per_mille(200) {
        pick(rng, &rare)
    } else {
        pick(rng, &all)
    };
    let mut header = pair.forge(to, flags);
    // A RST exactly in order would end most worlds early.
    let apart: &[i32] = if flags.contains(Flags::RST) {
        &[1, 5000]
    } else {
        &[0, 0, -1, 1, -3000, 9000]
    };
    header.seq = header.seq + pick(rng, apart).cast_unsigned();
    let conn = pair.ends[to].conn();
    let (una, nxt) = (conn.snd.una, conn.snd.nxt);
    header.ack = header.ack + pick(rng, &[0_i32, 0, 0, -1, 1, -70_000]).cast_unsigned();
    header.window = pick(rng, &[0, 1, 500, 9_000, u16::MAX]);
    header.urgent = pick(rng, &[0, 1, 300]);
    if conn.sack && rng.per_mille(400) {
        let flight = u64::from((nxt - una).unsigned_abs());
        for _ in 0..=rng.below(3) {
            let left = una + rng.below(flight + 1) as u32;
            header
                .options
                .sack
                .push(left, left + rng.below(6000) as u32);
        }
    }
    // New text would part the two for good: it is left to worlds that shall end so.
    let is_old = header.seq < pair.ends[to].conn().rcv.nxt;
    let len = if is_old || may_part {
        pick(rng, &[0, 1, 700, 3000])
    } else {
        0
    };
    let text = rng.bytes(len);
    pair.deliver(to, &header, text);
}

/// What routers, the host and the applications' ends do now and then.
fn disturb(pair: &mut Pair, at: usize, rng: &mut Rng) {
    let now = pair.now;
    let end = &mut pair.ends[at];
    let Some(conn) = &mut end.conn else { return };
    match rng.below(12) {
        0 => {
            let error = IcmpError::v4(3, rng.below(16) as u8);
            let quoted = conn.snd.una + pick(rng, &[0, 0, 100_000]);
            if let Some(error) = error {
                end.events |= conn.on_icmp(error, quoted, true);
            }
        }
        1 => {
            let mss = pick(rng, &[1000, 1200, 1452]);
            let quoted = conn.snd.una;
            conn.on_icmp(IcmpError::TooBig { mss }, quoted, true);
        }
        2 => {
            conn.give_up_behind(&mut end.queue, &mut end.pool, 3000);
        }
        3 => pair.marks = rng.below(20) as u32,
        4 => pair.narrow = pick(rng, &[None, None, Some((1300, true)), Some((1300, false))]),
        5..8 => pair.faults = faults(rng),
        8 if rng.per_mille(150) => {
            conn.shutdown();
        }
        9 if rng.per_mille(80) => {
            let unread = end.queue.readable_bytes();
            conn.close(unread, now);
        }
        10 if rng.per_mille(30) => {
            conn.abort();
        }
        _ => pair.faults = Faults::NONE,
    }
}

/// Two ends that are about to open a connection: mostly one to the other, sometimes with text in the SYN (RFC 7413).
fn opening(seed: u64, client: &Config, server: &Config, rng: &mut Rng) -> Pair {
    let mut pair = match rng.below(20) {
        0 => Pair::simultaneous(seed, client),
        _ => Pair::listening(seed, client, server),
    };
    if rng.per_mille(100) {
        pair.fast = rng.per_mille(700);
        pair.ends[0].conn().open_fast(&FastOpenPeer {
            option: FastOpen::new(&[7; 8], false),
            carries_text: true,
            mss: pick(rng, &[None, Some(1460)]),
        });
        let len = pick(rng, &[10, 400, 4000]);
        pair.ends[0].write(&rng.bytes(len));
        pair.ends[0].conn().release();
    }
    if rng.per_mille(300) {
        pair.faults = faults(rng);
    }
    pair
}

/// One thing happens.
fn act(pair: &mut Pair, at: usize, may_part: bool, rng: &mut Rng) {
    let now = pair.now;
    match (rng.below(20), &mut pair.ends[at].conn) {
        (_, None) => {}
        (0..12, _) => transfer(pair, at, rng),
        (12..15, Some(conn)) => set(conn, now, rng),
        (15, Some(conn)) if conn.state().is_synchronized() => forge(pair, at, may_part, rng),
        _ => disturb(pair, at, rng),
    }
}

/// One world, from the SYN to the end of TIME-WAIT.
fn world(seed: u64) -> (String, Vec<String>) {
    let mut rng = Rng(seed);
    let (client, server) = (config(&mut rng), config(&mut rng));
    let mut pair = opening(seed, &client, &server, &mut rng);
    let mut recorder = Recorder::new(&pair);
    for _ in 0..pick(&mut rng, &[40, 80, 160]) {
        if recorder.lines.len() > LINES {
            break;
        }
        let at = rng.below(2) as usize;
        act(&mut pair, at, seed % 8 == 7, &mut rng);
        let ms = pick(&mut rng, &[0, 1, 10, 10, 100, 100, 700, 3000]);
        recorder.run(&mut pair, Duration::from_millis(ms));
        recorder.note_in_full(&pair);
    }
    for at in pick(&mut rng, &[[0, 1], [1, 0]]) {
        let end = &mut pair.ends[at];
        end.paused = false;
        end.read(usize::MAX);
        if let Some(conn) = &mut end.conn {
            conn.limit_window(u32::MAX);
            conn.shutdown();
        }
        let ms = pick(&mut rng, &[0, 3, 100, 20_000]);
        recorder.run(&mut pair, Duration::from_millis(ms));
    }
    pair.faults = Faults::NONE;
    recorder.run(&mut pair, Duration::from_secs(pick(&mut rng, &[1, 130])));
    recorder.note_in_full(&pair);
    let name = format!("{:?}/{:?}", client.congestion, server.congestion);
    (name, recorder.lines)
}

/// All of the lines in 64 bits.
fn digest(lines: &[String]) -> u64 {
    let mut hash = Rng(0);
    for line in lines {
        for chunk in line.as_bytes().chunks(8) {
            let word = chunk
                .iter()
                .fold(0, |word, byte| word << 8 | u64::from(*byte));
            hash = Rng(hash.next() ^ word);
        }
    }
    hash.next()
}

/// `NETCHAN_SEED=n` shows world n, for comparison with what another version does.
fn compare_worlds(part: u64) {
    if let Ok(seed) = std::env::var("NETCHAN_SEED") {
        let (_, lines) = world(seed.parse().expect("a number"));
        return lines.iter().for_each(|line| eprintln!("{line}"));
    }
    let mut recording = Recording::open(&format!("worlds-{part}"));
    for seed in part * WORLDS..(part + 1) * WORLDS {
        let (name, lines) = world(seed);
        let digest = digest(&lines);
        recording.take(&format!(
            "{seed} {name} {} lines {digest:016x}",
            lines.len()
        ));
    }
    recording.close();
}

#[test]
fn worlds_go_as_recorded() {
    compare_worlds(0);
}

#[test]
fn worlds_go_as_recorded_2() {
    compare_worlds(1);
}

#[test]
fn worlds_go_as_recorded_3() {
    compare_worlds(2);
}

#[test]
fn worlds_go_as_recorded_4() {
    compare_worlds(3);
}
