//! A headless Chromium, driven over its DevTools protocol: pages in, clicks and keys as a person's, facts and pictures out. It reaches this machine alone.

use std::{
    env, fs,
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc::{Receiver, channel},
    thread,
    time::Duration,
};

use serde_json::{Value, json};

/// Names that it goes by.
const NAMES: [&str; 6] = [
    "chromium",
    "chromium-browser",
    "chromium-headless-shell",
    "chrome-headless-shell",
    "google-chrome",
    "chromium-shell",
];
/// How long a test waits for what must come.
const PATIENCE: Duration = Duration::from_secs(60);
/// Between two looks.
const PAUSE: Duration = Duration::from_millis(50);

/// Where it is; `NETCHAN_CHROMIUM` names another one.
pub fn find() -> Option<PathBuf> {
    if let Some(path) = env::var_os("NETCHAN_CHROMIUM") {
        return Some(path.into());
    }
    let path = env::var_os("PATH").unwrap_or_default();
    let places = env::split_paths(&path).flat_map(|folder| NAMES.map(|name| folder.join(name)));
    places.into_iter().find(|place| place.is_file())
}

/// A browser with one page, which is ended with it.
pub struct Browser {
    child: Child,
    to: ChildStdin,
    from: Receiver<Value>,
    last: u64,
    session: Option<String>,
    /// What pages said that is wrong: exceptions, refused resources, breaches of their policy.
    pub complaints: Vec<String>,
    pub downloads: PathBuf,
}

