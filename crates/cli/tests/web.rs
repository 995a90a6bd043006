//! `netchan web` in a headless Chromium, at live stacks: every control of the page is driven, as a person would. `NETCHAN_PICTURES=DIR` keeps pictures of the
//! page, wide and narrow, light and dark, for a person to look at.

#[path = "browser/mod.rs"]
mod browser;
#[path = "web/live.rs"]
mod live;
#[path = "../../../lab/tests/skips/mod.rs"]
mod skips;

use std::{
    collections::BTreeSet,
    env, fs,
    io::{Read, Write},
    net::TcpStream as Plain,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
    thread,
    time::Duration,
};

use browser::Browser;
use live::{Live, Served};
use netchan::control::{self, Change};
use pcap_file::pcapng::{Block, PcapNgReader};
use serde_json::json;
use skips::skipped_here;

/// What a name may hold that would be an element, if it were taken as HTML.
const HOSTILE: &str = "<img src=x onerror=alert(1)>";

/// The stacks of this process are shown: a test has them for itself.
static ALONE: Mutex<()> = Mutex::new(());

/// A folder of its own.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = env::temp_dir().join(format!("netchan-web-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The page, and which of its controls were driven.
struct Page {
    browser: Browser,
    driven: BTreeSet<String>,
    met: BTreeSet<String>,
}

impl Page {
    /// Notes which controls there are, and that each has a name.
    fn meet(&mut self) {
        let names = self.browser.evaluate(
            "[...document.querySelectorAll('button, input, select, textarea, summary, a')].map((e) => e.dataset.control || 'unnamed: ' + e.outerHTML)",
        );
        let names = names.as_array().unwrap().iter();
        self.met
            .extend(names.map(|name| name.as_str().unwrap().to_owned()));
    }

    fn of(&mut self, control: &str) -> String {
        self.meet();
        self.driven.insert(control.to_owned());
        format!("[data-control='{control}']")
    }

    fn click(&mut self, control: &str) {
        let selector = self.of(control);
        self.browser.click(&selector);
    }

    fn fill(&mut self, control: &str, text: &str) {
        let selector = self.of(control);
        self.browser.fill(&selector, text);
    }

    fn choose(&mut self, control: &str, value: &str) {
        let selector = self.of(control);
        self.browser.choose(&selector, value);
    }

    /// Waits until the element `id` has `text` in what it shows.
    fn shows(&mut self, id: &str, text: &str) {
        let (of, text) = (json!(id), json!(text));
        let script = format!("(document.getElementById({of}).innerText || '').includes({text})");
        self.browser.until(&format!("{text} in {id}"), &script);
    }

    fn until(&mut self, what: &str, script: &str) {
        self.browser.until(what, script);
    }

    /// A picture for a person, if one is wanted.
    fn pictures(&mut self, name: &str) {
        let Some(folder) = env::var_os("NETCHAN_PICTURES") else {
            return;
        };
        fs::create_dir_all(&folder).unwrap();
        for (width, size) in [(1400, "wide"), (390, "narrow"), (800, "middle")] {
            for is_dark in [false, true] {
                self.browser.look(width, 900, is_dark);
                thread::sleep(Duration::from_millis(1500));
                let scheme = if is_dark { "dark" } else { "light" };
                let file = Path::new(&folder).join(format!("{name}-{size}-{scheme}.png"));
                self.browser.picture(&file);
            }
        }
        self.browser.look(1400, 900, false);
        thread::sleep(Duration::from_millis(500));
    }
}

