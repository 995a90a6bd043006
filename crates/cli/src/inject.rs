//! `netchan inject`: frames of a capture file, written out of a running stack's link, or into the stack as if they had come in by it.

use std::{
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
};

use indicatif::ProgressBar;
use netchan::{
    control::{
        Stack,
        inject::{Injection, RATE_MAX, Request},
    },
    tap::Way,
};
use pcap_file::{
    DataLink,
    pcap::PcapReader,
    pcapng::{Block, PcapNgReader},
};
use serde_json::json;

use crate::{
    capture::only,
    failure::{Failure, Outcome, at, failed},
    output::{print, print_json, printable},
    show::choose,
};

/// How much of the file is read at a time, bytes; also the longest record of it that can be read.
const CHUNK: usize = 1 << 20;
/// What pcapng files begin with.
const PCAPNG: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];

/// Writes the frames of a capture file out of a running stack's link, or into the stack
#[derive(clap::Args)]
#[command(
    after_help = "FILE is pcap or pcapng, of Ethernet, its frames whole. The whole file is checked before the first frame is sent. Frames go out as they are, past modules and routes, \
        and come in as if the link had brought them; taps see them. Where the link does not take them in time, or the stack ends, the number that was written is said. \
        Frames that go the other way in the file are sent, too: choose them when they are captured.\n\n\
        Examples:\n  netchan inject --link nc0 query.pcapng\n  netchan inject --in --rate 100 attack.pcap"
)]
pub struct Arguments {
    /// The frames
    file: PathBuf,
    /// The link, where there are several (as `netchan show links` names it)
    #[arg(long, default_value = "")]
    link: String,
    /// Into the stack, as if the link had brought them
    #[arg(long = "in")]
    inward: bool,
    /// Frames a second at most
    #[arg(long, value_name = "N", default_value_t = netchan::control::inject::RATE, value_parser = clap::value_parser!(u32).range(1..=i64::from(RATE_MAX)))]
    rate: u32,
    /// Only this stack: its process, or PID-N where one process has several (as `netchan show` lists them)
    #[arg(long, value_name = "PID")]
    pid: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub fn inject(arguments: &Arguments) -> Outcome {
    let path = &arguments.file;
    let wrong = |why: String| failed(format!("{}: {why}", path.display()));
    let count = each_frame(open(path)?, |_| Ok(true)).map_err(wrong)?;
    if count == 0 {
        return Err(wrong("it holds no frame".to_owned()));
    }
    let stack = only(choose(arguments.pid.as_deref())?)?;
    let request = Request {
        link: arguments.link.clone(),
        way: if arguments.inward { Way::In } else { Way::Out },
        rate: Some(arguments.rate),
    };
    let refused = |why| failed(format!("stack {}: {why}", stack.id));
    let mut injection = stack.inject(&request).map_err(refused)?;
    let most = injection.frame_max;
    let fits = |frame: &[u8]| match frame.len() as u64 {
        length if length > most => Err(format!("{length} bytes: the link takes at most {most}")),
        _ => Ok(true),
    };
    each_frame(open(path)?, fits).map_err(wrong)?;
    let link = printable(&injection.link);
    let bar = match count / u64::from(arguments.rate) {
        0..=2 => ProgressBar::hidden(),
        _ => ProgressBar::new(count),
    };
    let sending = |frame: &[u8]| {
        bar.inc(1);
        injection.write(frame).map_err(|e| e.to_string())
    };
    each_frame(open(path)?, sending).map_err(wrong)?;
    bar.finish_and_clear();
    report(arguments, &stack, injection, &link)
}

fn report(arguments: &Arguments, stack: &Stack, injection: Injection, link: &str) -> Outcome {
    let written = injection.finish();
    let written = written.map_err(|why| failed(format!("stack {}: {why}", stack.id)))?;
    let way = if arguments.inward { "in" } else { "out" };
    if arguments.json {
        return print_json(
            &json!({ "stack": stack.id, "link": link, "way": way, "frames": written }),
        );
    }
    print(&format!("{written} frames were written {way} by {link}\n"))
}

fn open(path: &Path) -> Result<File, Failure> {
    let file = File::open(path).map_err(at(path.display()))?;
    if !file.metadata().is_ok_and(|found| found.is_file()) {
        return Err(failed(format!("{}: is no file", path.display())));
    }
    Ok(file)
}

/// Gives each frame to `take`, until it wants no more. How many it took.
///
/// # Errors
/// The file is no capture of whole Ethernet frames; what `take` says of a frame. Both with the frame's number, from 1.
fn each_frame(
    mut source: impl Read,
    take: impl FnMut(&[u8]) -> Result<bool, String>,
) -> Result<u64, String> {
    let mut magic = [0; 4];
    source.read_exact(&mut magic).map_err(|e| match e.kind() {
        io::ErrorKind::UnexpectedEof => "is no capture: it is too short".to_owned(),
        _ => e.to_string(),
    })?;
    let whole = magic.chain(source);
    if magic == PCAPNG {
        let reader = PcapNgReader::with_capacity(whole, CHUNK);
        let reader = reader.map_err(|e| format!("is no capture: {e}"))?;
        return of_pcapng(reader, take);
    }
    let reader = PcapReader::with_capacity(whole, CHUNK);
    let reader = reader.map_err(|_| "is no capture: neither pcap nor pcapng".to_owned())?;
    of_pcap(reader, take)
}

fn of_pcap(
    mut reader: PcapReader<impl Read>,
    mut take: impl FnMut(&[u8]) -> Result<bool, String>,
) -> Result<u64, String> {
    let kind = reader.header().datalink;
    let mut count = 0;
    while let Some(packet) = reader.next_raw_packet() {
        let packet = packet.map_err(|e| broken(count, &e))?;
        if !one(count, kind, &packet.data, packet.orig_len, &mut take)? {
            break;
        }
        count += 1;
    }
    Ok(count)
}

fn of_pcapng(
    mut reader: PcapNgReader<impl Read>,
    mut take: impl FnMut(&[u8]) -> Result<bool, String>,
) -> Result<u64, String> {
    let mut count = 0;
    while let Some(block) = reader.next_block() {
        let (block, state) = block.map_err(|e| broken(count, &e))?;
        let (interface, data, length) = match &block {
            Block::EnhancedPacket(packet) => {
                (packet.interface_id, &packet.data, packet.original_len)
            }
            Block::SimplePacket(packet) => (0, &packet.data, packet.original_len),
            _ => continue,
        };
        let described = usize::try_from(interface).ok();
        let described = described.and_then(|number| state.interfaces().get(number));
        let kind = described
            .map(|described| described.linktype)
            .ok_or_else(|| format!("frame {}: of an interface that is not described", count + 1))?;
        if !one(count, kind, data, length, &mut take)? {
            break;
        }
        count += 1;
    }
    Ok(count)
}

fn broken(count: u64, why: &dyn std::fmt::Display) -> String {
    format!("it is cut off or damaged after frame {count}: {why}")
}

/// One frame of the file, `count` being before it.
fn one(
    count: u64,
    kind: DataLink,
    data: &[u8],
    length: u32,
    take: &mut impl FnMut(&[u8]) -> Result<bool, String>,
) -> Result<bool, String> {
    let number = count + 1;
    if kind != DataLink::ETHERNET {
        return Err(format!("frame {number}: of {kind:?}, not of Ethernet"));
    }
    if u32::try_from(data.len()).ok() != Some(length) {
        let kept = data.len();
        return Err(format!(
            "frame {number}: only {kept} of its {length} bytes were captured"
        ));
    }
    if data.len() < 14 {
        return Err(format!(
            "frame {number}: {length} bytes are no Ethernet frame"
        ));
    }
    take(data).map_err(|why| format!("frame {number}: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ETHERNET: u32 = 1;
    const RAW: u32 = 101;

    /// A pcap file of this link type: bytes, and the length on the link.
    fn file(kind: u32, frames: &[(&[u8], u32)]) -> Vec<u8> {
        let mut file = Vec::new();
        let version = 2 | 4 << 16;
        for word in [0xa1b2_c3d4_u32, version, 0, 0, 65_535, kind] {
            file.extend(word.to_le_bytes());
        }
        for (data, length) in frames {
            let kept = u32::try_from(data.len()).unwrap();
            for word in [1, 0, kept, *length] {
                file.extend(word.to_le_bytes());
            }
            file.extend(*data);
        }
        file
    }

    #[test]
    fn frames_come_whole_and_in_order_until_no_more_are_wanted() {
        let bytes = file(ETHERNET, &[(&[1; 60], 60), (&[2; 14], 14), (&[3; 99], 99)]);
        let mut seen = Vec::new();
        let all = each_frame(&bytes[..], |frame| {
            seen.push((frame[0], frame.len()));
            Ok(true)
        });
        assert_eq!((all, seen), (Ok(3), vec![(1, 60), (2, 14), (3, 99)]));
        assert_eq!(each_frame(&bytes[..], |frame| Ok(frame[0] < 2)), Ok(1));
        let refused = each_frame(&bytes[..], |frame| match frame[0] {
            2 => Err("no".to_owned()),
            _ => Ok(true),
        });
        assert_eq!(refused, Err("frame 2: no".to_owned()));
    }

    #[test]
    fn files_that_are_no_capture_of_whole_frames_are_refused() {
        let why = |bytes: &[u8]| each_frame(bytes, |_| Ok(true)).expect_err("refused");
        assert!(why(b"").contains("too short"));
        assert!(why(b"hello, world, this is no capture").contains("neither pcap nor pcapng"));
        assert!(why(&PCAPNG).contains("is no capture"));
        let whole = file(ETHERNET, &[(&[1; 60], 60), (&[2; 60], 60)]);
        let cut = why(&whole[..whole.len() - 7]);
        assert!(cut.contains("damaged after frame 1"), "{cut}");
        let snapped = why(&file(ETHERNET, &[(&[1; 60], 1500)]));
        assert!(snapped.contains("only 60 of its 1500 bytes"), "{snapped}");
        assert!(why(&file(ETHERNET, &[(&[1; 13], 13)])).contains("13 bytes are no"));
        assert!(why(&file(RAW, &[(&[1; 60], 60)])).contains("not of Ethernet"));
        assert_eq!(each_frame(&file(ETHERNET, &[])[..], |_| Ok(true)), Ok(0));
    }
}
