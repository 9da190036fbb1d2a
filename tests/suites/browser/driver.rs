//! A real browser, Debian's Chromium without a window, that opens pages and says what they do.
//!
//! It is spoken to by the DevTools protocol over two pipes (`--remote-debugging-pipe`): messages of
//! JSON that end with a zero byte. A shell puts the pipes where Chromium looks for them,
//! descriptors 3 and 4, so that nothing is needed but the standard library.
//!
//! **Guarantee.** Everything that a page throws, logs as an error, is refused by its policy, or
//! asks the network for, is in [`Tab::take_complaints`]; the suite has a page that does all of
//! these. Starting the browser takes a second or two, so whoever tests starts one and opens many
//! pages. It has no profile but a new folder, and ends with its value.
//!
//! **Source.** <https://chromedevtools.github.io/devtools-protocol/>.

use std::cell::RefCell;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use brownout_tests::Scratch;
use brownout_tests::exec::kill_group;

/// A page that takes longer has hung: machines that run tests may be very busy.
const PATIENCE: Duration = Duration::from_secs(120);

/// What Chromium is not to do: tests need none of it, and much of it asks the network.
const FLAGS: &[&str] = &[
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-extensions",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
    "--remote-debugging-pipe",
];

/// A running Chromium.
pub struct Browser {
    child: Child,
    wire: RefCell<Wire>,
    _profile: Scratch,
}

struct Wire {
    to: ChildStdin,
    from: Receiver<Value>,
    last: u64,
    /// Events that nobody has looked at yet.
    events: Vec<Value>,
}

impl Browser {
    /// Starts one.
    pub fn start() -> Result<Browser> {
        let profile = Scratch::new()?;
        let log = std::fs::File::create(profile.join("log"))?;
        let mut child = Command::new("/bin/sh")
            .args([
                "-c",
                r#"exec "$@" 3<&0 4>&1 </dev/null >&2"#,
                "sh",
                "chromium",
            ])
            .args(FLAGS)
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .arg("about:blank")
            .env("HOME", profile.path())
            .env("TMPDIR", profile.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .process_group(0)
            .spawn()
            .context("cannot start a shell")?;
        let (Some(to), Some(out)) = (child.stdin.take(), child.stdout.take()) else {
            bail!("no pipes");
        };
        let (sender, from) = channel();
        thread::spawn(move || {
            let mut out = BufReader::new(out);
            let mut message = Vec::new();
            // It ends when the browser does, or nobody listens any more.
            while let Ok(1..) = out.read_until(0, &mut message) {
                message.pop();
                let Ok(value) = serde_json::from_slice(&message) else {
                    break;
                };
                if sender.send(value).is_err() {
                    break;
                }
                message.clear();
            }
        });
        let browser = Browser {
            child,
            wire: RefCell::new(Wire {
                to,
                from,
                last: 0,
                events: Vec::new(),
            }),
            _profile: profile,
        };
        browser
            .call(None, "Browser.getVersion", json!({}))
            .context("Chromium does not answer: is Debian's package `chromium` installed?")?;
        Ok(browser)
    }

    /// A new, empty tab that is watched.
    pub fn tab(&self) -> Result<Tab<'_>> {
        let made = self.call(None, "Target.createTarget", json!({"url": "about:blank"}))?;
        let attached = self.call(
            None,
            "Target.attachToTarget",
            json!({"targetId": made["targetId"], "flatten": true}),
        )?;
        let session = attached["sessionId"].as_str().context("no session")?;
        let tab = Tab {
            browser: self,
            session: session.to_owned(),
            target: made["targetId"].as_str().unwrap_or_default().to_owned(),
        };
        for domain in ["Page", "Runtime", "Log", "Network"] {
            tab.call(&format!("{domain}.enable"), json!({}))?;
        }
        // Focus, as if a person looked at it.
        tab.call(
            "Emulation.setFocusEmulationEnabled",
            json!({"enabled": true}),
        )?;
        tab.resize(1280, 900)?;
        Ok(tab)
    }

    /// Lets pages use the clipboard.
    pub fn permit_clipboard(&self) -> Result<()> {
        let permissions = ["clipboardReadWrite", "clipboardSanitizedWrite"];
        self.call(
            None,
            "Browser.grantPermissions",
            json!({"permissions": permissions}),
        )?;
        Ok(())
    }

