//! The socket at which leases are asked for: where it lies, which users may connect, and how one that was left behind is told from one that is in use.
//!
//! A file beside it, `….lock`, is locked as long as a daemon has the socket: two that start at once do not take it from each other.

use std::{
    env,
    fs::{self, File, OpenOptions, Permissions},
    io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt},
    },
    path::{Path, PathBuf},
};

use rustix::{
    fs::{FlockOperation, Mode, fchmod, flock},
    io::Errno,
    net::{
        AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with,
        sockopt::{socket_acceptconn, socket_peercred},
    },
    process::umask,
    rand::{GetRandomFlags, getrandom},
};

use crate::failure::{Failure, at, failed};

/// Clients that wait until they are accepted; connect(2) tells more to try again.
const BACKLOG: i32 = 512;

/// A socket that listens. Dropping it removes its file.
#[derive(Debug)]
pub struct Listening {
    socket: OwnedFd,
    /// `None`: the service manager's.
    place: Option<Place>,
}

/// A socket's file.
#[derive(Debug)]
struct Place {
    path: PathBuf,
    /// Device and inode, by which it is known again.
    identity: (u64, u64),
    lock: File,
}

impl Drop for Listening {
    fn drop(&mut self) {
        let Some(place) = &self.place else { return };
        let found = fs::symlink_metadata(&place.path);
        if found.is_ok_and(|found| (found.dev(), found.ino()) == place.identity) {
            // In a directory that is root's, the next daemon removes it.
            let _ = fs::remove_file(&place.path);
        }
        // Not by closing it alone: a process that was forked has a copy of its descriptor until it becomes its program.
        let _ = flock(&place.lock, FlockOperation::Unlock);
    }
}

impl AsFd for Listening {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Listening {
    /// Where it is, for people.
    pub fn name(&self) -> String {
        match &self.place {
            Some(place) => place.path.display().to_string(),
            None => "the service manager's socket".to_owned(),
        }
    }

    /// The directory that its file is in.
    pub fn directory(&self) -> Option<&Path> {
        self.place.as_ref()?.path.parent()
    }
}

/// The socket that the service manager hands over; else one at `given`; else at the usual place.
pub fn open(given: Option<&Path>) -> Result<Listening, Failure> {
    if let Some(socket) = handed()? {
        if let Some(given) = given {
            return Err(failed(format!(
                "--socket {}: the service manager hands a socket over already",
                given.display()
            )));
        }
        return Ok(Listening {
            socket,
            place: None,
        });
    }
    let for_all = rustix::process::geteuid().is_root();
    let usual = netchan::link::lease::default_path();
    // Whole, since the working directory may be read-only for a confined process.
    let path = std::path::absolute(given.unwrap_or(&usual)).map_err(at("--socket"))?;
    make_directory(&path, for_all, given.is_none()).map_err(at(path.display()))?;
    listen_at(&path, for_all)
}

/// The socket of systemd's protocol (sd_listen_fds(3)): descriptor 3, if it is for this process.
fn handed() -> Result<Option<OwnedFd>, Failure> {
    // The crate takes descriptors, too, where no process is named; the protocol does not.
    let own = std::process::id().to_string();
    if env::var("LISTEN_PID").ok() != Some(own) {
        return Ok(None);
    }
    let mut all = listenfd::ListenFd::from_env();
    if all.len() > 1 {
        return Err(failed(format!(
            "LISTEN_FDS: {} sockets are handed over, one is wanted",
            all.len()
        )));
    }
    let hint = "SOCK_SEQPACKET socket of AF_UNIX (ListenSequentialPacket=)";
    let taken = all.take_custom::<OwnedFd>(0, libc::AF_UNIX, libc::SOCK_SEQPACKET, hint);
    let Some(socket) = taken.map_err(at("LISTEN_FDS"))? else {
        return Ok(None);
    };
    if !socket_acceptconn(&socket).map_err(at("LISTEN_FDS"))? {
        return Err(failed("LISTEN_FDS: descriptor 3 does not listen"));
    }
    rustix::io::ioctl_fionbio(&socket, true).map_err(at("LISTEN_FDS"))?;
    rustix::io::fcntl_setfd(&socket, rustix::io::FdFlags::CLOEXEC).map_err(at("LISTEN_FDS"))?;
    Ok(Some(socket))
}

/// Makes the directory that `path` is in. The `usual` one is this user's, and no other puts anything there.
fn make_directory(path: &Path, for_all: bool, usual: bool) -> io::Result<()> {
    let Some(directory) = path.parent().filter(|parent| *parent != Path::new("")) else {
        return Ok(());
    };
    let mode = if for_all { 0o755 } else { 0o700 };
    match fs::DirBuilder::new().mode(mode).create(directory) {
        // A umask may have taken something away.
        Ok(()) => return fs::set_permissions(directory, Permissions::from_mode(mode)),
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(e),
        Err(_) if !usual => return Ok(()),
        Err(_) => {}
    }
    let found = fs::symlink_metadata(directory)?;
    let user = rustix::process::geteuid().as_raw();
    if !found.is_dir() || found.uid() != user || found.mode() & 0o022 != 0 {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!(
                "its directory is not user {user}'s alone to write to: remove it, or name another place with --socket"
            ),
        ));
    }
    match found.mode() & mode == mode {
        true => Ok(()),
        false => fs::set_permissions(directory, Permissions::from_mode(mode)),
    }
}

