//! Where programs of one `netchan run` find the one of them that has the links, and lends them to the others.

use std::io;

use rustix::rand::{GetRandomFlags, getrandom};

/// A socket with an abstract name, and what is to be said there: other processes see the name alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Door {
    /// The socket's name.
    pub name: String,
    /// What is said with the first request.
    pub secret: String,
}

impl Door {
    /// One that no other process knows.
    ///
    /// # Errors
    /// The system's. As the machine starts, it waits for random numbers.
    pub fn draw() -> io::Result<Self> {
        let mut drawn = [0; 24];
        if getrandom(&mut drawn, GetRandomFlags::empty())? < drawn.len() {
            return Err(io::ErrorKind::UnexpectedEof.into()); // so few come at once
        }
        let mut hex = drawn.iter().map(|byte| format!("{byte:02x}"));
        let name = hex.by_ref().take(8).collect::<String>();
        Ok(Self {
            name: format!("netchan-lends-{name}"),
            secret: hex.collect(),
        })
    }

    /// As [`super::DOOR`] says it.
    #[must_use]
    pub fn encode(&self) -> String {
        format!("{} {}", self.name, self.secret)
    }

    /// What it says; `None`: nothing.
    #[must_use]
    pub fn decode(said: &str) -> Option<Self> {
        let (name, secret) = said.split_once(' ')?;
        let is_word = |word: &str| !word.is_empty() && !word.contains(' ');
        (is_word(name) && is_word(secret)).then(|| Self {
            name: name.to_owned(),
            secret: secret.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Door;

    #[test]
    fn a_door_is_said_in_two_words() {
        let door = Door::draw().unwrap();
        assert_eq!((door.name.len(), door.secret.len()), (14 + 16, 32));
        assert_eq!(Door::decode(&door.encode()), Some(door.clone()));
        let other = Door::draw().unwrap();
        assert!(other.name != door.name && other.secret != door.secret);
        for nonsense in ["", "name", "name ", " secret", "name secret more"] {
            assert_eq!(Door::decode(nonsense), None, "{nonsense}");
        }
    }
}
