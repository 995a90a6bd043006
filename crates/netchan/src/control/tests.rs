//! The control socket against a made-up provider, rude clients and sockets left behind.

use std::{
    fs,
    io::{Read, Write},
    os::unix::{
        fs::{MetadataExt, PermissionsExt},
        net::{UnixListener, UnixStream},
    },
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering::Relaxed},
    time::Duration,
};

use serde_json::{Value, json};

use super::{Answers, AskError, Change, Stack, serve_in, stacks_in, sweep};

/// A directory of its own for one test, removed in the end.
struct Place(PathBuf);

impl Place {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!(
            "netchan-control-{}-{}",
            std::process::id(),
            NEXT.fetch_add(1, Relaxed)
        );
        Self(std::env::temp_dir().join(name))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A made-up stack.
struct MadeUp;

impl Answers for MadeUp {
    fn show(&self, topic: &str) -> Option<Value> {
        match topic {
            "links" => Some(json!([{ "name": "tap:nc0", "mtu_bytes": 1500 }])),
            "sockets" => Some(json!(vec![json!({ "filler": "x".repeat(1000) }); 5000])),
            "locks" => panic!("on purpose"),
            _ => None,
        }
    }

    fn change(&self, change: &Change) -> Result<String, String> {
        match change {
            Change::Set { name, value } if name == "tcp.nagle" => Ok(format!("it is {value}")),
            Change::Set { name, .. } => Err(format!("`{name}` is none")),
            Change::LoadModule { toml } => Ok(toml.len().to_string()),
            _ => panic!("on purpose"),
        }
    }
}

fn only(place: &Path) -> Stack {
    let found = stacks_in(&[place.to_owned()]);
    assert_eq!(found.len(), 1, "{found:?}");
    found[0].clone()
}

#[test]
fn facts_come_out_whole() {
    let place = Place::new();
    let control = serve_in(&place.0, MadeUp).unwrap();
    let mode = fs::metadata(&place.0).unwrap().mode();
    assert_eq!(mode & 0o777, 0o700);
    let mode = fs::metadata(control.path()).unwrap().mode();
    assert_eq!(mode & 0o177, 0, "others may connect");
    let stack = only(&place.0);
    assert_eq!(
        (stack.pid, stack.path.as_path()),
        (std::process::id(), control.path())
    );
    assert_eq!(stack.show("links").unwrap()[0]["mtu_bytes"], 1500);
    // Five megabytes: more than the socket's buffer.
    assert_eq!(
        stack.show("sockets").unwrap().as_array().unwrap().len(),
        5000
    );
    let hello = stack.hello().unwrap();
    assert_eq!(hello["pid"], std::process::id());
    assert!(hello["cpu_s"].as_f64() > Some(0.0), "{hello}");
    drop(control);
    assert!(stacks_in(std::slice::from_ref(&place.0)).is_empty());
    assert!(matches!(stack.show("links"), Err(AskError::Gone)));
    assert_eq!(fs::read_dir(&place.0).unwrap().count(), 0);
}

#[test]
fn unknown_topics_and_a_failing_stack_are_told_apart() {
    let place = Place::new();
    let _control = serve_in(&place.0, MadeUp).unwrap();
    let stack = only(&place.0);
    let why = |topic| match stack.show(topic) {
        Err(AskError::Refused(why)) => why,
        other => panic!("{other:?}"),
    };
    assert!(why("nonsense").contains("there are links, addresses"));
    assert!(why("taps").contains("nothing to say about taps"));
    assert!(why("locks").contains("failed"));
    assert!(stack.show("links").is_ok(), "it goes on after the panic");
}

#[test]
fn rude_clients_do_no_harm() {
    let place = Place::new();
    let control = serve_in(&place.0, MadeUp).unwrap();
    let connect = || UnixStream::connect(control.path()).unwrap();
    let _silent: Vec<_> = (0..8).map(|_| connect()).collect();
    let mut endless = connect();
    let _ = endless.write_all(&[b'a'; 1000]); // longer than any request: the server hangs up, perhaps in the middle
    let mut deaf = connect();
    deaf.write_all(b"show sockets\n").unwrap(); // and never reads
    let mut garbage = connect();
    garbage.write_all(b"\xff\xfe{]\0\n").unwrap();
    let mut nonsense = connect();
    nonsense
        .write_all(b"trace read 9999999999999999999999 \xff drop,\0\n")
        .unwrap();
    let mut refused = String::new();
    nonsense.read_to_string(&mut refused).unwrap();
    assert!(refused.starts_with("{\"error\":"), "{refused}");
    let mut answer = String::new();
    garbage
        .set_read_timeout(Some(Duration::from_secs(5)))
        .unwrap();
    garbage.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("{\"error\":"), "{answer}");
    drop(connect());
    let stack = only(&place.0);
    assert!(stack.show("links").is_ok());
}