    fn call(&self, session: Option<&str>, method: &str, params: Value) -> Result<Value> {
        let mut wire = self.wire.borrow_mut();
        wire.last += 1;
        let id = wire.last;
        let mut message = json!({"id": id, "method": method, "params": params});
        if let Some(session) = session {
            message["sessionId"] = session.into();
        }
        let mut bytes = message.to_string().into_bytes();
        bytes.push(0);
        wire.to
            .write_all(&bytes)
            .with_context(|| format!("{method}: Chromium has gone"))?;
        let end = Instant::now() + PATIENCE;
        loop {
            let message = wire.receive(end).with_context(|| method.to_owned())?;
            if message["id"] != json!(id) {
                wire.events.push(message);
                continue;
            }
            if let Some(error) = message.get("error") {
                bail!("{method}: {error}");
            }
            return Ok(message["result"].clone());
        }
    }
}

impl Wire {
    fn receive(&self, end: Instant) -> Result<Value> {
        let left = end.saturating_duration_since(Instant::now());
        match self.from.recv_timeout(left) {
            Ok(message) => Ok(message),
            Err(RecvTimeoutError::Timeout) => bail!("Chromium does not answer"),
            Err(RecvTimeoutError::Disconnected) => bail!("Chromium has gone"),
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        kill_group(self.child.id());
        // It was killed, so it ends.
        let _ = self.child.wait();
    }
}

/// A tab of the browser.
pub struct Tab<'b> {
    browser: &'b Browser,
    session: String,
    target: String,
}

impl Tab<'_> {
    fn call(&self, method: &str, params: Value) -> Result<Value> {
        self.browser.call(Some(&self.session), method, params)
    }

    /// Opens a file of Brownout's, with what stands behind `#`, and waits until its script is done.
    pub fn open(&self, page: &Path, hash: &str) -> Result<()> {
        self.go_to(page, hash)?;
        self.wait_for("document.documentElement.dataset.ready === 'true'")
    }

    /// Opens a file and waits until it is loaded.
    pub fn go_to(&self, page: &Path, hash: &str) -> Result<()> {
        let before = match hash {
            "" => format!("file://{}", page.display()),
            hash => format!("file://{}#{hash}", page.display()),
        };
        self.navigate(&before)?;
        self.wait_for("document.readyState === 'complete' && location.protocol === 'file:'")
    }

    /// Opens a page of Brownout's that is served, and waits until its script is done.
    pub fn open_served(&self, address: &str) -> Result<()> {
        self.navigate(address)?;
        self.wait_for(
            "location.protocol === 'http:' && document.documentElement.dataset.ready === 'true'",
        )
    }

    fn navigate(&self, address: &str) -> Result<()> {
        // Otherwise a page that is open already would only be scrolled.
        self.call("Page.navigate", json!({"url": "about:blank"}))?;
        let gone = self.call("Page.navigate", json!({"url": address}))?;
        ensure!(
            gone["errorText"].is_null(),
            "cannot open {address}: {}",
            gone["errorText"]
        );
        Ok(())
    }

    /// The value of an expression in the page; a promise is waited for.
    pub fn evaluate(&self, expression: &str) -> Result<Value> {
        let params = json!({
            "expression": expression, "returnByValue": true, "awaitPromise": true, "userGesture": true
        });
        let done = self.call("Runtime.evaluate", params)?;
        let shown: String = expression.chars().take(200).collect();
        if let Some(thrown) = done.get("exceptionDetails") {
            bail!("{shown}: {}", thrown["exception"]["description"]);
        }
        Ok(done["result"]["value"].clone())
    }

    /// The text of an expression's value.
    pub fn text(&self, expression: &str) -> Result<String> {
        match self.evaluate(expression)? {
            Value::String(text) => Ok(text),
            other => Ok(other.to_string()),
        }
    }

    /// Fails unless the expression is true.
    pub fn expect(&self, expression: &str) -> Result<()> {
        match self.evaluate(expression)? {
            Value::Bool(true) => Ok(()),
            other => bail!("{expression} is {other}"),
        }
    }

    /// Waits until the expression is true.
    pub fn wait_for(&self, expression: &str) -> Result<()> {
        let end = Instant::now() + PATIENCE;
        loop {
            // While a page is being left, there is nothing to ask.
            if let Ok(Value::Bool(true)) = self.evaluate(expression) {
                return Ok(());
            }
            ensure!(Instant::now() < end, "it never happens: {expression}");
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Presses a key, as a person does.
    pub fn press(&self, key: &str) -> Result<()> {
        let mut down = json!({"type": "keyDown", "key": key});
        if key.chars().count() == 1 {
            down["text"] = key.into();
        }
        self.call("Input.dispatchKeyEvent", down)?;
        self.call(
            "Input.dispatchKeyEvent",
            json!({"type": "keyUp", "key": key}),
        )?;
        Ok(())
    }

    /// Another size of the window.
    pub fn resize(&self, width: u32, height: u32) -> Result<()> {
        self.call(
            "Emulation.setDeviceMetricsOverride",
            json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false}),
        )?;
        Ok(())
    }

    /// As if the system was set to dark colours, or to light ones.
    pub fn prefer_dark(&self, dark: bool) -> Result<()> {
        let value = if dark { "dark" } else { "light" };
        self.call(
            "Emulation.setEmulatedMedia",
            json!({"features": [{"name": "prefers-color-scheme", "value": value}]}),
        )?;
        Ok(())
    }

    /// As if it was on paper, or on a screen again.
    pub fn on_paper(&self, is_paper: bool) -> Result<()> {
        let media = if is_paper { "print" } else { "" };
        self.call("Emulation.setEmulatedMedia", json!({ "media": media }))?;
        Ok(())
    }

    /// How it looks on paper, in bytes of a PDF.
    pub fn print(&self) -> Result<Vec<u8>> {
        let printed = self.call("Page.printToPDF", json!({"printBackground": true}))?;
        decode(printed["data"].as_str().unwrap_or_default())
    }

    /// Takes a picture of what is in the window.
    pub fn screenshot(&self, path: &Path) -> Result<()> {
        let shot = self.call("Page.captureScreenshot", json!({"format": "png"}))?;
        save(&shot, path)
    }

    /// Takes a picture of the first element that a selector finds, as it is on the page.
    pub fn screenshot_of(&self, selector: &str, path: &Path) -> Result<()> {
        let place = self.evaluate(&format!(
            "(() => {{ const box = document.querySelector({}).getBoundingClientRect(); \
             return {{ x: box.x + scrollX, y: box.y + scrollY, width: box.width, height: box.height, scale: 1 }}; }})()",
            json!(selector)
        ))?;
        let shot = self.call(
            "Page.captureScreenshot",
            json!({"format": "png", "clip": place, "captureBeyondViewport": true}),
        )?;
        save(&shot, path)
    }

    /// What the page has done since that it should not: errors, and requests for anything but
    /// itself.
    pub fn take_complaints(&self) -> Result<Vec<String>> {
        // What was sent before the answer has arrived.
        self.evaluate("0")?;
        let mut wire = self.browser.wire.borrow_mut();
        let (mine, others): (Vec<Value>, Vec<Value>) = wire
            .events
            .drain(..)
            .partition(|event| event["sessionId"] == json!(self.session));
        wire.events = others;
        Ok(mine.iter().filter_map(complaint).collect())
    }
}