#[test]
fn every_control_of_the_page_is_driven() {
    let Some(program) = browser::find() else {
        return skipped_here("no chromium is installed");
    };
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = Folder::new("controls");
    let live = Live::new();
    let served = Served::start(&[]);
    let mut browser = Browser::start(&program, &folder.0);
    browser.look(1400, 900, false);
    browser.open(&served.url);
    let mut page = Page {
        browser,
        driven: BTreeSet::new(),
        met: BTreeSet::new(),
    };
    page.shows("about", "app-channel");
    view(&mut page);
    connections(&mut page);
    plots(&mut page);
    captures(&mut page);
    settings(&mut page, &live);
    page.pictures("page");
    page.meet();
    let complaints = page.browser.complaints.join("\n");
    token(&mut page, &folder);
    assert_eq!(
        page.met, page.driven,
        "controls that are there, and those that were driven"
    );
    // What was asked wrongly was refused, and said so; nothing else went wrong.
    let expected = ["status of 400", "status of 409", "status of 429"];
    let other = complaints
        .lines()
        .filter(|line| expected.iter().all(|e| !line.contains(e)));
    assert_eq!(other.collect::<Vec<_>>(), [""; 0]);
}

/// What is shown at all: the stack, how often, not at all.
fn view(page: &mut Page) {
    page.until(
        "rates on the walk",
        "document.querySelectorAll('#walk .busy').length >= 6",
    );
    page.until(
        "lost packets on the walk",
        "document.querySelectorAll('#walk .losing').length >= 1",
    );
    page.shows("drops", "udp_no_socket");
    page.shows("drops", "shard → socket");
    page.shows("threads", "netchan-link0");
    page.shows("channels", "shard 0");
    let stacks = page
        .browser
        .evaluate("[...document.getElementById('stack').options].map((o) => o.value)");
    assert_eq!(stacks.as_array().map(Vec::len), Some(2), "{stacks}");
    page.choose("stack", stacks[1].as_str().unwrap());
    page.shows("addresses", "10.0.0.2/24");
    page.choose("stack", stacks[0].as_str().unwrap());
    page.shows("addresses", "10.0.0.1/24");
    page.choose("pace", "500");
    page.click("pause");
    page.shows("pause", "Go on");
    page.until(
        "the button to be pressed",
        "document.getElementById('pause').getAttribute('aria-pressed') === 'true'",
    );
    // With the keyboard, too.
    page.browser
        .evaluate("document.getElementById('pause').focus()");
    page.browser.press(" ");
    page.until(
        "the button to be let go",
        "document.getElementById('pause').getAttribute('aria-pressed') === 'false'",
    );
}

fn connections(page: &mut Page) {
    page.shows("counts", "2 chosen of 3 sockets; 1 listen");
    page.until(
        "rates of connections",
        "document.getElementById('connections').innerText.includes('kbit/s')",
    );
    page.fill("filter", "dport = :9");
    page.click("filter-use");
    page.shows("counts", "0 chosen");
    page.fill("filter", "dport = x");
    page.browser.press("Enter");
    page.shows("trouble", "filter:");
    page.fill("filter", "");
    page.browser.press("Enter");
    page.shows("counts", "2 chosen");
    page.until("no trouble", "document.getElementById('trouble').hidden");
    page.choose("order", "remote");
    let remotes = "JSON.stringify([...document.querySelectorAll('#connections tbody tr')].map((row) => row.children[4].textContent))";
    let sorted = "(() => { const all = [...document.querySelectorAll('#connections tbody tr')].map((row) => row.children[4].textContent); return all.length === 2 && all[0] < all[1]; })()";
    page.until("connections by remote", sorted);
    let before = page.browser.evaluate(remotes);
    page.click("reversed");
    page.until(
        "them reversed",
        &format!("{remotes} !== {}", json!(before.as_str().unwrap())),
    );
    page.click("reversed");
    page.until("them as before", sorted);
}

fn plots(page: &mut Page) {
    page.fill("plot-seconds", "60");
    page.click("plot");
    page.shows("plots", "runs");
    // Another one has to wait.
    page.click("plot");
    page.shows("refused", "wait, or stop one");
    page.click("plot-stop");
    page.shows("plots", "done");
    let drawn = "(() => { const frame = document.querySelector('#plot iframe'); return frame !== null && frame.contentDocument.querySelectorAll('canvas').length >= 3; })()";
    page.until("the plot, by itself", drawn);
    let title = "document.querySelector('#plot iframe').contentDocument.getElementById('title').textContent";
    let title = page.browser.evaluate(title);
    assert!(
        title.as_str().unwrap().contains("10.0.0.1:80-10.0.0.2:"),
        "{title}"
    );
    page.pictures("plot");
    page.click("plot-show");
    page.until("the plot again", drawn);
    page.click("plot-save");
    let file = page.browser.saved("html", 1).remove(0);
    let text = fs::read_to_string(file).unwrap();
    assert!(text.contains("10.0.0.1:80-10.0.0.2:") && text.contains("uPlot"));
    page.click("plot-forget");
    page.until(
        "it to be gone",
        "document.querySelector('#plot iframe') === null",
    );
}

