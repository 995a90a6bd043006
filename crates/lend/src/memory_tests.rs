//! How much memory leases are given: all that they ask for where there is plenty, and some of what their user has left.

use super::*;

const GIB: u64 = 1 << 30;

fn asking(memory: Option<u64>) -> Request {
    Request::Attach {
        version: VERSION,
        link: String::new(),
        program: "it".to_owned(),
        secret: String::new(),
        memory,
    }
}

/// The sizes of leases of one user after another, each held, until one is refused: with which errno, and why.
fn fill(scene: &mut Scene, user: u32, memory: Option<u64>) -> (Vec<(Client, u64)>, i32, String) {
    let mut all = Vec::new();
    loop {
        let client = scene.client(user);
        let request = serde_json::to_vec(&asking(memory)).unwrap();
        client.say(&request).unwrap();
        assert!(scene.turn().is_continue());
        match client.hear().unwrap().0 {
            Answer::Terms(_) => all.push((client, scene.sizes().last().copied().unwrap())),
            Answer::Refused { errno, why } => {
                assert!(client.is_closed());
                return (all, errno, why);
            }
            other => panic!("{other:?}"),
        }
    }
}

impl Scene {
    /// What each lease may take, bytes.
    fn sizes(&self) -> Vec<u64> {
        let leases = self
            .server
            .connections
            .iter()
            .filter_map(|one| one.lease.as_ref());
        leases.map(Lease::memory).collect()
    }

    fn bounded(name: &str, memory: u64) -> Self {
        let mut scene = Self::new(
            name,
            Limits {
                all: 4096,
                each: 4096,
            },
        );
        scene.server.rules = Rules::default().with_memory(Some(memory));
        scene
    }
}

#[test]
fn leases_of_a_user_share_what_it_may_have() {
    let mut scene = Scene::bounded("shares", 3 * GIB);
    let (all, errno, why) = fill(&mut scene, 1000, None);
    assert_eq!(errno, libc::EDQUOT, "{why}");
    assert!(
        why.contains("lease_memory_max") && why.contains("user 1000"),
        "{why}"
    );
    let sizes: Vec<u64> = all.iter().map(|(_, size)| *size).collect();
    let sum: u64 = sizes.iter().sum();
    let least = LeaseSize::LEAST.memory();
    assert!(
        sum <= 3 * GIB && sum + least > 3 * GIB,
        "{sum} in {}",
        sizes.len()
    );
    // The first ones are large, and there are many.
    assert_eq!(sizes.first(), Some(&LeaseSize::MOST.memory()));
    assert_eq!(sizes.last(), Some(&least));
    assert!(
        sizes.is_sorted_by(|one, next| one >= next) && sizes.len() > 80,
        "{sizes:?}"
    );
    // Another user, and root, have theirs; root's has no bound.
    for user in [1001, 0] {
        let client = scene.attached(user);
        assert_eq!(
            scene.sizes().last(),
            Some(&LeaseSize::MOST.memory()),
            "{user}"
        );
        drop(client);
    }
    // What goes back may be given again.
    let before = all.len();
    drop(all);
    assert!(scene.comes_to((0, 0)));
    assert_eq!(fill(&mut scene, 1000, None).0.len(), before);
}

#[test]
fn root_and_a_programs_own_processes_have_no_bound() {
    let mut scene = Scene::bounded("unbounded", 16 << 20);
    let root: Vec<_> = (0..4).map(|_| scene.attached(0)).collect();
    assert_eq!(scene.sizes(), [LeaseSize::MOST.memory(); 4]);
    drop(root);
    assert!(scene.comes_to((0, 0)));
    scene.server.rules = Rules::free_to(String::new()).with_memory(Some(16 << 20));
    let own: Vec<_> = (0..4).map(|_| scene.attached(1000)).collect();
    assert_eq!(scene.sizes(), [LeaseSize::MOST.memory(); 4]);
    drop(own);
}

#[test]
fn a_program_has_no_more_than_it_asks_for() {
    let mut scene = Scene::bounded("asked", 3 * GIB);
    let least = LeaseSize::LEAST.memory();
    for user in [0, 1000] {
        for (asked, given) in [
            (least, least),
            (2 * least - 1, least),
            (2 * least, 2 * least),
            (u64::MAX, LeaseSize::MOST.memory()),
        ] {
            let client = scene.client(user);
            let answer = scene.ask(&client, &asking(Some(asked)));
            assert!(matches!(answer, Some(Answer::Terms(_))), "{answer:?}");
            assert_eq!(scene.sizes(), [given], "{asked}");
            drop(client);
            assert!(scene.comes_to((0, 0)));
        }
        for asked in [0, 1, least - 1] {
            let client = scene.client(user);
            let Some(Answer::Refused { errno, why }) = scene.ask(&client, &asking(Some(asked)))
            else {
                panic!("{asked} bytes are enough");
            };
            assert_eq!(errno, libc::EDQUOT);
            assert!(why.contains(&format!("{least} bytes")), "{why}");
        }
        assert!(scene.comes_to((0, 0)));
    }
    // Many small ones in place of few.
    let (all, ..) = fill(&mut scene, 1000, Some(least));
    assert_eq!(all.len() as u64, 3 * GIB / least);
}

#[test]
fn what_is_not_said_is_half_of_the_machines_memory() {
    let mut scene = Scene::bounded("half", 0);
    scene.server.rules = Rules::default();
    drop(scene.attached(1000));
    let size = |held| Rules::default().size(1000, held, None);
    let information = std::fs::read_to_string("/proc/meminfo").unwrap();
    let total = information
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"));
    let total: u64 = total
        .and_then(|kib| kib.trim().strip_suffix(" kB")?.parse().ok())
        .unwrap();
    let half = total * 1024 / 2;
    let least = LeaseSize::LEAST.memory();
    assert!(size(half - least - (1 << 20)).is_ok());
    assert!(size(half + (1 << 20) - least).is_err());
}