impl Drop for Tab<'_> {
    fn drop(&mut self) {
        // The browser may have gone first.
        let target = json!({"targetId": self.target});
        let _ = self.browser.call(None, "Target.closeTarget", target);
    }
}

fn save(shot: &Value, path: &Path) -> Result<()> {
    let bytes = decode(shot["data"].as_str().unwrap_or_default())?;
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    std::fs::write(path, bytes).with_context(|| path.display().to_string())
}

fn complaint(event: &Value) -> Option<String> {
    let params = &event["params"];
    let text = |value: &Value| match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    match event["method"].as_str()? {
        "Runtime.exceptionThrown" => {
            let details = &params["exceptionDetails"];
            Some(format!(
                "throws: {} {}",
                text(&details["text"]),
                text(&details["exception"]["description"])
            ))
        }
        "Runtime.consoleAPICalled" if params["type"] == "error" => {
            Some(format!("logs an error: {}", params["args"]))
        }
        "Log.entryAdded" if params["entry"]["level"] == "error" => {
            Some(format!("logs an error: {}", text(&params["entry"]["text"])))
        }
        "Network.requestWillBeSent" => {
            let is_page = params["type"] == "Document"
                && params["documentURL"] == params["request"]["url"]
                && params["frameId"].is_string()
                && params["initiator"]["type"] == "other";
            let url = text(&params["request"]["url"]);
            (!is_page && !url.starts_with("data:")).then(|| format!("asks for {url}"))
        }
        _ => None,
    }
}

/// Base64, of which nothing else here has need.
fn decode(text: &str) -> Result<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len() / 4 * 3);
    let (mut bits, mut held) = (0u32, 0);
    for byte in text.bytes().filter(|byte| *byte != b'=') {
        let value = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => bail!("no base64"),
        };
        bits = bits << 6 | u32::from(value);
        held += 6;
        if held >= 8 {
            held -= 8;
            out.push((bits >> held) as u8);
            bits &= (1 << held) - 1;
        }
    }
    Ok(out)
}