/// Frames of a capture: how many, and the longest.
fn frames(file: &Path) -> (usize, usize) {
    let bytes = fs::read(file).unwrap();
    let mut reader = PcapNgReader::new(&bytes[..]).unwrap();
    let (mut count, mut longest) = (0, 0);
    while let Some(block) = reader.next_block() {
        if let Block::EnhancedPacket(packet) = block.unwrap().0 {
            count += 1;
            longest = longest.max(packet.data.len());
        }
    }
    (count, longest)
}

fn captures(page: &mut Page) {
    let link = page
        .browser
        .evaluate("document.getElementById('capture-link').options[1].value");
    page.choose("capture-link", link.as_str().unwrap());
    page.choose("capture-way", "in");
    page.fill("capture-filter", HOSTILE);
    page.click("capture-start");
    page.until(
        "what is wrong with the filter",
        "!document.getElementById('refused').hidden",
    );
    page.fill("capture-filter", "");
    page.fill("capture-snap", "60");
    page.fill("capture-frames", "20");
    page.fill("capture-seconds", "60");
    page.fill("capture-mib", "1");
    page.click("capture-start");
    // It ends by itself, and is saved by itself.
    let file = page.browser.saved("pcapng", 1).remove(0);
    assert_eq!(frames(&file), (20, 60));
    page.fill("capture-frames", "1000000");
    page.fill("capture-seconds", "600");
    page.click("capture-start");
    page.shows("taps", "60");
    page.click("capture-stop");
    let files = page.browser.saved("pcapng", 2);
    assert!(files.iter().all(|file| frames(file).0 > 0), "{files:?}");
    // Once more, as it was asked for.
    for file in files {
        fs::remove_file(file).unwrap();
    }
    page.click("capture-save");
    page.browser.saved("pcapng", 1);
    page.until(
        "no tap",
        "document.querySelector('#taps tbody').children.length === 0",
    );
    page.click("capture-forget");
    page.until(
        "one capture",
        "document.querySelector('#captures tbody').children.length === 1",
    );
}

fn settings(page: &mut Page, live: &Live) {
    let count = "document.querySelectorAll('#settings tbody tr').length";
    let few = page.browser.evaluate(count);
    page.click("settings-run");
    page.until("all settings", &format!("{count} > {few} + 5"));
    page.shows("settings", "shards");
    let row = "[...document.querySelectorAll('#settings tbody tr')].find((row) => row.children[0].textContent === 'tcp.congestion')";
    page.until("the setting", &format!("{row} !== undefined"));
    page.browser.evaluate(&format!("{row}.querySelector('input').id = 'congestion', {row}.querySelector('button').id = 'congestion-set'"));
    page.of("setting");
    page.browser.fill("#congestion", "bbr");
    page.of("setting-set");
    page.browser.click("#congestion-set");
    page.shows("done", "tcp.congestion is bbr");
    assert_eq!(live.setting("tcp.congestion"), "bbr");
    // What is typed comes back in what is said: as text.
    page.browser.fill("#congestion", HOSTILE);
    page.browser.press("Enter");
    page.shows("refused", "congestion");
    let images = page
        .browser
        .evaluate("document.querySelectorAll('img').length");
    assert_eq!(images, json!(0));
    assert_eq!(live.setting("tcp.congestion"), "bbr");
    let link = page
        .browser
        .evaluate("document.getElementById('address-link').options[0].value");
    let link = link.as_str().unwrap().to_owned();
    page.choose("address-link", &link);
    page.fill("address", "10.9.9.9/24");
    page.click("address-add");
    page.shows("addresses", "10.9.9.9/24");
    page.fill("route", "10.8.0.0/16");
    page.fill("route-via", "10.9.9.1");
    page.choose("route-link", &link);
    page.click("route-add");
    page.shows("routes", "10.8.0.0/16");
    for (table, text, control) in [
        ("routes", "10.8.0.0/16", "route-remove"),
        ("addresses", "10.9.9.9/24", "address-remove"),
    ] {
        let row = format!(
            "[...document.querySelectorAll('#{table} tbody tr')].find((row) => row.innerText.includes({}))",
            json!(text)
        );
        page.of(control);
        page.browser.evaluate(&format!(
            "{row}.querySelector('button').id = 'this-{control}'"
        ));
        page.browser.click(&format!("#this-{control}"));
        page.until("it to be gone", &format!("{row} === undefined"));
    }
    modules(page);
}

