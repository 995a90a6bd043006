//! What a script sets, before it begins and on its way: Linux's `net.ipv4` names, as far as netchan has the same thing.

use std::{
    fs,
    io::{self, Read, Seek, SeekFrom},
};

use netchan::limits;
use proto::{
    tcp::{Config, CongestionControl, EcnMode, FastOpenKeys, MtuProbing, SynCookies},
    time::Duration,
};

/// What a world is started with.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// What connections start with.
    pub tcp: Config,
    /// Bytes of a send buffer.
    pub send_buffer: usize,
    /// Largest IP packet, bytes.
    pub mtu: usize,
    /// Longest IP packet that the script may send, bytes, if that is more: a network card's merged segments.
    pub longest: usize,
    /// Keys, initial sequence numbers and ports are a function of it.
    pub seed: u64,
    /// Our IPv4 address, where it is not the one that packetdrill uses by default.
    pub local_v4: Option<std::net::Ipv4Addr>,
    /// The cable takes several segments in one packet, as a link does behind which a network card cuts them.
    pub trains: bool,
    /// What was known of peers is to be forgotten: `tcp_metrics=flush`.
    pub forget_peers: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            tcp: Config {
                // As large as it is from the beginning: scripts say windows to the byte.
                receive_buffer: 1 << 20,
                ..Config::default()
            },
            send_buffer: limits::SEND_BUFFER,
            mtu: 1500,
            longest: 1500,
            seed: 1,
            local_v4: None,
            trains: false,
            forget_peers: false,
        }
    }
}

/// The sum of `retries` + 1 timeouts from `first` on, each twice the one before: what Linux's `*_retries` come to in time.
fn patience(first: Duration, retries: u32) -> Duration {
    let times = 2_u32.saturating_pow(retries.min(20).saturating_add(1)) - 1;
    first.saturating_mul(times)
}

impl Settings {
    /// Settings that are separated by commas (`tcp_sack=0,mtu=1500`); `settings=FILE` reads a file of them, a line each: then also what may be
    /// written behind its end.
    ///
    /// # Errors
    /// The system's for a file that cannot be read.
    pub fn read(flags: &str) -> io::Result<(Self, Option<Rest>)> {
        let (mut settings, mut rest) = (Self::default(), None);
        for flag in flags.split(',').map(str::trim) {
            match flag.strip_prefix("settings=") {
                Some(path) => {
                    let mut file = Rest(fs::File::open(path)?);
                    file.take(&mut settings)?;
                    rest = Some(file);
                }
                None => _ = settings.set(flag),
            }
        }
        Ok((settings, rest))
    }

    /// Takes one setting, `name=value`, the name with or without `net.ipv4.` (or the path of that). Unknown ones and those without a
    /// counterpart are taken without effect: false.
    pub fn set(&mut self, text: &str) -> bool {
        let Some((name, value)) = text.split_once('=') else {
            return false;
        };
        let name = name.trim();
        let name = name.rsplit(['.', '/']).next().unwrap_or(name);
        let value = value.trim().trim_matches('"');
        if name == "tcp_congestion_control" {
            let control = CongestionControl::called(value);
            self.tcp.congestion = control.unwrap_or(self.tcp.congestion);
            return control.is_some();
        }
        if name == "tcp_metrics" {
            self.forget_peers = value == "flush";
            return self.forget_peers;
        }
        if name == "local_ip" {
            self.local_v4 = value.parse().ok();
            return self.local_v4.is_some();
        }
        if name == "tcp_fastopen_key" {
            let keys = fast_open_keys(value);
            self.tcp.fast_open.keys = keys.or(self.tcp.fast_open.keys);
            return keys.is_some();
        }
        let numbers: Vec<u64> = value
            .split_whitespace()
            .map_while(|number| match number.strip_prefix("0x") {
                Some(hex) => u64::from_str_radix(hex, 16).ok(),
                None => number.parse().ok(),
            })
            .collect();
        self.set_numbers(name, &numbers).is_some()
    }

    fn set_numbers(&mut self, name: &str, numbers: &[u64]) -> Option<()> {
        let first = *numbers.first()?;
        let count = u32::try_from(first).ok()?;
        let seconds = Duration::from_secs(first.min(1 << 20));
        match name {
            "tcp_sack" => self.tcp.sack = first != 0,
            "tcp_timestamps" => self.tcp.timestamps = first != 0,
            "tcp_window_scaling" => self.tcp.window_scale = first != 0,
            "tcp_ecn" => self.tcp.ecn = ecn(first)?,
            "tcp_fastopen" => self.set_fast_open(first),
            "tcp_fastopen_blackhole_timeout_sec" => self.tcp.fast_open.black_hole = seconds,
            "tcp_mtu_probing" => {
                self.tcp.mtu_probing = match first {
                    0 => MtuProbing::Off,
                    1 => MtuProbing::BlackHole,
                    _ => MtuProbing::Always,
                };
            }
            "tcp_syncookies" => {
                self.tcp.syn_cookies = match first {
                    0 => SynCookies::Off,
                    1 => SynCookies::WhenFull,
                    _ => SynCookies::Always,
                };
            }
            "tcp_fin_timeout" => self.tcp.fin_wait_2 = seconds,
            "tcp_syn_retries" => {
                self.tcp.syn_timeout = patience(self.tcp.rto_initial, count);
            }
            "tcp_synack_retries" => {
                self.tcp.syn_received_timeout = patience(self.tcp.rto_initial, count);
            }
            "tcp_retries2" => self.tcp.retry_timeout = patience(self.tcp.rto_min, count),
            // Least, usual and most, bytes: Linux lets buffers grow to the most, and scales the window for it.
            "tcp_rmem" => {
                let most = u32::try_from(*numbers.get(2)?).ok()?;
                self.tcp.receive_buffer = most.clamp(4096, 1 << 30);
            }
            "tcp_wmem" => {
                let most = usize::try_from(*numbers.get(2)?).ok()?;
                self.send_buffer = most.clamp(4096, 1 << 30);
            }
            "tcp_min_tso_segs" => {
                self.tcp.burst_segments_min = u16::try_from(first).unwrap_or(u16::MAX);
            }
            "initcwnd" => self.tcp.initial_cwnd = count.clamp(1, 1 << 16),
            "mtu" => self.mtu = usize::try_from(first).ok()?.clamp(68, 65_535),
            "longest" => self.longest = usize::try_from(first).ok()?.clamp(68, 65_535),
            "seed" => self.seed = first,
            "trains" => self.trains = first != 0,
            _ => return None,
        }
        Some(())
    }
}

