//! A capture in pcapng files (draft-ietf-opsawg-pcapng): nanoseconds, a block for each link, directions, what was dropped.

use std::{
    borrow::Cow,
    fs::{File, OpenOptions},
    io::{self, BufWriter, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use netchan::{
    control::capture::Frame,
    tap::{Statistics, Way},
};
use pcap_file::{
    DataLink,
    pcapng::{
        PcapNgWriter,
        blocks::{
            enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption},
            interface_description::{
                InterfaceDescriptionBlock, InterfaceDescriptionOption, InterfaceTsResolution,
            },
            interface_statistics::{InterfaceStatisticsBlock, InterfaceStatisticsOption},
            opt_common::CommonOption,
        },
    },
};

use crate::failure::{Failure, Outcome, failed};

/// What a file is written to.
pub type Out = Box<dyn Write>;

type Writer = PcapNgWriter<BufWriter<Out>>;

/// Where frames are written: one file, or one after another.
pub struct Files {
    path: PathBuf,
    links: Vec<String>,
    snap: u32,
    /// Bytes of a file at most.
    size: Option<u64>,
    /// How many are kept.
    keep: Option<u32>,
    /// Of the file that is written now, from 1.
    number: u32,
    written: u64,
    writer: Writer,
    counted: Statistics,
}

impl Files {
    /// The first file, with its blocks for `links`.
    ///
    /// # Errors
    /// The file's, with its name.
    pub fn new(
        path: &Path,
        links: &[String],
        snap: u32,
        size: Option<u64>,
        keep: Option<u32>,
    ) -> Result<Self, Failure> {
        let first = name(path, 1, size.is_some());
        let writer = begin(&first, links, snap)?;
        Ok(Self {
            size,
            keep,
            ..Self::of(path, links, snap, writer)
        })
    }

    /// The one file that `out` is; `name` stands in what is said of it.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn over(out: Out, name: &str, links: &[String], snap: u32) -> Result<Self, Failure> {
        let name = Path::new(name);
        let writer = begin_over(out, name, links, snap)?;
        Ok(Self::of(name, links, snap, writer))
    }

    fn of(path: &Path, links: &[String], snap: u32, writer: Writer) -> Self {
        Self {
            path: path.to_owned(),
            links: links.to_vec(),
            snap,
            size: None,
            keep: None,
            number: 1,
            written: 0,
            writer,
            counted: Statistics::default(),
        }
    }

    /// Bytes of frames in the file that is written now.
    pub const fn written(&self) -> u64 {
        self.written
    }

    fn named(&self) -> PathBuf {
        name(&self.path, self.number, self.size.is_some())
    }

    fn wrong(&self, e: &(dyn std::error::Error + 'static)) -> Failure {
        wrong(&self.named(), e)
    }

    /// Writes a frame, with a comment where there is one.
    ///
    /// # Errors
    /// The file's, with its name.
    pub fn write(&mut self, frame: &Frame, comment: Option<&str>) -> Outcome {
        if usize::from(frame.link) >= self.links.len() {
            return Ok(()); // a link that came later
        }
        let mut options = vec![EnhancedPacketOption::Flags(match frame.way {
            Way::In => 1,
            Way::Out => 2,
        })];
        if frame.segment > 0 {
            let comment = format!("uncut: leaves in segments of {} bytes", frame.segment);
            options.push(EnhancedPacketOption::Common(CommonOption::Comment(
                comment.into(),
            )));
        }
        if let Some(comment) = comment {
            let comment = CommonOption::Comment(comment.into());
            options.push(EnhancedPacketOption::Common(comment));
        }
        let block = EnhancedPacketBlock {
            interface_id: frame.link.into(),
            timestamp: frame.time,
            original_len: frame.length,
            data: Cow::Borrowed(&frame.bytes),
            options,
        };
        let n = self
            .writer
            .write_pcapng_block(block)
            .map_err(|e| self.wrong(&e))?;
        self.written += n as u64;
        if self.size.is_some_and(|size| self.written >= size) {
            self.next()?;
        }
        Ok(())
    }

    /// The next file.
    fn next(&mut self) -> Outcome {
        self.end()?;
        self.number = match self.keep {
            Some(keep) if self.number >= keep => 1,
            _ => self.number + 1,
        };
        self.writer = begin(&self.named(), &self.links, self.snap)?;
        self.written = 0;
        Ok(())
    }

    /// What is buffered goes out.
    ///
    /// # Errors
    /// The file's, with its name.
    pub fn flush(&mut self, counted: &Statistics) -> Outcome {
        self.counted = *counted;
        let flushed = self.writer.get_mut().flush();
        flushed.map_err(|e| self.wrong(&e))
    }

    /// A file ends with what was counted. (Of all links together, so in the block of the first one.)
    ///
    /// # Errors
    /// The file's, with its name.
    pub fn end(&mut self) -> Outcome {
        let Statistics {
            seen,
            matched,
            dropped_full,
            dropped_buffers,
            ..
        } = self.counted;
        let block = InterfaceStatisticsBlock {
            interface_id: 0,
            timestamp: since_1970(),
            options: vec![
                InterfaceStatisticsOption::IsbIfRecv(seen),
                InterfaceStatisticsOption::IsbFilterAccept(matched),
                InterfaceStatisticsOption::IsbOsDrop(dropped_full + dropped_buffers),
            ],
        };
        self.writer
            .write_pcapng_block(block)
            .map_err(|e| self.wrong(&e))?;
        let flushed = self.writer.get_mut().flush();
        flushed.map_err(|e| self.wrong(&e))
    }
}

fn since_1970() -> Duration {
    #[allow(clippy::disallowed_methods)] // the format has wall-clock time
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.unwrap_or_default()
}

/// `FILE`, or `FILE1`, `FILE2`, ... with files in a row.
fn name(path: &Path, number: u32, in_a_row: bool) -> PathBuf {
    if !in_a_row || path.as_os_str() == "-" {
        return path.to_owned();
    }
    let mut name = path.as_os_str().to_owned();
    name.push(number.to_string());
    name.into()
}

fn begin(path: &Path, links: &[String], snap: u32) -> Result<Writer, Failure> {
    let out = open(path).map_err(|e| wrong(path, &e))?;
    begin_over(out, path, links, snap)
}

fn begin_over(out: Out, path: &Path, links: &[String], snap: u32) -> Result<Writer, Failure> {
    let out = BufWriter::with_capacity(256 << 10, out);
    let mut writer = PcapNgWriter::new(out).map_err(|e| wrong(path, &e))?;
    for link in links {
        let block = InterfaceDescriptionBlock {
            linktype: DataLink::ETHERNET,
            snaplen: snap,
            options: vec![
                InterfaceDescriptionOption::IfName(Cow::Borrowed(link)),
                InterfaceDescriptionOption::IfTsResol(InterfaceTsResolution::NANO),
            ],
        };
        writer
            .write_pcapng_block(block)
            .map_err(|e| wrong(path, &e))?;
    }
    writer.get_mut().flush().map_err(|e| wrong(path, &e))?;
    Ok(writer)
}

/// Made or emptied, and its owner's alone: packets hold passwords. A symbolic link that another user may have laid is not followed.
fn open(path: &Path) -> io::Result<Out> {
    if path.as_os_str() == "-" {
        return Ok(Box::new(io::stdout()));
    }
    let mut options = OpenOptions::new();
    options
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW);
    Ok(Box::new(options.open(path)? as File))
}

