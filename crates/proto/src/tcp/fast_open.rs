//! TCP Fast Open (RFC 7413): text in the SYN, between hosts that have met before.
//!
//! A client's SYN asks for a cookie, or shows one and carries text. A server that finds the cookie to be its own takes the text and may
//! answer it before the handshake is over: its connection is in SYN-RECEIVED, and yet is read and written. What is not acknowledged by
//! the SYN-ACK is sent again as if it had never been sent (RFC 7413 §4.2.1), and a SYN that is sent again is a plain one.

use super::image::{Distance, imaged};
use crate::time::Instant;
use crate::wire::tcp::FastOpen as Cookie;

/// What an active open knows of its peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FastOpenPeer {
    /// The cookie, or the request for one, that the SYN carries.
    pub option: Option<Cookie>,
    /// Whether the SYN may carry text: it waits for the first write.
    pub carries_text: bool,
    /// The segment size that the peer announced last time.
    pub mss: Option<u16>,
}

/// What came of an active open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FastOpenResult {
    /// The option of the SYN.
    pub sent: Option<Cookie>,
    /// That of the SYN-ACK.
    pub received: Option<Cookie>,
    /// The segment size that the peer announced.
    pub mss: u16,
    /// The SYN carried text.
    pub carried_text: bool,
    /// All of that was acknowledged by the SYN-ACK.
    pub text_taken: bool,
    /// The SYN had to be sent again.
    pub repeated: bool,
}

/// The part of a connection that one without Fast Open does not have.
#[derive(Clone, Debug)]
#[cfg_attr(test, derive(PartialEq))]
pub(super) struct FastOpen {
    /// The text of the peer's SYN was taken; else we are the client, or answer with a cookie.
    pub takes_text: bool,
    /// Bytes of it.
    pub taken: u32,
    /// In our first SYN or SYN-ACK.
    pub option: Option<Cookie>,
    /// Most bytes of text in our SYN.
    pub text_max: u32,
    /// The SYN waits for the first write.
    pub held: bool,
    /// A write waits for the end of the handshake.
    pub followed: bool,
    /// Bytes of text that our SYN carried.
    pub sent: u32,
    /// When our SYN or SYN-ACK first left.
    pub at: Instant,
    /// Text in a SYN was taken, by us or by the peer.
    pub syn_data: bool,
    pub result: Option<FastOpenResult>,
}

impl FastOpen {
    pub const fn new(option: Option<Cookie>) -> Self {
        Self {
            takes_text: false,
            taken: 0,
            option,
            text_max: 0,
            held: false,
            followed: false,
            sent: 0,
            at: Instant::ZERO,
            syn_data: false,
            result: None,
        }
    }
}

imaged! {
    /// [`FastOpen`] as plain data.
    pub(super) struct FastOpenImage of FastOpen {
        takes_text: bool,
        taken: u32,
        option: Option<Cookie>,
        text_max: u32,
        held: bool,
        followed: bool,
        sent: u32,
        at: Distance as part,
        syn_data: bool,
        result: Option<FastOpenResult>,
    }
}

#[cfg(test)]
impl super::image::scramble::Scramble for FastOpenResult {
    fn scramble(&mut self, dice: &mut super::image::scramble::Scrambler) {
        self.mss.scramble(dice);
    }
}
