//! The reassembler against a naive model, on random fragments, and against any bytes.

use super::tests::{SEED, T0, data, push4, small, v4, v6};
use super::*;
use crate::wire::ipv6::extension::walk;
use proptest::prelude::*;
use std::vec::Vec;

/// What the reassembler must do, said as plainly as possible.
#[derive(Default)]
struct Model {
    dead: bool,
    parts: Vec<(usize, usize, bool, Vec<u8>)>,
}

#[derive(Debug, PartialEq)]
enum Said {
    Waiting,
    Complete(Vec<u8>),
    Dropped(DropReason),
}

impl Model {
    fn push(&mut self, start: usize, more: bool, data: &[u8], limit: usize) -> Said {
        let end = start + data.len();
        if self.dead {
            return Said::Dropped(DropReason::Dead);
        }
        if self.parts.contains(&(start, end, more, data.to_vec())) {
            return Said::Dropped(DropReason::Duplicate);
        }
        let total = self.parts.iter().find(|p| !p.2).map(|p| p.1);
        let overlap = self.parts.iter().any(|p| p.0 < end && start < p.1);
        let bad_end = match (total, more) {
            (Some(total), true) => end >= total,
            (Some(total), false) => end != total,
            (None, true) => false,
            (None, false) => self.parts.iter().any(|p| p.1 > end),
        };
        if overlap || bad_end {
            self.dead = true;
            return Said::Dropped(DropReason::Overlap);
        }
        if self.parts.len() == limit {
            self.dead = true;
            return Said::Dropped(DropReason::TooMany);
        }
        self.parts.push((start, end, more, data.to_vec()));
        self.parts.sort();
        let have: usize = self.parts.iter().map(|p| p.1 - p.0).sum();
        if self.parts.iter().any(|p| !p.2 && p.1 == have) {
            let whole = self.parts.drain(..).flat_map(|p| p.3).collect();
            return Said::Complete(whole);
        }
        Said::Waiting
    }
}

proptest! {
    /// Honest cuts in any order, with copies: always whole, never anything else.
    #[test]
    fn honest_fragments_complete(
        len in 16usize..4000,
        cuts in prop::collection::btree_set(1usize..500, 1..20),
        order in any::<prop::sample::Index>(),
        shuffle in any::<u64>(),
    ) {
        let whole = data(len);
        let mut edges: Vec<usize> = cuts.into_iter().map(|c| c * 8).filter(|c| *c >= 8 && *c < len).collect();
        edges.insert(0, 0);
        edges.push(len);
        if edges.len() <= 2 {
            return Ok(());
        }
        let mut parts: Vec<(usize, usize)> = edges.windows(2).map(|w| (w[0], w[1])).collect();
        let copy = parts[order.index(parts.len())];
        parts.push(copy);
        let mut random = crate::ip::keyed::Random::new(Seed([shuffle, 0]));
        for n in (1..parts.len()).rev() {
            let other = usize::try_from(random.below(n as u64 + 1)).unwrap();
            parts.swap(n, other);
        }
        let mut r = small();
        let mut completed = 0;
        for (from, to) in parts {
            let packet = v4(3, u16::try_from(from).unwrap(), to < len, &whole[from..to]);
            match push4(&mut r, &packet, T0) {
                Outcome::Complete(packet) => {
                    completed += 1;
                    prop_assert_eq!(&packet[20..], &whole[..]);
                }
                Outcome::Waiting | Outcome::Dropped(DropReason::Duplicate) => {}
                other => prop_assert!(false, "{:?}", other),
            }
        }
        prop_assert_eq!(completed, 1);
    }

    /// Any fragments at all: the same answers as the model's, and all memory comes back.
    #[test]
    fn agrees_with_the_model(
        fragments in prop::collection::vec((0usize..12, 1usize..6, any::<bool>(), 0u8..2), 1..40),
        limit in 2usize..12,
    ) {
        let config = Config { bytes: 0, datagrams: 2, fragments: limit, ..Config::default() };
        let mut r = Reassembler::new(config, SEED);
        let mut model = Model::default();
        for (start, len, more, fill) in fragments {
            let (start, mut len) = (start * 8, len * 8);
            if !more && len > 8 { len -= 3 }
            let bytes = std::vec![fill; len];
            let want = model.push(start, more, &bytes, limit);
            let got = match push4(&mut r, &v4(3, u16::try_from(start).unwrap(), more, &bytes), T0) {
                Outcome::Waiting => Said::Waiting,
                Outcome::Complete(packet) => Said::Complete(packet[20..].to_vec()),
                Outcome::Dropped(reason) => Said::Dropped(reason),
                other => { prop_assert!(false, "{:?}", other); return Ok(()) }
            };
            // A whole packet of one fragment cannot come here over the wire, but no harm is done.
            prop_assert_eq!(got, want);
        }
        r.on_timer(Instant::FAR, |_| {});
        prop_assert!(r.is_empty());
        prop_assert_eq!(r.free_bytes(), BYTES_MIN);
    }

    /// Mutated packets of both families: no panic, no leak.
    #[test]
    fn any_bytes_are_survived(
        packets in prop::collection::vec((any::<bool>(), 0u16..100, any::<bool>(), 0usize..100,
            prop::collection::vec((0usize..160, any::<u8>()), 0..6)), 1..60)
    ) {
        let mut r = small();
        for (six, offset, more, len, noise) in packets {
            let mut packet = if six { v6(1, offset * 8, more, 0, &data(len)) } else { v4(1, offset * 8, more, &data(len)) };
            for (at, byte) in noise {
                if let Some(b) = packet.get_mut(at) { *b = byte }
            }
            if let Ok(header) = ipv4::Header::parse(&packet) {
                let _ = r.push_v4(&packet, &header, T0);
            }
            if let Ok(header) = ipv6::Header::parse(&packet)
                && let Ok(upper) = walk(header.next_header, header.payload(&packet))
            {
                let _ = r.push_v6(&packet, &header, &upper, T0);
            }
        }
        r.on_timer(Instant::FAR, |quote| assert!(quote.len() <= 1280));
        prop_assert!(r.is_empty());
        prop_assert_eq!(r.free_bytes(), BYTES_MIN);
    }
}