/// A place for a socket whose name only its users are told: with that any user may connect, and no other user sees it.
pub fn unlisted() -> Result<PathBuf, Failure> {
    let mut name = [0; 16];
    let filled = getrandom(&mut name, GetRandomFlags::empty());
    if filled.map_err(at("random numbers"))? < name.len() {
        return Err(failed("the system has too few random numbers"));
    }
    let name = format!("{:032x}", u128::from_ne_bytes(name));
    // No name that another user could have taken before.
    let now = crate::units::now_ns();
    let directory = env::temp_dir().join(format!("netchan-run-{}-{now}", std::process::id()));
    let made = fs::DirBuilder::new().mode(0o711).create(&directory);
    made.map_err(at(directory.display()))?;
    let searched = fs::set_permissions(&directory, Permissions::from_mode(0o711)); // a umask may have taken something away
    searched.map_err(at(directory.display()))?;
    Ok(directory.join(name))
}

/// Listens there. The kernel tells all users at which name a socket was bound (/proc/net/unix): that is another one.
pub fn listen_unlisted(path: &Path) -> Result<Listening, Failure> {
    let first = path.with_file_name("socket");
    let listening = listen_at(&first, true)?;
    fs::rename(&first, path).map_err(at(path.display()))?;
    Ok(listening)
}

/// Listens at `path`. What a client may do is decided by its credentials; without `for_all` no other user connects.
pub fn listen_at(path: &Path, for_all: bool) -> Result<Listening, Failure> {
    let wrong = |e: Errno| failed(format!("{}: {e}", path.display()));
    let address = SocketAddrUnix::new(path).map_err(wrong)?;
    let lock = lock(path)?;
    // What is there now was left behind, unless it is no daemon's.
    if let Some(pid) = listener(path, &address)? {
        return Err(running(pid));
    }
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
    let socket = socket.map_err(wrong)?;
    bind_with_mode(&socket, &address, for_all).map_err(wrong)?;
    let found = fs::symlink_metadata(path).map_err(at(path.display()))?;
    let listening = Listening {
        socket,
        place: Some(Place {
            path: path.to_owned(),
            identity: (found.dev(), found.ino()),
            lock,
        }),
    };
    listen(&listening.socket, BACKLOG).map_err(wrong)?;
    Ok(listening)
}

