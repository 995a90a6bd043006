//! A segment as a script writes it: made into a packet, or compared with one.

use std::net::Ipv4Addr;

use proto::wire::{
    checksum,
    ipv4::{self, Protocol},
    tcp::{FastOpen, Flags, HEADER_LEN_MAX, Header, Options, SackBlocks, SeqNum, Timestamps},
};

/// A segment; sequence numbers are relative.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Segment {
    flags: Flags,
    seq: u32,
    len: u32,
    ack: Option<u32>,
    window: Option<u16>,
    urgent: Option<u16>,
    codepoint: Option<u8>,
    options: Option<Wanted>,
}

/// The options that are written.
#[derive(Clone, Debug, Default, PartialEq)]
struct Wanted {
    mss: Option<u16>,
    window_scale: Option<u8>,
    sack_permitted: bool,
    sack: Vec<(u32, u32)>,
    timestamps: Option<(Stamp, Stamp)>,
    fast_open: Option<FastOpen>,
}

/// A number in a timestamps option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stamp {
    Any,
    /// The last value that we sent.
    Last,
    /// The one before that.
    Before,
    Exactly(u32),
}

/// What turns relative numbers into those of the wire: of the sender, and of the side that it acknowledges.
#[derive(Clone, Copy, Debug)]
pub struct Base {
    pub sender: u32,
    pub receiver: u32,
    /// Our last TSval.
    pub stamp: u32,
    /// The one before that, from another moment.
    pub stamp_before: u32,
}

/// One end's address.
pub type End = (Ipv4Addr, u16);

/// The byte at this place of a stream.
pub fn byte_at(place: u32) -> u8 {
    u8::try_from(place % 251).unwrap_or(0)
}

/// A packet that left, taken apart.
#[derive(Clone, Debug)]
pub struct Parsed {
    pub header: Header,
    pub text: Vec<u8>,
    pub codepoint: u8,
}

impl Parsed {
    /// `None`: not TCP over IPv4, or the checksum is wrong.
    pub fn of(packet: &[u8]) -> Option<Self> {
        let ip = ipv4::Header::parse(packet).ok()?;
        if ip.protocol != Protocol::TCP {
            return None;
        }
        let segment = ip.payload(packet);
        let (from, to) = (ip.source.into(), ip.destination.into());
        let pseudo = checksum::pseudo_header(from, to, Protocol::TCP, segment.len())?;
        if !checksum::is_valid(pseudo + checksum::sum(segment)) {
            return None;
        }
        let (header, len) = Header::parse(segment).ok()?;
        Some(Self {
            header,
            text: segment.get(len..)?.to_vec(),
            codepoint: ip.tos & 3,
        })
    }

    /// As a script would write it.
    pub fn describe(&self, base: Base) -> String {
        let h = &self.header;
        let seq = h.seq.0.wrapping_sub(base.sender);
        let len = u32::try_from(self.text.len()).unwrap_or(0);
        let ack = h.ack.0.wrapping_sub(base.receiver);
        let mut out = format!(
            "{} {seq}:{}({len})",
            letters(h.flags),
            seq.wrapping_add(len)
        );
        if h.flags.contains(Flags::ACK) {
            out += &format!(" ack {ack}");
        }
        out += &format!(" win {}", h.window);
        if h.flags.contains(Flags::URG) {
            out += &format!(" urg {}", h.urgent);
        }
        let options = Wanted::of(&h.options, base);
        if options != Wanted::default() {
            out += &format!(" {options:?}");
        }
        out
    }
}

const LETTERS: [(char, Flags); 9] = [
    ('S', Flags::SYN),
    ('F', Flags::FIN),
    ('R', Flags::RST),
    ('P', Flags::PSH),
    ('U', Flags::URG),
    ('E', Flags::ECE),
    ('W', Flags::CWR),
    ('A', Flags::AE),
    ('.', Flags::ACK),
];

fn letters(flags: Flags) -> String {
    let all = LETTERS.iter().filter(|(_, flag)| flags.contains(*flag));
    all.map(|(letter, _)| letter).collect()
}

impl Wanted {
    /// What a header has, in a script's terms.
    fn of(options: &Options, base: Base) -> Self {
        let relative = |seq: SeqNum| seq.0.wrapping_sub(base.receiver);
        let stamps = |ts: Timestamps| (Stamp::Exactly(ts.value), Stamp::Exactly(ts.echo));
        Self {
            mss: options.mss,
            window_scale: options.window_scale,
            sack_permitted: options.sack_permitted,
            sack: options
                .sack
                .as_slice()
                .iter()
                .map(|&(left, right)| (relative(left), relative(right)))
                .collect(),
            timestamps: options.timestamps.map(stamps),
            fast_open: options.fast_open,
        }
    }