fn modules(page: &mut Page) {
    let toml = "[[module]]\nname = \"wall\"\nkind = \"filter\"\nrules = [\"drop in proto tcp to 0.0.0.0/0 port 23\"]\n";
    let stacks = control::stacks_named(&std::process::id().to_string());
    let change = Change::LoadModule {
        toml: toml.to_owned(),
    };
    stacks.first().unwrap().change(&change).unwrap();
    page.click("refresh");
    page.shows("modules", "wall");
    page.click("module-unload");
    page.until(
        "it to be gone",
        "document.querySelectorAll('#modules tbody tr').length === 0",
    );
}

/// A page that has no token asks for it.
fn token(page: &mut Page, folder: &Folder) {
    let file = folder.0.join("token");
    fs::write(&file, "open-sesame\n").unwrap();
    let served = Served::start(&["--token-file", file.to_str().unwrap()]);
    page.browser.open(&served.url);
    page.until(
        "the form",
        "!document.getElementById('token-form').hidden && document.getElementById('main').hidden",
    );
    page.pictures("token");
    page.fill("token", "another");
    page.click("token-use");
    page.shows("trouble", "the token is missing, or is another one");
    page.fill("token", "open-sesame");
    page.browser.press("Enter");
    page.shows("about", "app-channel");
    page.until("no form", "document.getElementById('token-form').hidden");
    // From the address, where it does not stay.
    let url = format!(
        "{}#token=open-sesame",
        served.url.replace("127.0.0.1", "localhost")
    );
    page.browser.evaluate("sessionStorage.clear()");
    page.browser.open(&url);
    page.shows("about", "app-channel");
    assert_eq!(page.browser.evaluate("location.hash"), json!(""));
}

/// Pages that are never read cost the stacks nothing: the one that is read goes on, and so do the connections.
#[test]
fn clients_that_never_read_hold_nothing_up() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let live = Live::new();
    let served = Served::start(&[]);
    let address = served.address();
    let body = r#"{"stack":null,"order":"rate","reversed":false}"#;
    let request = format!(
        "POST /api/live HTTP/1.1\r\nHost: {address}\r\nOrigin: http://{address}\r\nX-Netchan: 1\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let ask = || {
        let mut stream = Plain::connect(address).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        stream
    };
    let idle: Vec<Plain> = (0..64).map(|_| ask()).collect();
    let received = || {
        let facts = live.server.show("counters").unwrap();
        let rows = facts.as_array().unwrap().iter();
        let row = rows.clone().find(|row| row["name"] == "tcp_segments_in");
        row.and_then(|row| row["value"].as_u64()).unwrap()
    };
    let before = received();
    // The first answers come before the first look at the stack.
    let mut answers = (0..400).map(|_| {
        let mut answer = String::new();
        ask().read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        thread::sleep(Duration::from_millis(25));
        answer
    });
    assert!(answers.any(|answer| answer.contains("\"app-channel\"")));
    while received() < before + 10 {
        thread::sleep(Duration::from_millis(5));
    }
    drop(idle);
}