/// Makes the file with its mode. Not bind(2) and then chmod(2), which finds by name what may be another file by then.
fn bind_with_mode(socket: &OwnedFd, address: &SocketAddrUnix, for_all: bool) -> Result<(), Errno> {
    // The file gets the mode that the socket has, less what the umask takes away.
    let mode = if for_all { 0o666 } else { 0o600 };
    fchmod(socket, Mode::from_raw_mode(mode))?;
    if !for_all {
        return bind(socket, address);
    }
    let before = umask(Mode::empty());
    let bound = bind(socket, address);
    umask(before);
    bound
}

fn running(pid: Option<i32>) -> Failure {
    let pid = pid.map_or_else(String::new, |pid| format!(", pid {pid}"));
    failed(format!(
        "a daemon is running there already{pid}: stop it, or name another place with --socket"
    ))
}

/// The lock of the socket at `path`, unless a daemon has it.
fn lock(path: &Path) -> Result<File, Failure> {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    let name = PathBuf::from(name);
    let opened = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW)
        .open(&name);
    let file = opened.map_err(at(name.display()))?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(Errno::WOULDBLOCK) => {
            let address = SocketAddrUnix::new(path).map_err(at(path.display()))?;
            // It may be so new that it does not listen yet.
            Err(running(listener(path, &address).ok().flatten().flatten()))
        }
        Err(e) => Err(failed(format!("{}: {e}", name.display()))),
    }
}