impl Browser {
    /// Starts `program`, which keeps its files in `folder`.
    pub fn start(program: &Path, folder: &Path) -> Self {
        // Its pipes are descriptors 3 and 4.
        let mut command = Command::new("sh");
        let line = "exec \"$@\" 3<&0 4>&1 0</dev/null 1>/dev/null 2>/dev/null";
        command.args(["-c", line, "sh"]).arg(program).args([
            "--headless",
            "--remote-debugging-pipe",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
            "--disable-dev-shm-usage",
            "--disable-background-networking",
            "--disable-component-update",
            "--no-first-run",
            "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost",
        ]);
        let profile = format!("--user-data-dir={}", folder.join("profile").display());
        command.arg(profile).arg("about:blank").env("HOME", folder);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (say, from) = channel();
        let answers = BufReader::new(child.stdout.take().unwrap());
        thread::spawn(move || {
            for answer in answers.split(0).map_while(Result::ok) {
                let Ok(answer) = serde_json::from_slice(&answer) else {
                    return;
                };
                if say.send(answer).is_err() {
                    return;
                }
            }
        });
        let downloads = folder.join("downloads");
        fs::create_dir_all(&downloads).unwrap();
        let mut browser = Self {
            to: child.stdin.take().unwrap(),
            child,
            from,
            last: 0,
            session: None,
            complaints: Vec::new(),
            downloads,
        };
        let page = browser.call("Target.createTarget", json!({ "url": "about:blank" }));
        let to = json!({ "targetId": page["targetId"], "flatten": true });
        let attached = browser.call("Target.attachToTarget", to);
        browser.session = attached["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Runtime", "Log"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        let path = browser.downloads.clone();
        let how = json!({ "behavior": "allow", "downloadPath": path });
        browser.call("Page.setDownloadBehavior", how);
        browser
    }

    /// Asks for something of the protocol.
    fn call(&mut self, method: &str, parameters: Value) -> Value {
        self.last += 1;
        let mut request = json!({ "id": self.last, "method": method, "params": parameters });
        if let Some(session) = &self.session {
            request["sessionId"] = json!(session);
        }
        let line = format!("{request}\0");
        self.to.write_all(line.as_bytes()).unwrap();
        loop {
            let Ok(answer) = self.from.recv_timeout(PATIENCE) else {
                panic!("the browser does not answer {method}");
            };
            if answer["id"] == self.last {
                assert!(answer["error"].is_null(), "{method}: {}", answer["error"]);
                return answer["result"].clone();
            }
            self.hear(&answer);
        }
    }

    fn hear(&mut self, event: &Value) {
        let of = &event["params"];
        match event["method"].as_str() {
            Some("Runtime.exceptionThrown") => {
                self.complaints.push(of["exceptionDetails"].to_string());
            }
            Some("Log.entryAdded") if of["entry"]["level"] == "error" => {
                self.complaints.push(of["entry"].to_string());
            }
            _ => {}
        }
    }

    /// Goes to `url`.
    pub fn open(&mut self, url: &str) {
        let opened = self.call("Page.navigate", json!({ "url": url }));
        assert!(opened["errorText"].is_null(), "{url}: {opened}");
        self.until("the page", "document.readyState === 'complete'");
    }

    /// What `script` comes to in the page.
    pub fn evaluate(&mut self, script: &str) -> Value {
        let how = json!({ "expression": script, "returnByValue": true, "awaitPromise": true });
        let done = self.call("Runtime.evaluate", how);
        let wrong = &done["exceptionDetails"];
        assert!(wrong.is_null(), "{script}: {wrong}");
        done["result"]["value"].clone()
    }

    /// Waits until `script` is true.
    pub fn until(&mut self, what: &str, script: &str) {
        let looks = PATIENCE.as_millis() / PAUSE.as_millis();
        for _ in 0..looks {
            if self.evaluate(script) == json!(true) {
                return;
            }
            thread::sleep(PAUSE);
        }
        let page = self.evaluate("document.body.innerText");
        let page = page.as_str().unwrap_or_default();
        panic!(
            "{what} did not come ({script}):\n{page}\n{:#?}",
            self.complaints
        );
    }

    /// Clicks into the middle of the first element of `selector` that is shown, as a mouse does: what lies above it gets the click.
    pub fn click(&mut self, selector: &str) {
        let wanted = format!(
            "[...document.querySelectorAll({})].find((e) => e.offsetParent !== null && !e.disabled)",
            json!(selector)
        );
        self.until(selector, &format!("{wanted} !== undefined"));
        let place = self.evaluate(&format!(
            "(() => {{ const e = {wanted}; e.scrollIntoView({{ block: 'center' }}); const r = e.getBoundingClientRect(); \
             return [r.x + r.width / 2, r.y + r.height / 2]; }})()"
        ));
        for kind in ["mouseMoved", "mousePressed", "mouseReleased"] {
            let how = json!({ "type": kind, "x": place[0], "y": place[1], "button": "left", "clickCount": 1 });
            self.call("Input.dispatchMouseEvent", how);
        }
    }

    /// Types `text` in the place of what stands in the first field of `selector`.
    pub fn fill(&mut self, selector: &str, text: &str) {
        let field = format!("document.querySelector({})", json!(selector));
        self.until(selector, &format!("{field} !== null"));
        self.evaluate(&format!("{field}.focus(), {field}.select()"));
        match text {
            "" => self.press("Delete"),
            text => {
                self.call("Input.insertText", json!({ "text": text }));
            }
        }
    }

    /// Presses a key.
    pub fn press(&mut self, key: &str) {
        let (code, text) = match key {
            "Enter" => (13, "\r"),
            "Tab" => (9, ""),
            "Delete" => (46, ""),
            " " => (32, " "),
            _ => panic!("which code has {key}?"),
        };
        let down = if text.is_empty() {
            "rawKeyDown"
        } else {
            "keyDown"
        };
        for kind in [down, "keyUp"] {
            let mut how = json!({ "type": kind, "key": key, "windowsVirtualKeyCode": code });
            if kind == "keyDown" {
                how["text"] = json!(text);
            }
            self.call("Input.dispatchKeyEvent", how);
        }
    }

    /// Chooses `value` in a select.
    pub fn choose(&mut self, selector: &str, value: &str) {
        let done = self.evaluate(&format!(
            "(() => {{ const e = document.querySelector({}); e.value = {}; e.dispatchEvent(new Event('change', {{ bubbles: true }})); return e.value; }})()",
            json!(selector),
            json!(value)
        ));
        assert_eq!(done, json!(value), "{selector}");
    }

    /// A window so wide and high, in light or dark.
    pub fn look(&mut self, width: u32, height: u32, is_dark: bool) {
        let size =
            json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        self.call("Emulation.setDeviceMetricsOverride", size);
        let scheme = if is_dark { "dark" } else { "light" };
        let feature = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
        self.call("Emulation.setEmulatedMedia", json!({ "features": feature }));
    }

    /// Keeps a picture of the page, all of it, in `file`.
    pub fn picture(&mut self, file: &Path) {
        let how = json!({ "format": "png", "captureBeyondViewport": true });
        let taken = self.call("Page.captureScreenshot", how);
        let mut decode = Command::new("base64");
        decode.arg("-d").stdin(Stdio::piped());
        let mut decode = decode
            .stdout(fs::File::create(file).unwrap())
            .spawn()
            .unwrap();
        let text = taken["data"].as_str().unwrap();
        let mut to = decode.stdin.take().unwrap();
        to.write_all(text.as_bytes()).unwrap();
        drop(to);
        assert!(decode.wait().unwrap().success());
    }

    /// Waits until so many files with this ending were saved.
    pub fn saved(&mut self, ending: &str, count: usize) -> Vec<PathBuf> {
        for _ in 0..PATIENCE.as_millis() / PAUSE.as_millis() {
            let entries = fs::read_dir(&self.downloads).unwrap().flatten();
            let files = entries.map(|entry| entry.path());
            let mut files: Vec<PathBuf> = files
                .filter(|path| path.extension().is_some_and(|of| of == ending))
                .collect();
            if files.len() >= count {
                files.sort();
                return files;
            }
            thread::sleep(PAUSE);
        }
        panic!(
            "{count} files of .{ending} did not come: {:#?}",
            self.complaints
        );
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
