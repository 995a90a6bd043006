//! Roles, and which threads have them, by their names.

/// What a thread of a job is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Generator,
    Link,
    Protocol,
    Application,
    /// What disturbs, and what waits for all others.
    Other,
}

/// Names of the job's own threads begin so.
pub(super) const GENERATOR: &str = "generator";
pub(super) const APPLICATION: &str = "application";
pub(super) const PREEMPTER: &str = "preempter";

impl Role {
    pub const ALL: [Self; 5] = [
        Self::Generator,
        Self::Link,
        Self::Protocol,
        Self::Application,
        Self::Other,
    ];

    /// Those whose work is the receiver's.
    pub const RECEIVING: [Self; 3] = [Self::Link, Self::Protocol, Self::Application];

    /// Its name in rows.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Generator => "generator",
            Self::Link => "link",
            Self::Protocol => "protocol",
            Self::Application => "application",
            Self::Other => "other",
        }
    }

    /// Of a thread with this name.
    pub fn of(thread: &str) -> Self {
        let roles = [
            (GENERATOR, Self::Generator),
            (APPLICATION, Self::Application),
            ("netchan-link", Self::Link),
            ("netchan-core", Self::Protocol),
            ("netchan-proto", Self::Protocol),
            ("netchan-poll", Self::Protocol),
        ];
        let mut found = roles.iter().filter(|(name, _)| thread.starts_with(name));
        found.next().map_or(Self::Other, |(_, role)| *role)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn role_follows_from_a_threads_name() {
        let names = [
            "generator1",
            "netchan-link0",
            "netchan-core1",
            "application0",
            "netchan-watch",
        ];
        let roles = names.map(Role::of);
        assert_eq!(
            roles,
            [
                Role::Generator,
                Role::Link,
                Role::Protocol,
                Role::Application,
                Role::Other
            ]
        );
    }
}