/// The process that listens at `path`, if one does, and its number if there is one here. A socket that was left behind is removed.
#[allow(
    clippy::option_option,
    reason = "whether, and which: a peer in another namespace has no number here"
)]
fn listener(path: &Path, address: &SocketAddrUnix) -> Result<Option<Option<i32>>, Failure> {
    let wrong = |e: Errno| failed(format!("{}: {e}", path.display()));
    let found = match fs::symlink_metadata(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        found => found.map_err(at(path.display()))?,
    };
    if !found.file_type().is_socket() {
        return Err(failed(format!(
            "{}: it is there, and no socket; remove it, or name another place with --socket",
            path.display()
        )));
    }
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
    let socket = socket.map_err(wrong)?;
    match connect(&socket, address) {
        Ok(()) => {
            let peer = socket_peercred(&socket).map_err(wrong)?;
            Ok(Some(Some(peer.pid.as_raw_nonzero().get())))
        }
        // Its listen queue is full.
        Err(Errno::AGAIN) => Ok(Some(None)),
        Err(Errno::CONNREFUSED) => {
            fs::remove_file(path).map_err(at(path.display()))?;
            Ok(None)
        }
        Err(Errno::PROTOTYPE) => Err(failed(format!(
            "{}: another program listens there",
            path.display()
        ))),
        Err(e) => Err(wrong(e)),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A directory for a test.
    pub struct Directory(pub PathBuf);

    impl Directory {
        pub fn new(name: &str) -> Self {
            let path =
                env::temp_dir().join(format!("netchan-daemon-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            fs::create_dir(&path).unwrap();
            Self(path)
        }
    }

    impl Drop for Directory {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o777
    }

    fn why(outcome: Result<Listening, Failure>) -> String {
        match outcome {
            Err(Failure::Failed(why)) => why,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_socket_has_its_mode_and_goes_with_the_daemon() {
        let place = Directory::new("mode");
        let path = place.0.join("daemon.sock");
        for (for_all, expected) in [(false, 0o600), (true, 0o666)] {
            let listening = listen_at(&path, for_all).unwrap();
            assert_eq!(mode(&path), expected);
            assert_eq!(listening.directory(), Some(place.0.as_path()));
            // As a process that another thread forks has it until it becomes its program.
            let copy = listening
                .place
                .as_ref()
                .map(|place| place.lock.try_clone().unwrap());
            drop(listening);
            assert!(!path.exists());
            drop(listen_at(&path, for_all).unwrap());
            drop(copy);
        }
        // One that came in its place is left alone.
        let listening = listen_at(&path, false).unwrap();
        fs::remove_file(&path).unwrap();
        fs::write(&path, "").unwrap();
        drop(listening);
        assert!(path.exists());
    }

    #[test]
    fn a_socket_that_was_left_behind_is_removed_and_a_live_one_is_not() {
        let place = Directory::new("stale");
        let path = place.0.join("daemon.sock");
        let listening = listen_at(&path, false).unwrap();
        let own = std::process::id();
        for _ in 0..2 {
            let said = why(listen_at(&path, false));
            assert!(said.contains(&format!("already, pid {own}")), "{said}");
        }
        assert!(path.exists());
        // As a kill leaves it: the file is there, and no listener.
        let Listening {
            socket,
            place: file,
        } = &listening;
        let address = SocketAddrUnix::new(&path).unwrap();
        assert!(file.is_some() && listener(&path, &address).unwrap().is_some());
        rustix::net::shutdown(socket, rustix::net::Shutdown::Both).unwrap();
        drop(listening);
        let flags = SocketFlags::CLOEXEC;
        let left = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
        bind(&left, &address).unwrap();
        drop(left);
        assert!(path.exists());
        drop(listen_at(&path, false).unwrap());
    }

    #[test]
    fn what_listens_without_the_lock_is_found_too() {
        let place = Directory::new("other");
        let path = place.0.join("daemon.sock");
        let address = SocketAddrUnix::new(&path).unwrap();
        for (kind, says) in [
            (SocketType::SEQPACKET, "already, pid"),
            (SocketType::STREAM, "another program"),
        ] {
            let other = socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).unwrap();
            bind(&other, &address).unwrap();
            listen(&other, 1).unwrap();
            let said = why(listen_at(&path, false));
            assert!(said.contains(says), "{said}");
            fs::remove_file(&path).unwrap();
        }
        fs::write(&path, "precious").unwrap();
        let said = why(listen_at(&path, false));
        assert!(said.contains("no socket"), "{said}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
        let long = place.0.join("x".repeat(200));
        assert!(why(listen_at(&long, false)).contains("too long"));
    }

    #[test]
    fn an_unlisted_socket_is_found_by_its_name_alone() {
        let path = unlisted().unwrap();
        let directory = path.parent().unwrap();
        assert_eq!(mode(directory), 0o711);
        let listening = listen_unlisted(&path).unwrap();
        assert_eq!(mode(&path), 0o666);
        let name = path.file_name().unwrap().to_str().unwrap();
        assert_eq!(name.len(), 32);
        let told = fs::read_to_string("/proc/net/unix").unwrap();
        let directory_name = directory.file_name().unwrap().to_str().unwrap();
        assert!(told.contains(directory_name) && !told.contains(name));
        let address = SocketAddrUnix::new(&path).unwrap();
        assert!(listener(&path, &address).unwrap().is_some(), "it is found");
        drop(listening);
        let next = unlisted().unwrap();
        assert_ne!(path, next);
        for place in [&path, &next] {
            fs::remove_dir_all(place.parent().unwrap()).unwrap();
        }
    }

    #[test]
    fn the_directory_is_ours_alone_to_write_to() {
        let place = Directory::new("directory");
        for (for_all, expected) in [(false, 0o700), (true, 0o755)] {
            let directory = place.0.join(format!("{for_all}"));
            let path = directory.join("daemon.sock");
            make_directory(&path, for_all, true).unwrap();
            assert_eq!(mode(&directory), expected);
            // As an earlier program left it.
            fs::set_permissions(&directory, Permissions::from_mode(0o700)).unwrap();
            make_directory(&path, for_all, true).unwrap();
            assert_eq!(mode(&directory), expected);
            fs::set_permissions(&directory, Permissions::from_mode(0o777)).unwrap();
            let refused = make_directory(&path, for_all, true).unwrap_err();
            assert!(refused.to_string().contains("--socket"), "{refused}");
            // One that a person named is the person's business.
            make_directory(&path, for_all, false).unwrap();
            assert_eq!(mode(&directory), 0o777);
        }
        let missing = place.0.join("a/b/daemon.sock");
        assert!(make_directory(&missing, false, false).is_err());
    }
}