/// What the format's library says, as what the file said where it was that. A reader that is gone is no failure.
fn wrong(path: &Path, e: &(dyn std::error::Error + 'static)) -> Failure {
    let mut source = Some(e);
    while let Some(e) = source {
        match e.downcast_ref::<io::Error>() {
            Some(e) if e.kind() == io::ErrorKind::BrokenPipe => return Failure::Unread,
            Some(e) => return failed(format!("{}: {e}", path.display())),
            None => source = e.source(),
        }
    }
    failed(format!("{}: {e}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn comments<'a>(block: &'a EnhancedPacketBlock<'_>) -> Vec<&'a str> {
        let comment = |option: &'a EnhancedPacketOption<'_>| match option {
            EnhancedPacketOption::Common(CommonOption::Comment(text)) => Some(text.as_ref()),
            _ => None,
        };
        block.options.iter().filter_map(comment).collect()
    }

    #[test]
    fn files_in_a_row_have_numbers_and_are_written_over() {
        let directory =
            std::env::temp_dir().join(format!("netchan-capture-{}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("a directory");
        let path = directory.join("x.pcapng");
        let mut files = Files::new(&path, &["tap:nc0".to_owned()], 65_535, Some(2000), Some(2))
            .expect("a file");
        let frame = Frame {
            link: 0,
            way: Way::Out,
            segment: 1448,
            length: 1500,
            time: Duration::from_nanos(1_700_000_000_123_456_789),
            bytes: vec![7; 600],
            note: None,
        };
        for _ in 0..20 {
            let comment = Some("dropped: udp_no_socket, shard 0");
            files.write(&frame, comment).expect("written");
        }
        let other = Frame { link: 1, ..frame };
        files.write(&other, None).expect("left out");
        files
            .flush(&Statistics {
                seen: 30,
                dropped_full: 3,
                ..Statistics::default()
            })
            .expect("flushed");
        files.end().expect("ended");
        let mut names: Vec<_> = std::fs::read_dir(&directory)
            .expect("a directory")
            .flatten()
            .map(|entry| entry.file_name())
            .collect();
        names.sort();
        assert_eq!(names, ["x.pcapng1", "x.pcapng2"]);
        for name in names {
            let file = std::fs::read(directory.join(name)).expect("a file");
            let mut reader = pcap_file::pcapng::PcapNgReader::new(&file[..]).expect("pcapng");
            let mut frames = 0;
            while let Some(block) = reader.next_block() {
                match block.expect("a block").0 {
                    pcap_file::pcapng::Block::EnhancedPacket(block) => {
                        assert_eq!(
                            block.timestamp,
                            Duration::from_nanos(1_700_000_000_123_456_789)
                        );
                        assert_eq!((block.data.len(), block.original_len), (600, 1500));
                        assert_eq!(
                            comments(&block),
                            [
                                "uncut: leaves in segments of 1448 bytes",
                                "dropped: udp_no_socket, shard 0"
                            ]
                        );
                        frames += 1;
                    }
                    pcap_file::pcapng::Block::InterfaceStatistics(_)
                    | pcap_file::pcapng::Block::InterfaceDescription(_) => {}
                    other => panic!("{other:?}"),
                }
            }
            assert!(frames <= 4, "{frames}");
        }
        std::fs::remove_dir_all(&directory).expect("removed");
    }

    #[test]
    fn places_that_cannot_be_written_are_named() {
        for path in ["/nonexistent/x.pcapng", "/proc/version"] {
            let refused = Files::new(Path::new(path), &["a".to_owned()], 1, None, None);
            assert!(matches!(refused.map(drop), Err(Failure::Failed(why)) if why.contains(path)));
        }
        // A full disk.
        let mut full = Files::new(Path::new("/dev/full"), &[], 1, None, None);
        if let Ok(files) = &mut full {
            assert!(files.end().is_err());
        }
    }
}