#[test]
fn several_stacks_of_one_process_have_names_of_their_own() {
    let place = Place::new();
    let first = serve_in(&place.0, MadeUp).unwrap();
    let second = serve_in(&place.0, |_: &str| Some(json!("second"))).unwrap();
    let found = stacks_in(&[place.0.clone(), place.0.clone()]);
    let pid = std::process::id();
    let ids: Vec<_> = found.iter().map(|s| s.id.as_str()).collect();
    assert_eq!(ids, [format!("{pid}"), format!("{pid}-1")]);
    assert_eq!(found[1].show("x").unwrap(), "second");
    drop(first);
    assert!(second.path().exists());
}

#[test]
fn what_the_dead_left_behind_goes_away() {
    let place = Place::new();
    let mut child = std::process::Command::new("true").spawn().unwrap();
    child.wait().unwrap();
    let _control = serve_in(&place.0, MadeUp).unwrap();
    let dead = place.0.join(format!("{}.sock", child.id()));
    drop(UnixListener::bind(&dead).unwrap());
    fs::write(place.0.join("notes.txt"), "not a socket").unwrap();
    sweep(&place.0);
    assert!(!dead.exists());
    drop(UnixListener::bind(&dead).unwrap());
    only(&place.0);
    assert!(!dead.exists());
    assert!(place.0.join("notes.txt").exists());
}