    fn matches(&self, found: &Self) -> bool {
        let stamps = match (self.timestamps, found.timestamps) {
            (None, None) => true,
            (Some((value, echo)), Some((v, e))) => value.matches(v) && echo.matches(e),
            _ => false,
        };
        let found = Self {
            timestamps: self.timestamps,
            ..found.clone()
        };
        stamps && *self == found
    }

    fn parse(text: &str) -> Result<Self, String> {
        let mut wanted = Self::default();
        for part in text
            .split(',')
            .map(str::trim)
            .filter(|part| !part.is_empty())
        {
            let (name, value) = part.split_once(' ').unwrap_or((part, ""));
            wanted
                .set(name, value.trim())
                .ok_or_else(|| format!("option {part} is not understood"))?;
        }
        Ok(wanted)
    }

    fn set(&mut self, name: &str, value: &str) -> Option<()> {
        match name {
            "mss" => self.mss = Some(value.parse().ok()?),
            "wscale" => self.window_scale = Some(value.parse().ok()?),
            "sackOK" => self.sack_permitted = true,
            "fo" if value.is_empty() => self.fast_open = Some(FastOpen::request(false)),
            "fo" => self.fast_open = Some(cookie(value)?),
            "ts" => {
                let (value, echo) = value.split_once(':')?;
                self.timestamps = Some((Stamp::parse(value)?, Stamp::parse(echo)?));
            }
            "sack" => {
                for block in value.split_whitespace() {
                    let (left, right) = block.split_once(':')?;
                    self.sack.push((left.parse().ok()?, right.parse().ok()?));
                }
            }
            _ => return None,
        }
        Some(())
    }

    fn build(&self, base: Base) -> Options {
        let mut sack = SackBlocks::NONE;
        for &(left, right) in &self.sack {
            let absolute = |seq: u32| SeqNum(seq.wrapping_add(base.receiver));
            sack.push(absolute(left), absolute(right));
        }
        let mut options = Options::NONE;
        options.mss = self.mss;
        options.window_scale = self.window_scale;
        options.sack_permitted = self.sack_permitted;
        options.sack = sack;
        options.fast_open = self.fast_open;
        options.timestamps = self.timestamps.map(|(value, echo)| Timestamps {
            value: value.number(base),
            echo: echo.number(base),
        });
        options
    }
}

/// A cookie in hexadecimal.
fn cookie(text: &str) -> Option<FastOpen> {
    let digits = text.as_bytes().chunks(2).map(str::from_utf8);
    let bytes = digits.map(|pair| u8::from_str_radix(pair.ok()?, 16).ok());
    FastOpen::new(&bytes.collect::<Option<Vec<u8>>>()?, false)
}

impl Stamp {
    fn parse(text: &str) -> Option<Self> {
        Some(match text.trim() {
            "*" => Self::Any,
            "last" => Self::Last,
            "before" => Self::Before,
            number => Self::Exactly(number.parse().ok()?),
        })
    }

    fn matches(self, found: Self) -> bool {
        matches!(self, Self::Any | Self::Last | Self::Before) || self == found
    }

    const fn number(self, base: Base) -> u32 {
        match self {
            Self::Any => 0,
            Self::Last => base.stamp,
            Self::Before => base.stamp_before,
            Self::Exactly(number) => number,
        }
    }
}

