//! A browser that is driven by WebDriver, over plain HTTP. Dropping it ends it.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use tallyring_tests::needs::skipped;
use tempfile::TempDir;
use ureq::Agent;

const TIMEOUT: Duration = Duration::from_secs(60);
const DRIVER: &str = "chromedriver";
/// How often a driver is started that finds no port.
const STARTS_MAX: usize = 5;
const BROWSERS: [&str; 2] = ["chromium", "google-chrome"];

/// One window.
pub(crate) struct Browser {
    driver: Child,
    agent: Agent,
    session: String,
    _profile: TempDir,
}

fn is_installed(name: &str) -> bool {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&paths).any(|path| path.join(name).is_file())
}

impl Browser {
    /// Starts a browser without a screen; none where no browser is installed, which the output says by the test's name.
    pub(crate) fn start(test: &str) -> Option<Self> {
        if !is_installed(DRIVER) || !BROWSERS.into_iter().any(is_installed) {
            skipped(test, "chromium and chromedriver are not installed");
            return None;
        }
        // It takes the port that was free a moment ago, which another one may have now.
        let started = (0..STARTS_MAX).find_map(|_| started());
        let (driver, port) = started.expect("chromedriver says its port");
        let profile = TempDir::new().expect("make a directory");
        let agent = Agent::config_builder()
            .http_status_as_error(false)
            .timeout_global(Some(TIMEOUT))
            .build()
            .new_agent();
        let mut browser = Self {
            driver,
            agent,
            session: format!("http://127.0.0.1:{port}/session"),
            _profile: profile,
        };
        browser.begin();
        Some(browser)
    }

    fn begin(&mut self) {
        let profile = format!("--user-data-dir={}", self._profile.path().display());
        let arguments = [
            "--headless=new",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            // Tests run as root in containers, where the sandbox has no user to change to.
            "--no-sandbox",
            &profile,
        ];
        let wanted = json!({"capabilities": {"alwaysMatch": {
            "goog:loggingPrefs": {"browser": "ALL"},
            "goog:chromeOptions": {"args": arguments},
        }}});
        let begun = self.post("", &wanted);
        let id = begun["sessionId"].as_str().expect("a session").to_owned();
        self.session = format!("{}/{id}", self.session);
    }

    fn post(&self, path: &str, body: &Value) -> Value {
        let request = self.agent.post(format!("{}{path}", self.session));
        let answer = request
            .header("content-type", "application/json")
            .send(body.to_string())
            .and_then(|mut answer| answer.body_mut().read_to_string());
        let text = answer.unwrap_or_else(|error| panic!("WebDriver {path}: {error}"));
        let mut value: Value = serde_json::from_str(&text).expect("WebDriver speaks JSON");
        let value = value["value"].take();
        let error = &value["error"];
        assert!(error.is_null(), "WebDriver {path} {body}: {value:#}");
        value
    }

    /// Opens an address.
    pub(crate) fn go(&self, url: &str) {
        self.post("/url", &json!({ "url": url }));
    }

    /// Runs a script in the page; what it returns.
    pub(crate) fn run(&self, script: &str) -> Value {
        self.post("/execute/sync", &json!({ "script": script, "args": [] }))
    }

    /// Types into whatever has the focus.
    pub(crate) fn press(&self, keys: &str) {
        let presses = keys.chars().flat_map(|key| {
            [
                json!({"type": "keyDown", "value": key}),
                json!({"type": "keyUp", "value": key}),
            ]
        });
        let presses: Vec<Value> = presses.collect();
        let keyboard = json!({"type": "key", "id": "keyboard", "actions": presses});
        self.post("/actions", &json!({ "actions": [keyboard] }));
    }

    /// Clicks the first element of a selector as a pointer does: it must be seen.
    pub(crate) fn click(&self, selector: &str) {
        let element = self.element(selector);
        self.post(&format!("/element/{element}/click"), &json!({}));
    }

    /// The text of the first element of a selector.
    pub(crate) fn text(&self, selector: &str) -> String {
        let script = format!("return document.querySelector({selector:?})?.textContent");
        self.run(&script).as_str().unwrap_or_default().to_owned()
    }

    fn element(&self, selector: &str) -> String {
        let found = self.post(
            "/element",
            &json!({"using": "css selector", "value": selector}),
        );
        let mut ids = found.as_object().expect("an element").values();
        ids.next()
            .and_then(Value::as_str)
            .expect("its id")
            .to_owned()
    }

    /// Makes the window as wide as this and the system's theme as this.
    pub(crate) fn emulate(&self, width: u32, theme: &str) {
        let phone = width < 600;
        let size = json!({"width": width, "height": 844, "deviceScaleFactor": 1, "mobile": phone});
        self.tool("Emulation.setDeviceMetricsOverride", size);
        let feature = json!({"name": "prefers-color-scheme", "value": theme});
        self.tool(
            "Emulation.setEmulatedMedia",
            json!({ "features": [feature] }),
        );
    }

    fn tool(&self, command: &str, parameters: Value) {
        self.post(
            "/goog/cdp/execute",
            &json!({"cmd": command, "params": parameters}),
        );
    }

    /// The messages in the console since the last call.
    pub(crate) fn console(&self) -> Vec<String> {
        let entries = self.post("/se/log", &json!({ "type": "browser" }));
        let entries = entries.as_array().expect("a list").iter();
        entries
            .map(|entry| entry["message"].as_str().unwrap_or_default().to_owned())
            .collect()
    }
}

/// A driver with its port; none where it found none, and ended.
fn started() -> Option<(Child, u16)> {
    let mut driver = Command::new(DRIVER)
        .arg("--port=0")
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("start chromedriver");
    let output = BufReader::new(driver.stdout.take().expect("its output"));
    let port = output.lines().map_while(Result::ok).find_map(|line| {
        let (_, port) = line.split_once("started successfully on port ")?;
        port.trim_end_matches('.').parse::<u16>().ok()
    });
    if port.is_none() {
        driver.wait().expect("its end");
    }
    port.map(|port| (driver, port))
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Ends the browser; the driver would leave it behind.
        let _ = self.agent.delete(&self.session).call();
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}