/// A file of settings, from where it was last read on.
#[derive(Debug)]
pub struct Rest(fs::File);

impl Rest {
    /// Takes the lines that have been written since into `settings`: whether there were any. The last one counts once its end is written.
    ///
    /// # Errors
    /// The system's.
    pub fn take(&mut self, settings: &mut Settings) -> io::Result<bool> {
        let mut text = String::new();
        let read = self.0.read_to_string(&mut text)?;
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        if whole < read {
            let back = i64::try_from(read - whole).unwrap_or(i64::MAX);
            self.0.seek(SeekFrom::Current(-back))?;
        }
        text.truncate(whole);
        for line in text.lines() {
            settings.set(line);
        }
        Ok(whole > 0)
    }
}

impl Settings {
    /// Linux's `tcp_fastopen`, a set of bits.
    const fn set_fast_open(&mut self, bits: u64) {
        let mode = &mut self.tcp.fast_open;
        mode.client = bits & 1 != 0;
        mode.server = bits & 2 != 0;
        mode.client_without_cookie = bits & 4 != 0;
        mode.server_without_cookie = bits & 0x200 != 0;
        mode.every_listener = bits & 0x400 != 0;
    }
}

/// Linux's `tcp_fastopen_key`: four words in hexadecimal, then maybe the four of the key before.
fn fast_open_keys(text: &str) -> Option<FastOpenKeys> {
    let mut keys = text.split(',').map(|key| {
        let mut bytes = [0; 16];
        let mut words = key.trim().split('-');
        for place in bytes.as_chunks_mut::<4>().0 {
            *place = u32::from_str_radix(words.next()?, 16).ok()?.to_le_bytes();
        }
        Some(bytes)
    });
    Some(FastOpenKeys {
        current: keys.next()??,
        previous: keys.next().flatten(),
    })
}

/// Linux's `tcp_ecn`.
const fn ecn(number: u64) -> Option<EcnMode> {
    Some(match number {
        0 => EcnMode::Off,
        1 => EcnMode::Classic,
        2 => EcnMode::Passive,
        3 => EcnMode::Accurate,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_go_by_their_linux_names() {
        let mut settings = Settings::default();
        assert!(settings.set("net.ipv4.tcp_sack=0") && !settings.tcp.sack);
        assert!(settings.set("net/ipv4/tcp_ecn = 1") && settings.tcp.ecn == EcnMode::Classic);
        assert!(settings.set("tcp_rmem=\"4096 540000 15728640\""));
        assert_eq!(settings.tcp.receive_buffer, 15_728_640);
        assert!(settings.set("tcp_syn_retries=5"));
        assert_eq!(settings.tcp.syn_timeout, Duration::from_secs(63));
        assert!(settings.set("tcp_congestion_control=reno"));
        assert_eq!(settings.tcp.congestion, CongestionControl::NewReno);
    }

    #[test]
    fn a_file_is_read_on_as_it_grows() {
        use std::io::Write;
        let name = format!("netchan-settings-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let mut file = fs::File::create(&path).unwrap();
        write!(file, "net.ipv4.tcp_sack=0\ntcp_ecn=").unwrap();
        let flags = format!("mtu=1280,settings={}", path.display());
        let (mut settings, rest) = Settings::read(&flags).unwrap();
        let mut rest = rest.unwrap();
        assert!(!settings.tcp.sack && settings.mtu == 1280);
        assert_eq!(settings.tcp.ecn, Settings::default().tcp.ecn, "half a line");
        assert!(!rest.take(&mut settings).unwrap());
        write!(file, "1\ntcp_metrics=flush\n").unwrap();
        assert!(rest.take(&mut settings).unwrap() && settings.forget_peers);
        assert_eq!(settings.tcp.ecn, EcnMode::Classic);
        assert!(!rest.take(&mut settings).unwrap(), "nothing new");
        fs::remove_file(path).unwrap();
    }

    #[test]
    fn what_netchan_does_not_have_is_taken_without_effect() {
        let mut settings = Settings::default();
        for text in [
            "tcp_fack=0",
            "tcp_ecn=9",
            "tcp_sack=",
            "",
            "tcp_congestion_control=vegas",
        ] {
            assert!(!settings.set(text), "{text}");
        }
        assert_eq!(settings.tcp, Settings::default().tcp);
    }
}
