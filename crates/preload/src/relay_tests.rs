//! What starts the relay.

use super::{INBOX, Is, Message, post};
use crate::{line::Wish, locks::hold};

/// A thread that began while the process is copied would take what stands still, and hold locks in the copy.
#[test]
fn no_message_starts_what_stands_still() {
    hold(&INBOX).is = Is::Standing;
    post(Message::Set(Wish {
        number: 0,
        level: 0,
        name: 0,
        value: Vec::new(),
    }));
    let mut inbox = hold(&INBOX);
    assert!(inbox.is == Is::Standing && inbox.thread.is_none());
    assert_eq!(inbox.messages.len(), 1, "it waits");
    inbox.messages.clear();
    inbox.is = Is::Absent;
}