#[test]
fn one_that_lives_but_does_not_answer_is_said_to() {
    let place = Place::new();
    fs::create_dir(&place.0).unwrap();
    let path = place.0.join(format!("{}.sock", std::process::id()));
    let _listener = UnixListener::bind(&path).unwrap(); // accepts in the kernel, never in the program
    let stack = Stack {
        id: "1".to_owned(),
        pid: std::process::id(),
        path,
        user: None,
    };
    match stack.show("links") {
        Err(AskError::Silent(why)) => assert!(why.contains("its control thread does not"), "{why}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_answer_that_is_none_is_refused() {
    let place = Place::new();
    fs::create_dir(&place.0).unwrap();
    let path = place.0.join("1.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let answers: [&[u8]; 5] = [b"", b"{\"ok\":1}", b"[]\n", b"\xff\n", b"{\"ok\":1}{\n"];
    let server = std::thread::spawn(move || {
        for answer in answers {
            let (mut client, _) = listener.accept().unwrap();
            let mut line = [0; 64];
            let _ = client.read(&mut line).unwrap();
            client.write_all(answer).unwrap();
        }
    });
    let stack = Stack {
        id: "1".to_owned(),
        pid: 1,
        path,
        user: None,
    };
    for answer in answers {
        let got = stack.show("links");
        assert!(
            matches!(got, Err(AskError::Garbled(_))),
            "{answer:?}: {got:?}"
        );
    }
    server.join().unwrap();
}

#[test]
fn an_answer_too_long_is_a_beginning_and_says_so() {
    let rows = |len: usize| json!({ "ok": vec![json!({ "filler": "x".repeat(100_000) }); len] });
    let answer = |of: &Value| -> Value {
        let bytes = super::server::shortened(of);
        assert!(bytes.len() <= super::ANSWER_MAX);
        serde_json::from_slice(&bytes).unwrap()
    };
    let short = rows(160);
    assert_eq!(answer(&short), short);
    let cut = answer(&rows(200));
    let cut = cut["ok"].as_array().unwrap();
    let omitted = cut.last().unwrap()["omitted"].as_u64().unwrap();
    assert_eq!((cut.len() as u64 - 1, omitted), (167, 33));
    let refused = answer(&json!({ "ok": { "one": "x".repeat(17 << 20) } }));
    assert!(refused["error"].as_str().unwrap().contains("16 MiB"));
}

#[test]
fn an_answer_without_end_is_cut_off() {
    let place = Place::new();
    fs::create_dir(&place.0).unwrap();
    let path = place.0.join("1.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let server = std::thread::spawn(move || {
        let (mut client, _) = listener.accept().unwrap();
        let block = vec![b' '; 1 << 20];
        (0..)
            .take_while(|_| client.write_all(&block).is_ok())
            .count()
    });
    let stack = Stack {
        id: "1".to_owned(),
        pid: 1,
        path,
        user: None,
    };
    let refused = stack.show("links").unwrap_err().to_string();
    assert!(refused.contains("longer than 16 MiB"), "{refused}");
    assert!(server.join().unwrap() < 20);
}

#[test]
fn another_users_socket_is_not_asked() {
    if !rustix::process::geteuid().is_root() {
        return crate::skips::skipped_here("needs root");
    }
    let place = Place::new();
    let control = serve_in(&place.0, MadeUp).unwrap();
    let path = control.path().to_owned();
    let stack = |user| Stack {
        id: "1".to_owned(),
        pid: std::process::id(),
        path: path.clone(),
        user,
    };
    let give = |what: &Path, user: u32| std::os::unix::fs::chown(what, Some(user), None).unwrap();
    assert!(stack(None).show("links").is_ok());
    for what in [place.0.as_path(), path.as_path()] {
        give(what, 65_534);
        let refused = stack(None).show("links").unwrap_err();
        assert!(matches!(&refused, AskError::Foreign(why) if why.contains("65534")));
        assert!(stacks_in(std::slice::from_ref(&place.0)).is_empty());
        assert!(stack(Some(65_534)).show("links").is_ok(), "it was named");
        assert!(stack(Some(65_533)).show("links").is_err());
        give(what, 0);
    }
    // Neither is one that lies where it should, but whose process is another's: the listener is asked for.
    let trusted = super::trust::Trusted::with(None);
    let (ours, _theirs) = UnixStream::pair().unwrap();
    assert!(trusted.check_peer(&ours).is_ok());
}

#[test]
fn a_directory_that_others_write_to_is_not_used() {
    let place = Place::new();
    fs::create_dir(&place.0).unwrap();
    for mode in [0o777, 0o770, 0o702] {
        fs::set_permissions(&place.0, fs::Permissions::from_mode(mode)).unwrap();
        let refused = serve_in(&place.0, MadeUp).unwrap_err();
        assert!(refused.to_string().contains("mode 0700"), "{refused}");
    }
    // To be seen is no harm: the socket lets no other user in.
    fs::set_permissions(&place.0, fs::Permissions::from_mode(0o755)).unwrap();
    assert!(serve_in(&place.0, MadeUp).is_ok());
    let link = Place::new();
    std::os::unix::fs::symlink("/", &link.0).unwrap();
    assert!(serve_in(&link.0, MadeUp).is_err());
    fs::remove_file(&link.0).unwrap();
}

#[test]
fn the_last_holder_may_be_the_control_thread() {
    // The provider drops the Control that serves it, as when a stack ends while it is asked.
    let place = Place::new();
    let slot = std::sync::Arc::new(std::sync::Mutex::new(None));
    let inside = slot.clone();
    let control = serve_in(&place.0, move |_: &str| {
        drop(inside.lock().unwrap().take());
        Some(json!("bye"))
    })
    .unwrap();
    let stack = only(&place.0);
    *slot.lock().unwrap() = Some(control);
    assert_eq!(stack.show("links").unwrap(), "bye");
    assert!(!stack.path.exists());
}

#[test]
fn changes_are_made_refused_or_not_understood() {
    let place = Place::new();
    let _control = serve_in(&place.0, MadeUp).unwrap();
    let stack = only(&place.0);
    let set = |name: &str| Change::Set {
        name: name.to_owned(),
        value: "a \"quoted\"\nword".to_owned(),
    };
    assert_eq!(
        stack.change(&set("tcp.nagle")).unwrap(),
        "it is a \"quoted\"\nword"
    );
    let why = |change: &Change| stack.change(change).unwrap_err().to_string();
    assert_eq!(why(&set("tcp.nagel")), "`tcp.nagel` is none");
    let name = String::new();
    assert!(why(&Change::UnloadModule { name }).contains("failed while it made the change"));
    let long = Change::LoadModule {
        toml: "x".repeat(60_000),
    };
    assert_eq!(stack.change(&long).unwrap(), "60000");
    for bad in [
        "",
        "{}",
        "{\"set\":{\"name\":\"x\"}}",
        "{\"reboot\":{}}",
        "[1",
    ] {
        let answer = stack.ask(&format!("change {bad}")).unwrap_err().to_string();
        assert!(
            answer.contains("no change that this stack knows"),
            "{answer}"
        );
    }
}
