//! A host in thousands of groups: what one query, report or moment costs does not grow with them, and every group has its answer all the same.

use super::*;

const MANY: u16 = 4_000;

fn numbered(n: u16) -> IpAddr {
    let [high, low] = n.to_be_bytes();
    Ipv4Addr::new(239, 1, high, low).into()
}

fn crowd() -> World {
    let mut world = World::new();
    for n in 0..MANY {
        let fits = (world.membership).set(numbered(n), Filter::ANY_SOURCE, world.now, &mut |_| {});
        assert!(fits);
    }
    // All of the joins is reported.
    let end = world.now + SECOND * 60;
    while world.membership.deadline() <= end {
        world.now = world.membership.deadline().max(world.now);
        world.membership.on_timer(world.now, &mut |_| {});
    }
    world.membership.looked = 0;
    world
}

impl World {
    /// Goes on turn by turn, a millisecond each: what is said in each, and of how many groups at most.
    fn turns(&mut self, count: u32) -> (Vec<IpAddr>, usize) {
        let (mut said, mut most) = (Vec::new(), 0);
        for _ in 0..count {
            self.now = self.now + Duration::from_millis(1);
            let before = said.len();
            self.membership.looked = 0;
            (self.membership).on_timer(self.now, &mut |say| match say {
                Say::Report(records) => said.extend(records.iter().map(|r| r.group)),
                Say::Join(_, group) | Say::Leave(group) => said.push(group),
            });
            most = most
                .max(said.len() - before)
                .max(self.membership.looked / 3);
        }
        (said, most)
    }
}

#[test]
fn a_query_is_answered_for_thousands_of_groups_some_at_a_time() {
    for version in [Version::Third, Version::Second, Version::First] {
        let mut world = crowd();
        world.ask(version, None, &[], SECOND / 10);
        // Flooded with more of them, those that wait have their turn all the same.
        for _ in 0..1000 {
            world.ask(version, None, &[], SECOND / 10);
        }
        assert!(
            world.membership.looked <= 2 * GROUPS_A_TURN,
            "{version:?}: a query looks at {}",
            world.membership.looked
        );
        let (mut said, most) = world.turns(1000);
        assert!(most <= 2 * GROUPS_A_TURN, "{version:?}: {most} in one turn");
        said.sort_unstable();
        said.dedup();
        assert_eq!(said.len(), usize::from(MANY), "{version:?}");
    }
}

#[test]
fn what_is_about_one_group_looks_at_one() {
    let mut world = crowd();
    world.ask(Version::Second, Some(numbered(7)), &[], SECOND);
    for n in 0..100 {
        world.membership.looked = 0;
        world.ask(Version::Second, Some(numbered(n)), &[], SECOND);
        world.membership.on_report(numbered(n), world.now);
        world.ask(Version::Third, Some(numbered(n)), &[1, 2], SECOND);
        assert!(world.membership.looked <= 3, "{}", world.membership.looked);
    }
}

/// What was to be told before the version changed is told no more, although no pass has gone through the groups.
#[test]
fn a_change_of_the_version_cancels_what_waits() {
    let mut world = crowd();
    world.ask(Version::Third, Some(numbered(7)), &[], SECOND);
    world.ask(Version::Second, Some(numbered(9)), &[], SECOND);
    let (said, _) = world.turns(2000);
    assert_eq!(said, [numbered(9)]);
    assert!(
        world
            .membership
            .groups
            .values()
            .all(|g| g.listed == Instant::FAR)
    );
}