impl Segment {
    /// Reads `FLAGS BEGIN:END(LENGTH) ...`.
    ///
    /// # Errors
    /// What is not understood, in words.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (plain, options) = match text.split_once('<') {
            Some((plain, rest)) => {
                let inner = rest.trim().strip_suffix('>');
                let inner = inner.ok_or_else(|| "the options have no end".to_owned())?;
                (plain, Some(Wanted::parse(inner)?))
            }
            None => (text, None),
        };
        let mut words = plain.split_whitespace();
        let mut segment = Self {
            options,
            ..Self::default()
        };
        segment.set_flags(words.next().unwrap_or_default())?;
        segment.set_place(words.next().unwrap_or_default())?;
        while let Some(word) = words.next() {
            segment
                .set(word, &mut words)
                .ok_or_else(|| format!("{word} is not understood"))?;
        }
        if segment.flags.contains(Flags::ACK) != segment.ack.is_some() {
            return Err("a dot among the flags and ack NUMBER go together".to_owned());
        }
        Ok(segment)
    }

    fn set_flags(&mut self, text: &str) -> Result<(), String> {
        for letter in text.chars() {
            let known = LETTERS.iter().find(|(known, _)| *known == letter);
            let (_, flag) = known.ok_or_else(|| format!("there is no flag {letter}"))?;
            self.flags = self.flags | *flag;
        }
        Ok(())
    }

    fn set_place(&mut self, text: &str) -> Result<(), String> {
        let parts = || {
            let (begin, rest) = text.split_once(':')?;
            let (end, len) = rest.strip_suffix(')')?.split_once('(')?;
            let begin: u32 = begin.parse().ok()?;
            let len: u32 = len.parse().ok()?;
            (begin.wrapping_add(len) == end.parse::<u32>().ok()?).then_some((begin, len))
        };
        (self.seq, self.len) =
            parts().ok_or_else(|| format!("'{text}' is not BEGIN:END(LENGTH)"))?;
        Ok(())
    }

    fn set<'a>(&mut self, word: &str, words: &mut impl Iterator<Item = &'a str>) -> Option<()> {
        match word {
            "ack" => self.ack = Some(words.next()?.parse().ok()?),
            "win" => self.window = Some(words.next()?.parse().ok()?),
            "urg" => self.urgent = Some(words.next()?.parse().ok()?),
            "ect1" => self.codepoint = Some(1),
            "ect0" => self.codepoint = Some(2),
            "ce" => self.codepoint = Some(3),
            "not-ect" => self.codepoint = Some(0),
            _ => return None,
        }
        Some(())
    }

    /// The packet that it is.
    pub fn packet(&self, from: End, to: End, base: Base) -> Vec<u8> {
        let header = Header {
            source_port: from.1,
            destination_port: to.1,
            seq: SeqNum(self.seq.wrapping_add(base.sender)),
            ack: SeqNum(self.ack.map_or(0, |ack| ack.wrapping_add(base.receiver))),
            flags: self.flags,
            window: self.window.unwrap_or(u16::MAX),
            urgent: self.urgent.unwrap_or(0),
            options: self
                .options
                .as_ref()
                .map_or(Options::NONE, |wanted| wanted.build(base)),
        };
        let first = self.first_place();
        let text: Vec<u8> = (0..self.len)
            .map(|n| byte_at(first.wrapping_add(n)))
            .collect();
        let mut tcp = [0; HEADER_LEN_MAX];
        let len = header.emit_with_checksum(
            &mut tcp,
            checksum::sum(&text),
            text.len(),
            from.0.into(),
            to.0.into(),
        );
        let mut ip = ipv4::Header::new(Protocol::TCP, from.0, to.0);
        ip.tos = self.codepoint.unwrap_or(0);
        let mut packet = vec![0; ipv4::HEADER_LEN];
        ip.emit(len + text.len(), &mut packet);
        packet.extend_from_slice(&tcp[..len]);
        packet.extend_from_slice(&text);
        packet
    }

    /// Where in the stream its text begins: sequence number 1 is place 0.
    const fn first_place(&self) -> u32 {
        let syn = self.flags.contains(Flags::SYN) as u32;
        self.seq.wrapping_add(syn).wrapping_sub(1)
    }

    /// What is different in `found`, in words.
    pub fn difference(&self, found: &Parsed, base: Base) -> Option<String> {
        let h = &found.header;
        let relative = |seq: SeqNum, base: u32| seq.0.wrapping_sub(base);
        let ack = h
            .flags
            .contains(Flags::ACK)
            .then(|| relative(h.ack, base.receiver));
        let options = Wanted::of(&h.options, base);
        let differs = |what: &str| Some(what.to_owned());
        if h.flags != self.flags {
            return differs("flags");
        }
        if relative(h.seq, base.sender) != self.seq {
            return differs("sequence number");
        }
        if found.text.len() != self.len as usize {
            return differs("length");
        }
        if ack != self.ack {
            return differs("acknowledgment");
        }
        if self.window.is_some_and(|window| window != h.window) {
            return differs("window");
        }
        if self.urgent.is_some_and(|urgent| urgent != h.urgent) {
            return differs("urgent pointer");
        }
        if self.codepoint.is_some_and(|point| point != found.codepoint) {
            return differs("ECN codepoint");
        }
        if self
            .options
            .as_ref()
            .is_some_and(|wanted| !wanted.matches(&options))
        {
            return differs("options");
        }
        let first = self.first_place();
        let text = (0..self.len).map(|n| byte_at(first.wrapping_add(n)));
        // A probe of a closed window or of an idle peer carries a byte that was acknowledged long ago, or none.
        (!found.text.iter().copied().eq(text)).then(|| "text".to_owned())
    }

    /// Whether it opens a connection: its number is an initial one.
    pub const fn is_syn(&self) -> bool {
        self.flags.contains(Flags::SYN)
    }
}
